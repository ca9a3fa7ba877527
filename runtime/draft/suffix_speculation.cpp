#include "runtime/draft/suffix_speculation.hpp"

#include <algorithm>
#include <optional>

namespace paceline::draft {
namespace {

using State = SpeculationScratch::State;

/// The order in which paths are preferred. Ties go to the path drafted first, then the lower token.
bool before(const State& a, const State& b) {
  if (a.probability != b.probability) return a.probability > b.probability;
  if (a.parent != b.parent) return a.parent < b.parent;
  return a.token < b.token;
}

/// Appends to `next` the best continuations of `from`, at most options.limits.paths.
void expand(const SuffixTree& tree, const SpeculationOptions& options, const State& from,
            std::int32_t from_index, std::vector<State>& next) {
  if (tree.inside_edge(from.at)) {
    if (from.probability < options.min_probability) return;
    next.push_back({{from.at.node, from.at.offset + 1},
                    from.probability * static_cast<double>(options.trust),
                    tree.edge_token(from.at),
                    from_index,
                    from.length + 1});
    return;
  }
  const auto total = static_cast<double>(tree.continued(from.at));
  const auto first = static_cast<std::ptrdiff_t>(next.size());
  const auto paths = static_cast<std::size_t>(options.limits.paths);
  for (const Child& child : tree.children(from.at)) {
    const SuffixTree::Cursor at{child.node, 1};
    const State state{
        at, from.probability * (tree.count(at) / total) * static_cast<double>(options.trust),
        child.token, from_index, from.length + 1};
    if (state.probability < options.min_probability) return;
    if (next.size() - first == paths) {
      // Children are in order of falling count, so after a worse child no better one follows. Of
      // equal ones the lowest tokens are kept.
      if (state.probability < next.back().probability) return;
      if (!before(state, next.back())) continue;
      next.pop_back();
    }
    next.insert(std::upper_bound(next.begin() + first, next.end(), state, before), state);
  }
}

/// Grows the draft below `start`: at most `length` levels and `capacity` tokens.
DraftResult grow(const SuffixTree& tree, SuffixTree::Cursor start, int length, int capacity,
                 const SpeculationOptions& options, const DraftOutput& output,
                 SpeculationScratch& scratch) {
  DraftResult result;
  const auto emit = [&](const State& state) {
    output.set(result.count, state.token, state.parent, static_cast<float>(state.probability));
    result.score += state.probability;
    return result.count++;
  };
  std::vector<State>& frontier = scratch.frontier;
  std::vector<State>& candidates = scratch.candidates;
  State root;
  root.at = start;
  candidates.clear();
  expand(tree, options, root, -1, candidates);
  for (int depth = 1; depth <= length && !candidates.empty() && result.count < capacity; ++depth) {
    if (candidates.size() > 1) std::sort(candidates.begin(), candidates.end(), before);
    const auto kept = std::min({candidates.size(), static_cast<std::size_t>(options.limits.paths),
                                static_cast<std::size_t>(capacity - result.count)});
    frontier.assign(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(kept));
    candidates.clear();
    for (const State& state : frontier) {
      const std::int32_t index = emit(state);
      if (depth < length) expand(tree, options, state, index, candidates);
    }
  }
  return result;
}

/// Drafts from the longest usable match. `place(m)`: the cursor of the text's last m tokens;
/// nothing when they are not in the tree. A match is usable only if every shorter one is: bisection
/// finds it.
template <class Place>
DraftResult draft(const SuffixTree& tree, int available, const SpeculationOptions& options,
                  const DraftOutput& output, SpeculationScratch& scratch, const Place& place) {
  const int capacity = std::min(options.limits.max_tokens, output.capacity());
  if (capacity < 1 || options.limits.max_length < 1 || options.limits.paths < 1) return {};
  const auto usable = [&](int match) {
    const std::optional<SuffixTree::Cursor> at = place(match);
    return at && tree.best_next(*at) > 0;
  };
  int longest = 0;
  int beyond = std::min({available, options.max_match, longest_match(tree, options.limits)}) + 1;
  if (beyond > 1 && usable(beyond - 1)) longest = beyond - 1;
  while (beyond - longest > 1) {
    const int middle = (longest + beyond) / 2;
    (usable(middle) ? longest : beyond) = middle;
  }

  DraftResult result;
  if (longest >= std::max(1, options.min_match)) {
    const int worth = std::min(options.limits.max_length, longest + options.offset);
    result = grow(tree, *place(longest), worth, capacity, options, output, scratch);
  }
  result.longest = longest;
  return result;
}

}  // namespace

int longest_match(const SuffixTree& tree, const DraftLimits& limits) {
  return std::max(1, tree.depth() - limits.max_length);
}

DraftOutput SpeculationScratch::second(int capacity) {
  const auto size = static_cast<std::size_t>(capacity);
  if (tokens.size() < size) {
    tokens.resize(size);
    parents.resize(size);
    scores.resize(size);
  }
  return {std::span(tokens).first(size), std::span(parents).first(size),
          std::span(scores).first(size)};
}

void copy_draft(const DraftOutput& from, const DraftOutput& to, int count) {
  std::copy_n(from.tokens.begin(), count, to.tokens.begin());
  std::copy_n(from.parents.begin(), count, to.parents.begin());
  std::copy_n(from.scores.begin(), count, to.scores.begin());
}

DraftResult speculate(const SuffixTree& tree, SuffixTree::Sequence sequence,
                      const SpeculationOptions& options, const DraftOutput& output,
                      SpeculationScratch& scratch) {
  return draft(tree, tree.active(sequence), options, output, scratch,
               [&](int match) { return std::optional(tree.suffix(sequence, match)); });
}

DraftResult speculate(const SuffixTree& tree, std::span<const TokenId> text,
                      const SpeculationOptions& options, const DraftOutput& output,
                      SpeculationScratch& scratch) {
  const auto available =
      static_cast<int>(std::min<std::size_t>(text.size(), static_cast<std::size_t>(tree.depth())));
  return draft(tree, available, options, output, scratch,
               [&](int match) { return tree.find(text.last(static_cast<std::size_t>(match))); });
}

}  // namespace paceline::draft
