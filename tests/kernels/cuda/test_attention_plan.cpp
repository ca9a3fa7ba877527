// The planner of attention on CUDA: whatever it shares, each row is given each tile of its keys
// once, in order, from where the row's own keys lie.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "kernels/cuda/attention_plan.hpp"

namespace paceline::kernels::cuda {
namespace {

/// Segments with what they point to, and the pool slot of each key of each row.
struct Batch {
  int block = 16;
  std::vector<std::vector<std::int32_t>> tables;
  std::vector<std::vector<std::int32_t>> parents;
  std::vector<Segment> segments;
  std::vector<std::vector<std::int64_t>> keys;  ///< [rows][position + 1] block * positions + slot
  int rows = 0;
  int next_block = 1;

  /// `shared`: blocks that are those of the segment before.
  void add(int first_position, int row_count, int shared = 0,
           std::vector<std::int32_t> parents_of = {}) {
    std::vector<std::int32_t> table;
    const int blocks = (first_position + row_count + block - 1) / block;
    for (int b = 0; b < blocks; ++b) {
      table.push_back(b < shared ? tables.back()[b] : next_block++);
    }
    for (int i = 0; i < row_count; ++i) {
      std::vector<int> own;  // rows of the segment that it sees
      if (parents_of.empty()) {
        for (int r = 0; r <= i; ++r) own.push_back(r);
      } else {
        for (int r = i; r >= 0; r = parents_of[r]) own.insert(own.begin(), r);
      }
      std::vector<std::int64_t> of_row;
      for (int p = 0; p < first_position + static_cast<int>(own.size()); ++p) {
        const int at = p < first_position ? p : first_position + own[p - first_position];
        of_row.push_back(static_cast<std::int64_t>(table[at / block]) * block + at % block);
      }
      keys.push_back(of_row);
    }
    segments.push_back({rows, row_count, first_position, nullptr, nullptr});
    tables.push_back(table);
    parents.push_back(parents_of);
    rows += row_count;
  }
  /// Sets the pointers once all segments are there.
  RowPlan finish() {
    for (std::size_t s = 0; s < segments.size(); ++s) {
      segments[s].blocks = tables[s].data();
      segments[s].parents = parents[s].empty() ? nullptr : parents[s].data();
    }
    tokens.assign(rows, 0);
    kernels::Batch batch;
    batch.tokens = tokens;
    batch.segments = segments;
    batch.kv.block = block;
    batch.vocab = 1;
    batch.positions = 1 << 20;
    RowPlan plan;
    plan.set(batch);
    return plan;
  }
  std::vector<TokenId> tokens;
};

template <class T>
T read(const AttentionPlan& plan, std::size_t word) {
  EXPECT_LE(word + sizeof(T) / 4, plan.words.size());
  EXPECT_EQ(word * 4 % alignof(T), 0U);
  T value;
  std::memcpy(static_cast<void*>(&value), plan.words.data() + word, sizeof(T));
  return value;
}

struct Counts {
  int items[2] = {0, 0};
  int tiles = 0;  ///< walked by all items
};

/// Walks the plan as the kernels do and checks that every row ends as it should.
Counts check(const AttentionPlan& plan, const Batch& batch,
             const AttentionPlannerOptions& options) {
  const int group = options.heads / options.kv_heads;
  Counts counts;
  std::map<int, std::pair<int, int>> states;  // slot: row, tiles in the state kept there
  std::map<int, int> folded;                  // slot: row
  std::map<int, int> ended;                   // row: splits
  std::set<int> done;                         // rows with a result
  for (int phase = 0; phase < 2; ++phase) {
    std::map<int, std::pair<int, int>> resumable = states;
    for (int i = 0; i < plan.grid.items[phase]; ++i) {
      const auto item =
          read<AttentionItem>(plan, plan.first_item(phase) + i * sizeof(AttentionItem) / 4);
      if (item.tiles == 0) continue;
      ++counts.items[phase];
      counts.tiles += item.tiles;
      EXPECT_EQ(item.resumes, phase);
      const int end_tile = item.first_tile + item.tiles;
      const bool folds = item.end == AttentionEnd::fold;
      const int most = plan.grid.narrow ? kAttentionPairs : max_pairs(options.head_dim);
      EXPECT_LE(item.rows * group, most);
      EXPECT_GT(item.rows, 0);
      const int split = item.first_tile / kAttentionSplitTiles;
      if (!folds) {
        EXPECT_EQ((end_tile - 1) / kAttentionSplitTiles, split) << "an item crosses splits";
      } else {
        EXPECT_EQ(item.first_tile, 0);
      }
      EXPECT_EQ(item.first_tile % kAttentionSplitTiles != 0, item.resumes != 0);
      int last_seen = -1;
      for (int r = 0; r < item.rows; ++r) {
        const auto row = read<AttentionRow>(plan, item.first_row + r * sizeof(AttentionRow) / 4);
        const auto& keys = batch.keys.at(row.row);
        EXPECT_EQ(row.position + 1, static_cast<int>(keys.size()));
        EXPECT_TRUE(folds || row.position >= split * kAttentionSplit);
        EXPECT_GE(row.position + 1, std::min(item.visible_tiles, end_tile) * kAttentionTile);
        last_seen = std::max(last_seen, row.position);
        for (int p = item.first_tile * kAttentionTile;
             p <= std::min(row.position, end_tile * kAttentionTile - 1); ++p) {
          const bool on_path = item.path != 0 && p >= item.path_base;
          const int at = on_path ? plan.words.at(item.path + p - item.path_base) : p;
          const std::int64_t slot =
              static_cast<std::int64_t>(plan.words.at(item.table + at / batch.block)) *
                  batch.block +
              at % batch.block;
          EXPECT_EQ(slot, keys[p]) << "row " << row.row << " position " << p;
        }
        if (item.resumes != 0) {
          EXPECT_EQ(resumable.at(row.slot + split), std::pair(row.row, item.first_tile));
        }
        const int last_split = row.position / kAttentionSplit;
        if (folds) {
          EXPECT_TRUE(last_split == 0 || folded.emplace(row.slot, row.row).second);
          EXPECT_TRUE(done.insert(row.row).second);
        } else if (item.end == AttentionEnd::resume || last_split > 0) {
          EXPECT_GE(row.slot, 0);
          EXPECT_LT(row.slot + split, plan.slots);
          if (item.resumes == 0) {
            EXPECT_FALSE(states.contains(row.slot + split));
          }
          states[row.slot + split] = {row.row,
                                      std::min(end_tile, row.position / kAttentionTile + 1)};
          if (item.end == AttentionEnd::split && ++ended[row.row] > last_split) {
            // The last of them folds the states of all.
            EXPECT_TRUE(done.insert(row.row).second);
            for (int s = 0; s <= last_split; ++s) {
              const int tiles =
                  std::min((s + 1) * kAttentionSplitTiles, row.position / kAttentionTile + 1);
              EXPECT_EQ(states.at(row.slot + s), std::pair(row.row, tiles));
            }
          }
        } else {
          EXPECT_TRUE(done.insert(row.row).second);
        }
        // Unless another item goes on, the row has seen all of the split.
        if (item.end == AttentionEnd::split) {
          EXPECT_TRUE(end_tile * kAttentionTile > row.position ||
                      end_tile % kAttentionSplitTiles == 0);
        }
      }
      EXPECT_GE(item.last_position, std::min(last_seen, end_tile * kAttentionTile - 1));
      EXPECT_LE(item.last_position, last_seen) << "would read what no row sees";
    }
  }
  EXPECT_EQ(static_cast<int>(done.size()), batch.rows) << "rows without a result";
  for (const auto& [slot, row] : folded) EXPECT_FALSE(states.contains(slot));
  return counts;
}

AttentionPlannerOptions options_of(int heads, int kv_heads, int head_dim, int block) {
  AttentionPlannerOptions options;
  options.heads = heads;
  options.kv_heads = kv_heads;
  options.head_dim = head_dim;
  options.block = block;
  return options;
}

std::vector<std::int32_t> random_tree(std::mt19937& random, int rows) {
  std::vector<std::int32_t> parents{-1};
  std::vector<std::int32_t> path{0};
  for (int row = 1; row < rows; ++row) {
    for (int up = static_cast<int>(random() % 4) - 1; up > 0 && path.size() > 1; --up) {
      path.pop_back();
    }
    parents.push_back(path.back());
    path.push_back(row);
  }
  return parents;
}

TEST(AttentionPlan, EveryRowIsGivenItsKeysOnceAndInOrder) {
  std::mt19937 random(1);
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  int folding = 0;  // plans without room for split states
  for (int round = 0; round < 200; ++round) {
    Batch batch;
    batch.block = std::array{16, 32, 48, 128}[round % 4];
    constexpr std::array<std::tuple<int, int, int>, 4> kShapes{
        {{14, 2, 64}, {28, 4, 128}, {4, 4, 80}, {8, 1, 256}}};
    const auto [heads, kv_heads, d] = kShapes[round / 4 % 4];
    const int groups = 1 + below(5);
    for (int g = 0; g < groups; ++g) {
      const int prompt = below(3) == 0 ? below(2500) : below(200);
      const int siblings = 1 + below(6);
      for (int s = 0; s < siblings; ++s) {
        const int shared = s == 0 ? 0 : prompt / batch.block;
        const int first = prompt + below(3) * below(700);
        switch (below(4)) {
          case 0:
            batch.add(first, 1 + below(round % 3 == 0 ? 300 : 6), shared);
            break;
          case 1: {
            const int count = 1 + below(40);
            batch.add(first, count, shared, random_tree(random, count));
            break;
          }
          default:
            batch.add(first, 1, shared);
        }
      }
    }
    AttentionPlannerOptions options = options_of(heads, kv_heads, d, batch.block);
    options.few_blocks = std::array{0, 40, 132}[round % 3];
    options.shared_tiles = 1 + below(5);
    options.second_phase_bytes = below(2) == 0 ? 0 : 1 << 20;
    options.fold_rows = below(2) == 0 ? 64 : 8;
    if (below(3) == 0) options.most_slots = below(2) * 50;
    const RowPlan rows = batch.finish();
    AttentionPlanner planner(options);
    const AttentionPlan plan = planner.plan(batch.segments, rows);
    check(plan, batch, options);
    EXPECT_LE(plan.slots, std::max(options.most_slots, batch.rows));
    folding += plan.slots > 0 && options.most_slots == 0 ? 1 : 0;
    EXPECT_LE(plan.slots, planner.most_slots(batch.rows, 5000));

    // A captured graph's grid is kept.
    AttentionGrid larger = plan.grid;
    larger.items[0] += 5;
    larger.items[1] += 3;
    const AttentionPlan padded = planner.plan(batch.segments, rows, larger);
    EXPECT_EQ(padded.grid, larger);
    check(padded, batch, options);
    if (HasFailure()) FAIL() << "round " << round;
  }
  EXPECT_GE(folding, 5);
}

TEST(AttentionPlan, SiblingsWalkSharedBlocksTogether) {
  // 16 siblings, 7 heads of a kv head: 9 rows an item, so 2 for the shared tiles.
  Batch batch;
  const int prompt = (kAttentionSplitTiles + 2) * kAttentionTile;
  for (int s = 0; s < 16; ++s) batch.add(prompt + 10, 1, s == 0 ? 0 : prompt / batch.block);
  AttentionPlannerOptions options = options_of(28, 4, 128, batch.block);
  options.few_blocks = 0;
  options.second_phase_bytes = 0;
  AttentionPlanner planner(options);
  const RowPlan rows = batch.finish();
  const AttentionPlan shared = planner.plan(batch.segments, rows);
  const Counts counts = check(shared, batch, options);
  EXPECT_EQ(counts.items[0], 2 + 2);
  EXPECT_EQ(counts.items[1], 16);
  EXPECT_EQ(counts.tiles, 2 * (kAttentionSplitTiles + 2) + 16);
  EXPECT_FALSE(shared.grid.narrow);

  // 15 x 2 tiles of 4 kv heads, 4 MB, are not worth a second launch: the whole split alone is
  // shared.
  options.second_phase_bytes = AttentionPlannerOptions{}.second_phase_bytes;
  AttentionPlanner once(options);
  const Counts counts_once = check(once.plan(batch.segments, rows), batch, options);
  EXPECT_EQ(counts_once.items[0], 2 + 16);
  EXPECT_EQ(counts_once.items[1], 0);
  EXPECT_EQ(counts_once.tiles, 2 * kAttentionSplitTiles + 16 * 3);

  // Where the device has room for all of them at once, each is on its own.
  options.few_blocks = 132;
  AttentionPlanner few(options);
  const AttentionPlan alone = few.plan(batch.segments, rows);
  const Counts counts_alone = check(alone, batch, options);
  EXPECT_EQ(counts_alone.items[0], 32);
  EXPECT_EQ(counts_alone.items[1], 0);
  EXPECT_TRUE(alone.grid.narrow);
}

TEST(AttentionPlan, TreesWalkWhatIsBeforeThemOnce) {
  Batch batch;
  // Three paths of two rows under the first one.
  batch.add((kAttentionSplitTiles + 2) * kAttentionTile + 3, 7, 0, {-1, 0, 1, 0, 3, 0, 5});
  AttentionPlannerOptions options = options_of(8, 1, 128, batch.block);
  options.few_blocks = 0;
  options.second_phase_bytes = 0;
  AttentionPlanner planner(options);
  const RowPlan rows = batch.finish();
  const Counts counts = check(planner.plan(batch.segments, rows), batch, options);
  EXPECT_EQ(counts.items[0], 2);
  EXPECT_EQ(counts.items[1], 3);
  EXPECT_EQ(counts.tiles, kAttentionSplitTiles + 2 + 3);
}

TEST(AttentionPlan, OneRequestKeepsManyMultiprocessorsAtWork) {
  Batch batch;
  batch.add(999, 1);
  const AttentionPlannerOptions options = options_of(28, 4, 128, batch.block);
  AttentionPlanner planner(options);
  const RowPlan rows = batch.finish();
  const AttentionPlan plan = planner.plan(batch.segments, rows);
  EXPECT_EQ(check(plan, batch, options).items[0] * options.kv_heads, 16);
}

TEST(AttentionPlan, PiecesOfPromptsNeedOneStateARow) {
  Batch batch;
  batch.add(5000, 256);
  AttentionPlannerOptions options = options_of(28, 4, 128, batch.block);
  AttentionPlanner planner(options);
  const RowPlan rows = batch.finish();
  const AttentionPlan plan = planner.plan(batch.segments, rows);
  check(plan, batch, options);
  EXPECT_EQ(plan.slots, 256);
}

TEST(AttentionPlan, BucketsAreFewAndLargeEnough) {
  std::set<int> items;
  for (int n = 1; n <= 4096; ++n) {
    EXPECT_GE(item_bucket(n), n);
    EXPECT_LE(item_bucket(n), n + n / 2);
    EXPECT_EQ(item_bucket(item_bucket(n)), item_bucket(n));
    items.insert(item_bucket(n));
  }
  EXPECT_EQ(items.size(), 24U);
  EXPECT_EQ(item_bucket(0), 0);
}

TEST(AttentionPlan, RefusesShapesItCannotRun) {
  EXPECT_ANY_THROW(AttentionPlanner(options_of(5, 2, 64, 16)));
  EXPECT_ANY_THROW(AttentionPlanner(options_of(4, 2, 100, 16)));
  EXPECT_ANY_THROW(AttentionPlanner(options_of(4, 2, 272, 16)));
  EXPECT_ANY_THROW(AttentionPlanner(options_of(4, 2, 64, 24)));
  EXPECT_ANY_THROW(AttentionPlanner(options_of(65, 1, 64, 16)));
  EXPECT_ANY_THROW(AttentionPlanner(options_of(33, 1, 256, 16)));
}

}  // namespace
}  // namespace paceline::kernels::cuda
