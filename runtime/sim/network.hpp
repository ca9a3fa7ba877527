// Travel times of messages and blocks over links within a rank, within a node and between nodes.
#pragma once

#include <deque>
#include <vector>

namespace paceline::sim {

/// Value of each byte of a destination until the transfer to it has ended. Four such bytes are no
/// token's id.
constexpr int kNotArrived = 0xA5;

struct Link {
  double latency = 0;    ///< seconds
  double bandwidth = 0;  ///< bytes a second, > 0, of each rank and direction
};

struct Links {
  Link rank{1e-6, 20e9};     ///< between the participants of one rank, in memory
  Link node{3e-6, 200e9};    ///< between ranks of a node
  Link network{5e-6, 50e9};  ///< between nodes
};

/// Queues a rank's sends one after the other, and its receives too. Blocks do not delay messages,
/// as a network cuts both into packets. As ranks' clocks differ, a later send may be reported here
/// before an earlier one: the earlier one still goes first where there is a gap. Not thread-safe.
class Network {
 public:
  /// `node_of_rank`: [ranks] index of the rank's node.
  Network(const Links& links, std::vector<int> node_of_rank);

  enum class Kind { message, blocks };
  /// Arrival time of `bytes` bytes that are sent at `now`.
  [[nodiscard]] double arrival(int from, int to, double bytes, double now, Kind kind);

 private:
  /// One end of a link, in one direction.
  class Port {
   public:
    /// The first time from `at` on at which the port is free for `seconds`.
    [[nodiscard]] double free_from(double at, double seconds) const;
    void take(double begin, double seconds);

   private:
    struct Busy {
      double begin = 0;
      double end = 0;
    };
    std::deque<Busy> busy_;  ///< the latest transmissions, disjoint, by time
  };
  struct Ports {
    Port out, in;
  };
  Links links_;
  std::vector<int> node_of_rank_;
  std::vector<Ports> ports_;  ///< [ranks, link class, kind]
};

}  // namespace paceline::sim
