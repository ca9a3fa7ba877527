#include "kernels/cuda/attention_plan.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>

#include "runtime/core/error.hpp"

namespace paceline::kernels::cuda {
namespace {

constexpr int kItemWords = sizeof(AttentionItem) / sizeof(std::int32_t);
constexpr int kRowWords = sizeof(AttentionRow) / sizeof(std::int32_t);

void expect(bool condition, const std::string& what) {
  if (!condition) throw Error(ExitCode::internal, "cuda attention: " + what);
}

/// Number of tiles that hold only positions before the segment's own.
int tiles_before(const Segment& segment) { return segment.first_position / kAttentionTile; }

/// Last position that a row of the chain sees; `row` is counted from the chain's first.
int last_seen(const Chain& chain, int row) {
  return chain.seen > 0 ? chain.seen - 1 : chain.first_position + row;
}

/// Number of leading tiles, at most `most`, that lie in the same blocks for both sequences.
int tiles_shared(const Segment& a, const Segment& b, int block, int most) {
  const int blocks = (most * kAttentionTile + block - 1) / block;
  const auto [end, other] = std::mismatch(a.blocks, a.blocks + blocks, b.blocks);
  return std::min<int>(most, static_cast<int>(end - a.blocks) * block / kAttentionTile);
}

}  // namespace

int item_bucket(int count) {
  int bucket = 1;
  while (bucket < count) {
    if (bucket >= 2 && bucket / 2 * 3 >= count) return bucket / 2 * 3;
    bucket *= 2;
  }
  return count == 0 ? 0 : bucket;
}

AttentionPlanner::AttentionPlanner(const AttentionPlannerOptions& options) : options_(options) {
  expect(options.kv_heads > 0 && options.heads % options.kv_heads == 0,
         "heads are not a multiple of kv heads");
  expect(options.head_dim % kHeadDimStep == 0 && options.head_dim > 0 &&
             options.head_dim <= kMaxHeadDim,
         "heads of an unsupported size");
  expect(options.block % 16 == 0 && options.block > 0, "kv blocks must be a multiple of 16");
  group_ = options.heads / options.kv_heads;
  expect(group_ <= max_pairs(options.head_dim), std::to_string(group_) +
                                                    " query heads share a kv head; supported are " +
                                                    std::to_string(max_pairs(options.head_dim)));
}

int AttentionPlanner::most_slots(int rows, int positions) const {
  const int splits = (positions - 1) / kAttentionSplit + 1;
  return std::max(rows, std::min(options_.most_slots, rows * splits));
}

const AttentionPlan& AttentionPlanner::plan(std::span<const Segment> segments, const RowPlan& rows,
                                            const AttentionGrid& at_least) {
  row_plan_ = &rows;
  first_chain_.clear();
  for (std::size_t c = 0; const Segment& segment : segments) {
    while (c < rows.chains().size() && rows.chains()[c].first_row < segment.first_row) ++c;
    first_chain_.push_back(c);
  }
  first_chain_.push_back(rows.chains().size());
  const auto few = [this](std::size_t items) {
    return items * options_.kv_heads <= static_cast<std::size_t>(options_.few_blocks);
  };
  bool narrow = group_ <= kAttentionPairs && few(segments.size());
  if (narrow) {
    build(segments, kAttentionPairs / group_, false, false);
    narrow = few(items_[0].size());
  }
  const int rows_of_item = max_pairs(options_.head_dim) / group_;
  if (!narrow) build(segments, rows_of_item, true, false);
  if (plan_.slots > options_.most_slots) build(segments, rows_of_item, false, true);
  assemble(at_least);
  return plan_;
}

bool AttentionPlanner::folds(const Segment& segment) const {
  return all_fold_ || (segment.parents == nullptr && segment.rows >= options_.fold_rows);
}

// Sharing is worth it only if rows of several sequences fit into one item.
bool AttentionPlanner::may_share(const Segment& segment) const {
  return share_ && segment.seen == 0 && !folds(segment) && 2 * segment.rows <= rows_of_item_;
}

void AttentionPlanner::build(std::span<const Segment> segments, int rows_of_item, bool share,
                             bool all_fold) {
  rows_of_item_ = rows_of_item;
  share_ = share;
  all_fold_ = all_fold;
  items_[0].clear();
  items_[1].clear();
  rows_.clear();
  lists_.clear();
  plan_.slots = 0;

  find_groups(segments);
  const std::int64_t tile_bytes = std::int64_t{4} * kAttentionTile * options_.head_dim;  // bf16
  resume_ = share &&
            spared_tiles(segments) * options_.kv_heads * tile_bytes >= options_.second_phase_bytes;
  for (const Group& group : groups_) add_group(segments, group);
}

// Siblings become neighbours: sequences that begin in the same block. Chains come before trees, so
// that sequences that may resume from a common state are neighbours too.
void AttentionPlanner::find_groups(std::span<const Segment> segments) {
  order_.clear();
  groups_.clear();
  for (int s = 0; s < static_cast<int>(segments.size()); ++s) {
    if (segments[s].rows > 0) order_.push_back(s);
  }
  if (share_) {
    std::ranges::stable_sort(order_, [&](int a, int b) {
      const Segment& x = segments[a];
      const Segment& y = segments[b];
      if (may_share(x) != may_share(y)) return may_share(x);
      if (x.blocks[0] != y.blocks[0]) return x.blocks[0] < y.blocks[0];
      return (x.parents == nullptr) > (y.parents == nullptr);
    });
  }
  const int count = static_cast<int>(order_.size());
  for (int first = 0; first < count;) {
    const Segment& leader = segments[order_[first]];
    Group group{first, first + 1, 0, leader.parents == nullptr ? 1 : 0};
    for (; may_share(leader) && group.last < count; ++group.last) {
      const Segment& other = segments[order_[group.last]];
      if (!may_share(other)) break;
      int most = std::min(tiles_before(leader), tiles_before(other));
      if (group.shared > 0) most = std::min(most, group.shared);
      const int tiles = tiles_shared(leader, other, options_.block, most);
      // A sequence that shares much less would cost the others more than it gains.
      if (tiles < options_.shared_tiles || 2 * tiles < group.shared) break;
      group.shared = tiles;
      if (other.parents == nullptr) ++group.chains;
    }
    groups_.push_back(group);
    first = group.last;
  }
}

int AttentionPlanner::kept_tiles(const Segment& tree, std::size_t chains) const {
  const int tiles = tiles_before(tree) % kAttentionSplitTiles;
  return chains > 1 && tiles >= options_.shared_tiles ? tiles : 0;
}

int AttentionPlanner::kept_tiles(const Group& group) const {
  const int tiles = group.shared % kAttentionSplitTiles;
  return group.chains > 1 && tiles >= options_.shared_tiles ? tiles : 0;
}

std::int64_t AttentionPlanner::spared_tiles(std::span<const Segment> segments) const {
  std::int64_t spared = 0;
  for (const Group& group : groups_) {
    spared += std::int64_t{kept_tiles(group)} * (group.chains - 1);
    for (int i = group.first + group.chains; i < group.last; ++i) {
      const auto chains = static_cast<std::int64_t>(chains_of(order_[i]).size());
      spared += kept_tiles(segments[order_[i]], chains) * (chains - 1);
    }
  }
  return spared;
}

std::span<const Chain> AttentionPlanner::chains_of(int segment) const {
  const std::size_t first = first_chain_[segment];
  return row_plan_->chains().subspan(first, first_chain_[segment + 1] - first);
}

void AttentionPlanner::add_group(std::span<const Segment> segments, const Group& group) {
  const int whole = group.shared / kAttentionSplitTiles * kAttentionSplitTiles;
  const int kept = resume_ ? kept_tiles(group) : 0;
  const int first_row = static_cast<int>(rows_.size());
  int rows_of_chains = 0;
  members_.clear();
  for (int i = group.first; i < group.last; ++i) {
    const Segment& segment = segments[order_[i]];
    const bool is_chain = i < group.first + group.chains;
    members_.push_back(add_member(segment, chains_of(order_[i]), kept > 0 && is_chain));
    if (is_chain) rows_of_chains += segment.rows;
  }
  const int table = members_[0].table;
  const int rows = static_cast<int>(rows_.size()) - first_row;
  for (int tile = 0; tile < whole; tile += kAttentionSplitTiles) {
    add_prefix(first_row, rows, tile, kAttentionSplitTiles, table, AttentionEnd::split);
  }
  if (kept > 0) {
    add_prefix(first_row, rows_of_chains, whole, kept, table, AttentionEnd::resume);
  }
  for (const Member& member : members_) {
    if (member.is_tree()) {
      add_tree(member, whole);
    } else {
      add_chain(member, whole + kept);
    }
  }
}

AttentionPlanner::Member AttentionPlanner::add_member(const Segment& segment,
                                                      std::span<const Chain> chains,
                                                      bool keeps_state) {
  const Member member{&segment, static_cast<int>(lists_.size()), static_cast<int>(rows_.size()),
                      chains};
  const int positions =
      std::max(segment.first_position + segment.before + segment.rows, segment.seen);
  lists_.insert(lists_.end(), segment.blocks,
                segment.blocks + (positions + options_.block - 1) / options_.block);
  for (int i = 0; i < segment.rows; ++i) {
    AttentionRow row;
    row.row = segment.first_row + i;
    row.position = segment.seen > 0 ? segment.seen - 1 : row_plan_->rows()[row.row].position;
    const int splits = row.position / kAttentionSplit + 1;
    const bool folding = folds(segment);
    if (splits > 1 || keeps_state || (member.is_tree() && !folding)) {
      row.slot = plan_.slots;
      plan_.slots += folding ? 1 : splits;
    }
    rows_.push_back(row);
  }
  return member;
}

void AttentionPlanner::add_prefix(int first_row, int rows, int first_tile, int tiles, int table,
                                  AttentionEnd end) {
  for (int row = 0; row < rows; row += rows_of_item_) {
    AttentionItem item;
    item.first_row = first_row + row;
    item.rows = std::min(rows_of_item_, rows - row);
    item.first_tile = first_tile;
    item.tiles = tiles;
    item.visible_tiles = first_tile + tiles;
    item.last_position = item.visible_tiles * kAttentionTile - 1;
    item.table = table;
    item.path = -1;
    item.end = end;
    add_item(item);
  }
}

int AttentionPlanner::add_path(const Chain& chain) {
  if (chain.path == nullptr) return -1;
  const int path = static_cast<int>(lists_.size());
  lists_.insert(lists_.end(), chain.path,
                chain.path + (chain.first_position - chain.base + chain.rows));
  return path;
}

void AttentionPlanner::add_folding(const Chain& chain, int first_row, int table) {
  const int path = add_path(chain);
  for (int row = 0; row < chain.rows; row += rows_of_item_) {
    AttentionItem item;
    item.first_row = first_row + row;
    item.rows = std::min(rows_of_item_, chain.rows - row);
    item.last_position = last_seen(chain, row + item.rows - 1);
    item.tiles = item.last_position / kAttentionTile + 1;
    item.visible_tiles = (last_seen(chain, row) + 1) / kAttentionTile;
    item.table = table;
    item.path = path;
    item.path_base = chain.base;
    item.end = AttentionEnd::fold;
    add_item(item);
  }
}

void AttentionPlanner::add_causal(const Chain& chain, int first_row, int first_tile, int table) {
  const int path = add_path(chain);
  for (int row = 0; row < chain.rows; row += rows_of_item_) {
    const int end = std::min(row + rows_of_item_, chain.rows);
    const int last_position = last_seen(chain, end - 1);
    const int tiles = last_position / kAttentionTile + 1;
    for (int tile = first_tile; tile < tiles;) {
      const int split = tile / kAttentionSplitTiles;
      const int next = std::min(tiles, (split + 1) * kAttentionSplitTiles);
      // This is the first row that sees a position of the split.
      const int from =
          chain.seen > 0 ? row : std::max(row, split * kAttentionSplit - chain.first_position);
      AttentionItem item;
      item.first_row = first_row + from;
      item.rows = end - from;
      item.first_tile = tile;
      item.tiles = next - tile;
      item.visible_tiles = (last_seen(chain, from) + 1) / kAttentionTile;
      item.last_position = last_position;
      item.table = table;
      item.path = path;
      item.path_base = chain.base;
      item.resumes = tile % kAttentionSplitTiles != 0 ? 1 : 0;
      add_item(item);
      tile = next;
    }
  }
}

void AttentionPlanner::add_chain(const Member& member, int first_tile) {
  if (folds(*member.segment)) {
    add_folding(member.chains[0], member.first_row, member.table);
  } else {
    add_causal(member.chains[0], member.first_row, first_tile, member.table);
  }
}

void AttentionPlanner::add_tree(const Member& member, int first_tile) {
  const Segment& segment = *member.segment;
  const auto row_of = [&](const Chain& chain) {
    return member.first_row + chain.first_row - segment.first_row;
  };
  if (folds(segment)) {
    for (const Chain& chain : member.chains) add_folding(chain, row_of(chain), member.table);
    return;
  }
  const int before = tiles_before(segment);
  const int whole = before / kAttentionSplitTiles * kAttentionSplitTiles;
  for (int tile = first_tile; tile < whole; tile += kAttentionSplitTiles) {
    add_prefix(member.first_row, segment.rows, tile, kAttentionSplitTiles, member.table,
               AttentionEnd::split);
  }
  const int kept = resume_ ? kept_tiles(segment, member.chains.size()) : 0;
  if (kept > 0) {
    add_prefix(member.first_row, segment.rows, whole, kept, member.table, AttentionEnd::resume);
  }
  for (const Chain& chain : member.chains) {
    add_causal(chain, row_of(chain), whole + kept, member.table);
  }
}

// Puts the lists into one array. The longest items come first, so that the last ones to run are
// short.
void AttentionPlanner::assemble(const AttentionGrid& at_least) {
  int rows = 0;  // number of rows in the largest item
  for (int phase = 0; phase < 2; ++phase) {
    std::ranges::stable_sort(items_[phase], std::greater{}, &AttentionItem::tiles);
    for (const AttentionItem& item : items_[phase]) rows = std::max(rows, item.rows);
    plan_.grid.items[phase] =
        std::max(item_bucket(static_cast<int>(items_[phase].size())), at_least.items[phase]);
  }
  const bool pinned = at_least.items[0] > 0;
  plan_.grid.narrow = rows * group_ <= kAttentionPairs && (at_least.narrow || !pinned);

  const std::size_t first_row =
      static_cast<std::size_t>(plan_.grid.items[0] + plan_.grid.items[1]) * kItemWords;
  const std::size_t first_list = first_row + rows_.size() * kRowWords;
  plan_.words.resize(first_list + lists_.size());
  const auto put = [this](std::size_t word, const auto& values, int count) {
    using Value = typename std::decay_t<decltype(values)>::value_type;
    std::int32_t* to = plan_.words.data() + word;
    if (!values.empty()) std::memcpy(to, values.data(), values.size() * sizeof(Value));
    const Value empty{};
    for (int i = static_cast<int>(values.size()); i < count; ++i) {
      std::memcpy(to + i * (sizeof(Value) / 4), &empty, sizeof(Value));
    }
  };
  for (int phase = 0; phase < 2; ++phase) {
    for (AttentionItem& item : items_[phase]) {
      item.first_row = static_cast<std::int32_t>(first_row) + item.first_row * kRowWords;
      item.table += static_cast<std::int32_t>(first_list);
      item.path = item.path < 0 ? 0 : item.path + static_cast<std::int32_t>(first_list);
    }
    put(plan_.first_item(phase), items_[phase], plan_.grid.items[phase]);
  }
  put(first_row, rows_, 0);
  put(first_list, lists_, 0);
}

}  // namespace paceline::kernels::cuda
