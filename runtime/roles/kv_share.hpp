// A rank's share of its group's KV. The rank sends, receives, stores and restores this share.
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

/// A rank's share of a block is the KV of the rank's attention heads, and the routing: numbers of
/// the experts to which the block's positions were routed, equal on all ranks. Between groups, a
/// rank exchanges heads with every rank of the other group that has some of the same heads, and a
/// receiver gets the routing with its first head. Latent vectors (MLA) are whole on every rank. If
/// each rank has the KV of its own requests (AttentionLayout::data), a rank's share is every block
/// that it owns, and other groups see the rank as a group of one. Not thread-safe.
class KvShare {
 public:
  /// `index`: index of this rank in its group of `tp` ranks. `store`: has blocks as large as
  /// those in `memory`; null: nothing is stored. `leader`: the leader's rank, if each rank has the
  /// KV of its own requests; absent: each has a share of all KV. Transport and store outlive this.
  KvShare(BlockTransport& transport, const engine::KvMemory& memory, int index, int tp,
          const Recorder& recorder = {}, kv::Store* store = nullptr, OptionalIndex leader = {});
  /// Cancels transfers in flight, and waits at most a few seconds until they have ended. If the
  /// transport might use the memory after that, the memory is never freed.
  ~KvShare();
  KvShare(const KvShare&) = delete;
  KvShare& operator=(const KvShare&) = delete;

  /// To be called before and after each step, because a step can resize the KV memory. The memory
  /// does not move. shrink_before() unregisters the memory that the step gives back; no transfer in
  /// flight may use that memory.
  void shrink_before(const kv::Work& work);
  void grow_after(const kv::Work& work);

  /// Does this rank's share of a command to its group (messages.hpp explains the commands).
  void obey(const protocol::MoveKv& command);
  /// The command ends incomplete if there is no store, or no room in it. Nothing is stored under
  /// the key then.
  void obey(const protocol::StoreKv& command);
  /// If some of the KV is missing or damaged, the command ends incomplete, and the contents of the
  /// blocks are undefined.
  void obey(const protocol::RestoreKv& command);
  /// Commands in flight for the dropped KV end incomplete, except sends that have begun.
  void obey(const protocol::DropKv& command);
  void obey(const protocol::ForeseeKv& command);
  /// Returns nothing while this rank's share of the command with this key is in flight. When the
  /// share has ended, returns one time whether it is complete, and forgets the command.
  [[nodiscard]] std::optional<bool> ended(std::uint64_t key);
  /// Whether each rank of the group has the KV of its own requests.
  [[nodiscard]] bool divided() const { return owner_.owners > 1; }
  /// Adds the store's counts and seconds to the summary.
  void account(RankSummary& summary) const;
  /// Notes which store operations have ended, starts the sends that waited for stored KV, and
  /// returns the commands that have ended since the last call. To be called after every wake-up.
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
    std::optional<kv::Store::Ticket> stored;  ///< ticket of the store's put, get or hold
    KvPoolRecord record;                      ///< telemetry of the store's operation
    std::optional<protocol::MoveKv> waits;    ///< set if the command sends stored KV
    bool held = false;                        ///< the hold has succeeded, and the send has begun
  };

  UnderWay& begin(std::uint64_t key, KvPoolUse use, std::size_t blocks);
  [[nodiscard]] std::optional<bool> ended(UnderWay& under_way);
  [[nodiscard]] std::vector<std::byte*> places(std::span<const std::int32_t> blocks) const;
  [[nodiscard]] std::span<std::byte> block(std::int32_t name) const {
    return memory_.block(owner_.number(name));
  }
  [[nodiscard]] OptionalIndex owner_of(std::span<const std::int32_t> blocks) const;
  /// Whether this rank has KV that `owner` owns. `owner` absent: every rank has a part of the KV.
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
  /// Cancels all transfers. Returns whether all have ended in time. Throws the transport's errors.
  bool give_up();

  BlockTransport& transport_;
  engine::KvMemory memory_;
  std::vector<std::span<std::byte>> regions_;  ///< separately registered parts of the memory
  int index_;                 ///< index of this rank among the ranks that have parts of the same KV
  int tp_;                    ///< number of these ranks
  policy::GroupRanks group_;  ///< this rank's group; set if `leader` was given
  kv::BlockOwner owner_;      ///< owner of this rank's blocks
  Recorder recorder_;
  kv::Store* store_;
  std::map<std::uint64_t, UnderWay> under_way_;
  double storing_seconds_ = 0;
  double restoring_seconds_ = 0;
};

}  // namespace paceline::roles
