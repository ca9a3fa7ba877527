// Block transfers of a simulated job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "runtime/core/block_transport.hpp"
#include "runtime/sim/network.hpp"
#include "runtime/sim/world.hpp"

namespace paceline::sim {

/// Behaviour of a job's transfers.
struct BlockOptions {
  bool copies = false;        ///< the pieces are real memory, whose bytes are copied
  double bytes_per_byte = 1;  ///< bytes sent for each byte of a piece
  double failing = 0;         ///< share of transfers that fail, after their full time
  std::uint64_t seed = 0;     ///< seed of the failures
};

/// Joins the two ends of each transfer. Not thread-safe.
class BlockWire {
 public:
  BlockWire(World& world, Network& network, const BlockOptions& options);
  ~BlockWire();
  BlockWire(const BlockWire&) = delete;
  BlockWire& operator=(const BlockWire&) = delete;

  /// The transport of a rank, which wakes the actor. Valid as long as this object.
  BlockTransport& open(int rank, ActorId actor);

 private:
  class Transport;
  struct Load;
  struct End {
    Transport* transport = nullptr;  ///< null: this end is not there yet
    Ticket ticket = 0;
    double at = 0;
    std::vector<std::span<std::byte>> pieces;
    bool refuses = false;  ///< the sender refuses: no ticket, and the receiver fails
  };
  struct Transfer {
    End sender, receiver;
  };
  /// Sender, receiver, key.
  using Name = std::tuple<int, int, std::uint64_t>;
  void join(const Name& name, bool sends, End end);
  void begin(const Name& name, const Transfer& transfer);

  World& world_;
  Network& network_;
  BlockOptions options_;
  std::map<int, std::unique_ptr<Transport>> transports_;
  std::map<Name, Transfer> waiting_;  ///< transfers whose other end is not there yet
};

}  // namespace paceline::sim
