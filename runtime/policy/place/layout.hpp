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
  std::uint64_t whole_bytes = 0;   ///< bytes of weight_bytes that each rank of a group has whole
  /// Bytes of the drafters that a group's leader has, whole, in addition to its share of the model.
  std::uint64_t drafter_bytes = 0;
  int sharers = 1;  ///< ranks that map one copy of their weights if they have the same share
  std::uint64_t memory_per_rank = 0;  ///< bytes of the rank with the least; 0: unknown
  std::vector<int> node_of_rank;      ///< [ranks]
};

struct LayoutSettings {
  /// Tensor-parallel degrees. Empty: chosen here; one: the degree of all groups; several: one for
  /// each group.
  std::vector<int> verifier_tp;
  std::optional<int> verifier_groups;
  std::optional<int> drafters;
  std::string drafters_reason = {};  ///< reason for `drafters`, where layout.drafters is not set
};

struct Layout {
  Placement placement;                   ///< placement at the start of the run
  std::vector<std::string> explanation;  ///< how each choice was made, and how to override it

  [[nodiscard]] int groups() const { return static_cast<int>(placement.groups.size()); }
  [[nodiscard]] int drafters() const { return static_cast<int>(placement.drafters.size()); }
};

/// Plans groups of neighbouring ranks, so that a group stays on one node where the ranks of a node
/// are a multiple of its size. Groups of larger degrees come first, drafters last. Throws
/// UsageError when the settings ask for more ranks than there are, or for a degree that the model
/// cannot be cut into.
[[nodiscard]] Layout plan_layout(const LayoutFacts& facts, const LayoutSettings& settings);

/// Facts that decide the number of KV blocks on a rank of a group.
struct KvFacts {
  std::uint64_t block_bytes = 0;      ///< bytes of this rank's share of a block
  std::uint64_t memory_per_rank = 0;  ///< bytes left by the weights; 0: unknown
  bool shared = true;  ///< KV is in host memory, which other processes and the page cache use too
  std::int32_t max_batch = 0;
  std::int32_t blocks_per_request = 0;  ///< blocks of the longest prompt and response
  std::string remedy = {};              ///< "take ...": how a rank gets more memory
};
struct KvPlan {
  std::int32_t blocks = 0;
  bool holds_batch = true;  ///< the blocks hold max_batch requests at their longest
  std::string explanation;
};
/// Plans KV. `setting`: engine.kv_memory in bytes. Throws UsageError when not even one request
/// fits, and when the setting is more than the memory that is available.
[[nodiscard]] KvPlan plan_kv(const KvFacts& facts, std::optional<std::uint64_t> setting);

}  // namespace paceline::policy
