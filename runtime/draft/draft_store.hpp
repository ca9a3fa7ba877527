// A suffix tree for each prompt group, fed by all of the group's requests: the texts from which a
// draft client speculates (Seer, section 4.4, table 4). In addition a tree for each earlier step
// whose responses to the prompt are known.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "runtime/draft/suffix_speculation.hpp"
#include "runtime/draft/suffix_tree.hpp"

namespace paceline::draft {

/// A prompt group: RequestId::prompt. Its requests are told apart by RequestId::sample.
using GroupId = std::uint32_t;

struct StoreLimits {
  int depth = 64;                                ///< depth of the trees, tokens
  std::size_t max_bytes = std::size_t{2} << 30;  ///< most bytes of all groups together
  std::size_t max_group_bytes = std::size_t{1} << 28;
  double default_ttl = 3600;  ///< seconds, for groups that were never registered
};

/// SpeculationSlot::size of a text that no tree ends with, for instance a text that ends with
/// assumed tokens.
inline constexpr std::uint64_t kInNoTree = UINT64_MAX;

/// One request of a batch. Text and output lie in the caller's memory and are used in place.
struct SpeculationSlot {
  GroupId group = 0;
  std::uint32_t sample = 0;
  std::uint64_t size = 0;         ///< response tokens the request has, or kInNoTree
  std::span<const TokenId> text;  ///< the request's last tokens; only the last `depth` count
  SpeculationOptions options;
  DraftOutput output;
  DraftResult result;  ///< set by the call; count 0 when the group is not here or has no match
};

/// Responses of an earlier step to a group's prompt. Each follows the prompt's last tokens, by
/// which the beginning of a response is found.
struct EarlierTree {
  EarlierTree(std::uint32_t steps, int depth) : age(steps), tree(depth) {}
  struct Told {
    SuffixTree::Sequence sequence = 0;
    std::uint64_t tokens = 0;  ///< tokens of the response
  };
  std::uint32_t age;  ///< steps since, >= 1
  SuffixTree tree;
  std::map<std::uint32_t, Told> samples;  ///< by RequestId::sample
  std::uint64_t version = 0;              ///< changes with the contents; unique among all trees
};

/// Prompt tokens before a response of an earlier step in its tree: as many as a draft is long.
inline constexpr std::size_t kPromptEnd = 8;

/// Memory: a group past max_group_bytes drops its trees of earlier steps, the oldest first, and
/// then the first half of each of its texts (its tree is built anew). If all groups together are
/// past max_bytes, the group longest without an update drops its trees of earlier steps; if no
/// group has any, the group itself is dropped. Times: seconds on one clock of the caller. Not
/// thread-safe, except for const members.
class DraftStore {
 public:
  explicit DraftStore(const StoreLimits& limits);

  /// Makes the group if need be and sets its time to live: it expires `ttl` seconds after the last
  /// registration or update.
  void register_group(GroupId group, double ttl, double now, std::span<const TokenId> prompt = {});
  /// The group, if it is here, expires as if it were registered now.
  void keep(GroupId group, double now);
  /// Appends tokens [offset, offset + tokens) of a request's response. Tokens held already are
  /// skipped. On a gap (offset past the held tokens) nothing is done. Returns the number of tokens
  /// now held, dropped ones included. If it is below offset + tokens, send again from it on.
  std::uint64_t update(GroupId group, std::uint32_t sample, std::uint64_t offset,
                       std::span<const TokenId> tokens, double now);
  /// Gives memory back: the response is not expected to grow further (it may).
  void shrink(GroupId group, std::uint32_t sample);

  /// Appends tokens of a response that is generated elsewhere. Its beginning may be missing. Does
  /// nothing after a gap, or where the group is not here because its registration has expired.
  void take_in(GroupId group, std::uint32_t sample, std::uint64_t offset,
               std::span<const TokenId> tokens, double now);

  /// Takes tokens of a response of `age` steps ago that follow its first `offset`; `ended`: the
  /// response ends with them. Tokens held already are skipped. Does nothing after a gap, if the
  /// group is not here or has dropped trees, or if it has trees of kMostEarlierSteps other ages.
  void take_in_earlier(GroupId group, std::uint32_t age, std::uint32_t sample, std::uint64_t offset,
                       std::span<const TokenId> tokens, bool ended, double now);
  /// Whether the group is here with all texts of earlier steps that it has taken.
  [[nodiscard]] bool whole(GroupId group) const;

  /// Drafts for one slot. Several threads may call this at once while nobody writes.
  void speculate(SpeculationSlot& slot, SpeculationScratch& scratch) const;

  /// Removes the groups whose time is over, and returns how many.
  int expire(double now);
  /// The group's tree; nullptr: the group is not here.
  [[nodiscard]] const SuffixTree* tree(GroupId group) const;
  /// The group's trees of earlier steps, newest first.
  [[nodiscard]] std::span<const std::unique_ptr<EarlierTree>> earlier(GroupId group) const;
  [[nodiscard]] std::size_t groups() const { return groups_.size(); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  struct Sample {
    SuffixTree::Sequence sequence = 0;
    std::uint64_t forgotten = 0;  ///< response tokens before those in the tree
  };
  struct Group {
    explicit Group(int depth) : tree(std::make_unique<SuffixTree>(depth)) {}
    std::unique_ptr<SuffixTree> tree;
    std::map<std::uint32_t, Sample> samples;
    std::vector<std::unique_ptr<EarlierTree>> earlier;  ///< newest first
    bool dropped = false;                               ///< a tree was dropped since registration
    std::vector<TokenId> prompt_end;                    ///< [kPromptEnd at most]
    double ttl = 0;
    double touched = 0;
    std::size_t bytes = 0;
  };

  Group& touch(GroupId id, double ttl, double now);
  Sample& sample_of(Group& group, std::uint32_t sample, std::uint64_t forgotten);
  [[nodiscard]] static std::uint64_t held(const Group& group, const Sample& sample);
  void forget_half(Group& group);
  [[nodiscard]] static std::size_t bytes_of(const Group& group);
  void account(GroupId id, Group& group);
  void free_some(GroupId but);

  StoreLimits limits_;
  std::map<GroupId, Group> groups_;
  std::size_t bytes_ = 0;
  double first_expiry_ = 0;         ///< seconds; no group expires before this time
  std::uint64_t last_version_ = 0;  ///< last EarlierTree::version given
};

}  // namespace paceline::draft
