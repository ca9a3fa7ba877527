// A rank's share of its group's KV: the rank sends it, receives it, stores it and restores it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "runtime/core/block_transport.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/optional_index.hpp"
#include "runtime/engine/step_runner.hpp"
#include "runtime/kv/block_owners.hpp"
#include "runtime/kv/store.hpp"
#include "runtime/policy/place/placement.hpp"
#include "runtime/protocol/messages.hpp"
#include "runtime/roles/recorder.hpp"

namespace paceline::roles {

/// A rank's share is its heads of each block, and the routed experts of the block's positions,
/// which are the same on all ranks. Groups of different sizes have different shares, so a rank
/// exchanges heads with every rank of the other group that has heads in common with it. Experts are
/// sent with a receiver's first head. The store holds the rank's shares unchanged. Where each rank
/// has the KV of its own requests (AttentionLayout::data), its share is all of the blocks that it
/// owns, and other groups see the rank as a group of one. Not thread-safe.
class KvShare {
 public:
  /// `index`: index of this rank in its group of `tp` ranks. `store`: has blocks of the sizes in
  /// `memory`; null: nothing is ever stored. `leader`: the leader's rank, if each rank has the KV
  /// of its own requests; absent: each rank has a part of all KV. References outlive this.
  KvShare(BlockTransport& transport, const engine::KvMemory& memory, int index, int tp,
          const Recorder& recorder = {}, kv::Store* store = nullptr, OptionalIndex leader = {});
  /// Cancels transfers in flight, and waits a few seconds at most until they end. Memory that the
  /// transport may still touch after this is never freed.
  ~KvShare();
  KvShare(const KvShare&) = delete;
  KvShare& operator=(const KvShare&) = delete;

  /// To be called before and after each step, which may shrink or grow the KV memory. Memory that
  /// is given back is unregistered before the step, and no transfer in flight uses it. The memory
  /// does not move.
  void shrink_before(const kv::Work& work);
  void grow_after(const kv::Work& work);

  /// Does this rank's share of a command of its group (messages.hpp says which there are).
  void obey(const protocol::MoveKv& command);
  /// Ends incomplete where there is no room: nothing is stored under the key then.
  void obey(const protocol::StoreKv& command);
  /// Ends incomplete where some of the KV is missing or damaged: the blocks' contents are undefined
  /// then.
  void obey(const protocol::RestoreKv& command);
  /// A command still in flight on this KV ends incomplete.
  void obey(const protocol::DropKv& command);
  void obey(const protocol::ForeseeKv& command);
  /// Learns what has ended in the store, and starts the sends that waited for stored KV.
  void settle();
  /// Whether the share of the key's command ended complete; nothing while it is in flight. A
  /// command whose end was returned is forgotten.
  [[nodiscard]] std::optional<bool> ended(std::uint64_t key);
  /// Whether ranks of the group have the KV of their own requests.
  [[nodiscard]] bool divided() const { return owner_.owners > 1; }
  /// Adds the store's counts and seconds to the summary.
  void account(RankSummary& summary) const;
  /// Commands that ended since the last call. To be called after every wake-up. Calls settle()
  /// first.
  [[nodiscard]] std::vector<protocol::KvMoved> take_ended();

 private:
  /// A transfer with one rank of the other group.
  struct Part {
    Ticket ticket;
    TransferRecord record;
  };
  struct UnderWay {
    std::vector<Part> parts;
    bool failed = false;
    std::optional<kv::Store::Ticket> stored;  ///< the store's put, get or hold
    KvPoolRecord record;                      ///< telemetry of the store's operation
    std::optional<protocol::MoveKv> waits;    ///< a send that waits for the hold
    bool held = false;
  };

  UnderWay& begin(std::uint64_t key, KvPoolUse use, std::size_t blocks);
  [[nodiscard]] std::vector<std::byte*> places(std::span<const std::int32_t> blocks) const;
  [[nodiscard]] std::span<std::byte> block(std::int32_t name) const {
    return memory_.block(owner_.number(name));
  }
  [[nodiscard]] OptionalIndex owner_of(std::span<const std::int32_t> blocks) const;
  /// Whether KV of this owner is here, whole or in part.
  [[nodiscard]] bool has(OptionalIndex owner) const { return !owner || *owner == owner_.index; }
  void exchange(const protocol::MoveKv& command, std::span<const std::span<std::byte>> blocks,
                UnderWay& under_way);
  void go_on(UnderWay& under_way);
  void refuse(const protocol::MoveKv& command);
  [[nodiscard]] std::size_t bytes_after(const kv::Work& work) const;
  void forget_from(std::size_t bytes);
  [[nodiscard]] int heads_of(const policy::GroupRanks& peer) const;
  template <typename Each>
  void for_each_peer(const protocol::MoveKv& command, Each each) const;
  void record(UnderWay& under_way, bool complete);
  /// Cancels transfers. Returns whether all have ended. Throws the transport's errors.
  bool give_up();

  BlockTransport& transport_;
  engine::KvMemory memory_;
  std::vector<std::span<std::byte>> regions_;  ///< pieces in which the memory is registered
  int index_;  ///< index of this rank among the ranks that have parts of the same KV
  int tp_;     ///< number of these ranks
  policy::GroupRanks group_;
  kv::BlockOwner owner_;  ///< owner of the blocks here
  Recorder recorder_;
  kv::Store* store_;
  std::map<std::uint64_t, UnderWay> under_way_;
  double storing_seconds_ = 0;
  double restoring_seconds_ = 0;
};

}  // namespace paceline::roles
