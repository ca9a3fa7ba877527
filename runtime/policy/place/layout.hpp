// Assignment of roles to ranks: a pure function of facts that every rank has, so that all ranks
// agree without talking.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/policy/place/placement.hpp"

namespace paceline::policy {

struct LayoutFacts {
  int ranks = 1;
  int segments = 1;                ///< canonical K-segments of the model: bound on the TP degree
  std::uint64_t weight_bytes = 0;  ///< bytes of the whole model in the compute dtype
  std::uint64_t whole_bytes = 0;   ///< those of them that each rank of a group has, not a part
  /// Bytes of what a group's leader has beside its share of the model: its own drafters, whole.
  std::uint64_t drafter_bytes = 0;
  int sharers = 1;  ///< ranks that map one copy of their weights if they have the same share
  std::uint64_t memory_per_rank = 0;  ///< least of all ranks; 0: unknown
  std::vector<int> node_of_rank;      ///< [ranks]
};

struct LayoutSettings {
  /// Empty: chosen; one degree: of all groups; several: of each group.
  std::vector<int> verifier_tp;
  std::optional<int> verifier_groups;
  std::optional<int> drafters;
  std::string drafters_reason = {};  ///< why so many, where layout.drafters is not set
};

struct Layout {
  Placement placement;                   ///< at the start
  std::vector<std::string> explanation;  ///< how each choice was made, and its override

  [[nodiscard]] int groups() const { return static_cast<int>(placement.groups.size()); }
  [[nodiscard]] int drafters() const { return static_cast<int>(placement.drafters.size()); }
};

/// Plans groups of neighbouring ranks, so that a group stays on one node where the ranks of a node
/// are a multiple of its size. Groups of larger degrees come first, drafters last. Throws
/// UsageError when the settings ask for more ranks than there are, or for a degree that the model
/// cannot be cut into.
[[nodiscard]] Layout plan_layout(const LayoutFacts& facts, const LayoutSettings& settings);

/// Facts that decide the KV blocks of a group's rank.
struct KvFacts {
  std::uint64_t block_bytes = 0;      ///< bytes of this rank's share of a block
  std::uint64_t memory_per_rank = 0;  ///< available beside the weights; 0: unknown
  bool shared = true;  ///< host memory, shared with other processes and the page cache
  std::int32_t max_batch = 0;
  std::int32_t blocks_per_request = 0;  ///< at the longest prompt and response
  std::string remedy = {};              ///< "take ...": how a rank gets more memory
};
struct KvPlan {
  std::int32_t blocks = 0;
  bool holds_batch = true;  ///< holds max_batch requests at their longest
  std::string explanation;
};
/// Plans KV. `setting`: engine.kv_memory in bytes. Throws UsageError when not even one request
/// fits, and when more is asked for than there is.
[[nodiscard]] KvPlan plan_kv(const KvFacts& facts, std::optional<std::uint64_t> setting);

}  // namespace paceline::policy
