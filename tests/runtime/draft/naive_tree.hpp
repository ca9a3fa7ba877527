// The suffix tree's reference: a table that counts every substring, and drafts by its definition.
#pragma once

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/draft/suffix_speculation.hpp"

namespace paceline::draft {

class NaiveTree {
 public:
  using Text = std::vector<TokenId>;

  NaiveTree(int depth, const std::vector<Text>& sequences) : depth_(depth) {
    for (const Text& text : sequences) {
      for (std::size_t first = 0; first < text.size(); ++first) {
        const std::size_t longest = std::min<std::size_t>(depth, text.size() - first);
        for (std::size_t n = 1; n <= longest; ++n) {
          ++counts_[Text(text.begin() + first, text.begin() + first + n)];
        }
      }
    }
    for (const auto& [text, count] : counts_) {
      if (text.size() > 1) next_[Text(text.begin(), text.end() - 1)][text.back()] = count;
    }
  }

  [[nodiscard]] const std::map<Text, std::uint32_t>& counts() const { return counts_; }

  [[nodiscard]] std::uint32_t continued(const Text& text) const {
    std::uint32_t sum = 0;
    const auto next = next_.find(text);
    if (next == next_.end()) return 0;
    for (const auto& [token, count] : next->second) sum += count;
    return sum;
  }

  /// Nodes of the compressed tree: the root, and every string that its one longer string, if it has
  /// just one, does not equal in count.
  [[nodiscard]] std::size_t nodes() const {
    std::size_t nodes = 1;
    for (const auto& [text, count] : counts_) {
      const auto next = next_.find(text);
      nodes +=
          next == next_.end() || next->second.size() != 1 || next->second.begin()->second != count;
    }
    return nodes;
  }

  struct Path {
    Text text;  ///< match and drafted tokens
    double probability = 1;
    std::int32_t parent = -1;
    int length = 0;
  };
  struct Draft {
    std::vector<Path> paths;  ///< one a token
    int match = 0;
    double score = 0;
  };

  [[nodiscard]] Draft draft(const Text& text, const SpeculationOptions& o) const {
    const int cap = std::min(
        {o.max_match, std::max(1, depth_ - o.limits.max_length), static_cast<int>(text.size())});
    int longest = 0;
    for (int m = cap; m >= 1 && longest == 0; --m) {
      const auto next = next_.find(Text(text.end() - m, text.end()));
      if (next == next_.end()) continue;
      if (!next->second.empty()) longest = m;
    }
    if (longest < std::max(1, o.min_match)) return {};
    Draft draft = grow(Text(text.end() - longest, text.end()),
                       std::min(o.limits.max_length, longest + o.offset), o);
    draft.match = longest;
    return draft;
  }

 private:
  static bool before(const Path& a, const Path& b) {
    if (a.probability != b.probability) return a.probability > b.probability;
    if (a.parent != b.parent) return a.parent < b.parent;
    return a.text.back() < b.text.back();
  }

  [[nodiscard]] std::vector<Path> expand(const Path& path, std::int32_t index,
                                         const SpeculationOptions& o) const {
    std::vector<Path> all;
    const auto next = next_.find(path.text);
    if (next == next_.end()) return all;
    const double total = continued(path.text);
    for (const auto& [token, count] : next->second) {
      Path longer = path;
      longer.text.push_back(token);
      longer.probability *= count / total;
      longer.parent = index;
      ++longer.length;
      if (longer.probability >= o.min_probability) all.push_back(longer);
    }
    std::sort(all.begin(), all.end(), before);
    if (all.size() > static_cast<std::size_t>(o.limits.paths)) all.resize(o.limits.paths);
    return all;
  }

  [[nodiscard]] Draft grow(const Text& match, int length, const SpeculationOptions& o) const {
    Draft draft;
    Path root;
    root.text = match;
    std::vector<Path> open = expand(root, -1, o);
    const auto room = [&] { return static_cast<int>(draft.paths.size()) < o.limits.max_tokens; };
    while (!open.empty() && room()) {
      std::sort(open.begin(), open.end(), before);
      std::vector<Path> level = open;
      level.resize(std::min<std::size_t>(open.size(), o.limits.paths));
      open.clear();
      for (const Path& path : level) {
        if (!room()) break;
        draft.paths.push_back(path);
        draft.score += path.probability;
        if (path.length == length) continue;
        for (const Path& longer :
             expand(path, static_cast<std::int32_t>(draft.paths.size()) - 1, o)) {
          open.push_back(longer);
        }
      }
    }
    return draft;
  }

  int depth_;
  std::map<Text, std::uint32_t> counts_;
  std::map<Text, std::map<TokenId, std::uint32_t>> next_;
};

/// Room for a draft.
struct DraftBuffers {
  explicit DraftBuffers(int capacity) : tokens(capacity), parents(capacity), scores(capacity) {}
  [[nodiscard]] DraftOutput output() { return {tokens, parents, scores}; }
  std::vector<TokenId> tokens;
  std::vector<std::int32_t> parents;
  std::vector<float> scores;
};

/// Every count and the shape of the tree; "" when all is right, else what is not.
inline std::string difference(const SuffixTree& tree, const NaiveTree& naive) {
  for (const auto& [text, count] : naive.counts()) {
    const auto at = tree.find(text);
    if (!at) return "a substring is missing";
    if (tree.count(*at) != count) return "a count differs";
    if (tree.continued(*at) != naive.continued(text)) return "a continued count differs";
    if (tree.inside_edge(*at)) continue;
    std::uint32_t last = UINT32_MAX;
    for (const Child& child : tree.children(*at)) {
      auto longer = text;
      longer.push_back(child.token);
      const auto known = naive.counts().find(longer);
      if (known == naive.counts().end()) return "a child that does not occur";
      if (known->second > last) return "children out of order";
      last = known->second;
    }
  }
  if (tree.nodes() != naive.nodes())
    return "the tree is not compressed, or holds more than it should";
  return "";
}

/// The draft and the naive one; "" when equal.
inline std::string difference(const DraftResult& result, const DraftOutput& output,
                              const NaiveTree::Draft& naive) {
  if (result.count != static_cast<int>(naive.paths.size())) return "lengths of drafts differ";
  if (result.count == 0) return "";
  if (result.longest != naive.match) return "matches differ";
  if (result.score != naive.score) return "scores differ";
  for (int i = 0; i < result.count; ++i) {
    const NaiveTree::Path& path = naive.paths[i];
    if (output.tokens[i] != path.text.back()) return "tokens differ";
    if (output.parents[i] != path.parent) return "parents differ";
    if (output.scores[i] != static_cast<float>(path.probability)) return "probabilities differ";
  }
  return "";
}

}  // namespace paceline::draft
