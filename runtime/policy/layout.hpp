// How ranks become roles. A pure function of facts that every rank has, so that all ranks agree
// without talking.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/role.hpp"

namespace paceline::policy {

struct LayoutFacts {
  int ranks = 1;
  int segments = 1;                   ///< canonical K-segments of the model: bound on the TP degree
  std::uint64_t weight_bytes = 0;     ///< of the whole model in the compute dtype
  std::uint64_t memory_per_rank = 0;  ///< least of all ranks; 0: unknown
  std::vector<int> node_of_rank;      ///< [ranks]
};

struct LayoutSettings {
  std::optional<int> verifier_tp;
  std::optional<int> verifier_groups;
  std::optional<int> drafters;
  std::string drafters_reason = {};  ///< where layout.drafters does not say it: why so many
};

struct Layout {
  int tp = 1;
  int groups = 1;
  int drafters = 0;
  std::vector<Role> role;  ///< [ranks]
  std::vector<int> group;  ///< [ranks] verifier group, -1 when none
  std::vector<std::string>
      explanation;  ///< how each choice was made and which setting overrides it

  [[nodiscard]] int leader(int group_index) const { return group_index * tp; }
  /// Rank of a drafter: they come last.
  [[nodiscard]] int drafter(int index) const {
    return static_cast<int>(role.size()) - drafters + index;
  }
};

/// Groups are neighbouring ranks, so that a group stays on one node where the ranks of a node are a
/// multiple of its size. Throws UsageError when the settings ask for more ranks than there are, or
/// for a degree the model cannot be cut into.
[[nodiscard]] Layout plan_layout(const LayoutFacts& facts, const LayoutSettings& settings);

/// KV blocks a rank of a group gets, and why.
struct KvFacts {
  std::uint64_t block_bytes = 0;      ///< of this rank's share of a block
  std::uint64_t memory_per_rank = 0;  ///< available beside the weights; 0: unknown
  bool shared = true;                 ///< with other processes and the page cache: host memory
  std::int32_t max_batch = 0;
  std::int32_t blocks_per_request = 0;  ///< at the longest prompt and response
};
struct KvPlan {
  std::int32_t blocks = 0;
  std::string explanation;
};
/// `setting`: engine.kv_memory in bytes. Throws UsageError when not even one request fits.
[[nodiscard]] KvPlan plan_kv(const KvFacts& facts, std::optional<std::uint64_t> setting);

}  // namespace paceline::policy
