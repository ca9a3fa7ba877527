// Attention's work of one step, planned on the host: a list of work items, with the rows and block
// tables that they read. All are one array, which is uploaded once a step and is used in every
// layer.
//
// The result of a row (one query head at one position) does not depend on the plan. Its keys are
// cut at multiples of kAttentionSplit positions. Within a split the softmax runs online over tiles
// of kAttentionTile positions, in order, from an empty state; the splits' states are then folded in
// ascending order. The plan only assigns tiles and rows to blocks of threads, as follows.
//
//  * An item is a range of tiles walked for up to max_pairs() (row, query head of a kv head) pairs.
//    The last item to end, among those that walk a row's splits, folds their states.
//  * A chain of drafted tokens or a piece of a prompt has one item for each split and each group of
//    rows. Long pieces of prompts walk all their splits in one item instead, and fold them on the
//    way, so that they need room for only one state a row. All rows, also the rows of trees, do the
//    same if there is no room for the states of every split.
//  * Decoding siblings, whose block tables begin alike, walk shared blocks together. If these end
//    within a split, the state is kept and each sibling resumes from it. Resuming items belong to
//    the second phase, which is a launch of its own.
//  * The rows of a tree walk the tiles before its first drafted position together. The tiles from
//    there on are walked once for each path. Their keys are put in order of position, because the
//    order of keys within a product is part of the result.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/limits.hpp"
#include "kernels/row_plan.hpp"

namespace paceline::kernels::cuda {

/// Number of positions whose softmax is one chain, which is part of the definition of the result.
/// It is small so that one request with a short context keeps many multiprocessors at work: a
/// thousand positions of four kv heads are 16 items.
inline constexpr int kAttentionSplit = 256;
inline constexpr int kAttentionSplitTiles = kAttentionSplit / kAttentionTile;
/// Number of pairs of a row and a query head that the tensor cores take as one tile.
inline constexpr int kAttentionPairs = 16;

/// Use of the state (maximum, sum, weighted values) that exists at the end of a split.
enum class AttentionEnd : std::int32_t {
  split,   ///< the result of a row with one split; else kept for the row's last item to end
  resume,  ///< kept for an item of the second phase that continues it
  fold,    ///< folded into the state of the splits before, by the same item
};

/// A range of tiles and its rows. The range lies within one split, unless its end is `fold`.
struct alignas(16) AttentionItem {
  std::int32_t first_row = 0;      ///< word of the plan at which its AttentionRows begin
  std::int32_t rows = 0;           ///< number of rows; each sees a position of the tiles
  std::int32_t first_tile = 0;     ///< first tile, counted in kAttentionTile positions
  std::int32_t tiles = 0;          ///< 0: nothing to do
  std::int32_t visible_tiles = 0;  ///< number of leading tiles that every row sees whole
  std::int32_t last_position = 0;  ///< last position seen by a row; later ones are not read
  std::int32_t table = 0;          ///< word of the plan at which the block table begins
  std::int32_t path = 0;       ///< word at which the path begins; 0: positions are in their places
  std::int32_t path_base = 0;  ///< first position p that lies at path[p - path_base]
  AttentionEnd end = AttentionEnd::split;
  std::int32_t resumes = 0;  ///< 1: begins with the state kept for this split
  std::int32_t unused = 0;
};

struct alignas(16) AttentionRow {
  std::int32_t row = -1;      ///< row of the batch; -1: none
  std::int32_t position = 0;  ///< last position that it sees
  std::int32_t slot = -1;     ///< slot of the workspace: the state of split s is at slot + s
                              ///< (`fold`: at slot); -1: needs none
  std::int32_t unused = 0;
};

/// Launch sizes of a step, which become part of a captured graph. They are rounded up so that few
/// differ.
struct AttentionGrid {
  int items[2] = {0, 0};  ///< items of each phase, with empty ones at the end
  bool narrow = false;    ///< no item has more than kAttentionPairs pairs
  bool operator==(const AttentionGrid&) const = default;
};

struct AttentionPlan {
  /// The array for the device: items of the first phase, items of the second, then their rows,
  /// tables and paths.
  std::vector<std::int32_t> words;
  AttentionGrid grid;
  int slots = 0;  ///< slots used in the workspace

  [[nodiscard]] std::size_t first_item(int phase) const {  ///< index of a word
    return phase == 0 ? 0 : grid.items[0] * (sizeof(AttentionItem) / 4);
  }
};

/// Returns a number of items rounded up to 1, 2, 3, 4, 6, 8, 12, 16, 24, ... (0 stays 0).
[[nodiscard]] int item_bucket(int count);

struct AttentionPlannerOptions {
  int heads = 0;     ///< query heads of this rank
  int kv_heads = 0;  ///< kv heads of this rank; heads / kv_heads is at most max_pairs(head_dim)
  int head_dim = 0;
  int block = 16;  ///< positions of a KV block
  /// Number of blocks of threads that the device runs at once. Steps with fewer are cut into small
  /// items, and share no tiles: they lack blocks, not bandwidth.
  int few_blocks = 132;
  /// Number of tiles that siblings, or paths of a tree, must share in a split for its state to be
  /// kept. Two tiles are 64 KB of a kv head to read; a state of seven query heads is 7 KB to write
  /// and read.
  int shared_tiles = 2;
  /// Bytes of K and V, in bf16, that resuming from kept states must save. The device reads as many
  /// in the time that a second launch takes, about 5 us.
  std::int64_t second_phase_bytes = std::int64_t{24} << 20;
  /// Least number of rows at which the splits of a chain are folded by one item.
  int fold_rows = 64;
  /// Number of slots in the workspace. If separate splits would take more, every row folds its own
  /// splits.
  int most_slots = 1 << 30;
  bool operator==(const AttentionPlannerOptions&) const = default;
};

class AttentionPlanner {
 public:
  /// Throws Error (internal) if the shape is not supported.
  explicit AttentionPlanner(const AttentionPlannerOptions& options);

  /// Returns the plan of a pass, valid until the next call. `rows`: the row plan of the same
  /// segments. `at_least`: the least grid (a captured graph's).
  const AttentionPlan& plan(std::span<const Segment> segments, const RowPlan& rows,
                            const AttentionGrid& at_least = {});

  /// Returns the most slots that a plan for `rows` rows at positions below `positions` can use.
  /// This is never more than the larger of most_slots and the number of rows.
  [[nodiscard]] int most_slots(int rows, int positions) const;

 private:
  /// A segment in the group that is being planned.
  struct Member {
    const Segment* segment = nullptr;
    int table = 0;                  ///< index of its block table in lists_
    int first_row = 0;              ///< index in rows_
    std::span<const Chain> chains;  ///< chains of its rows
    [[nodiscard]] bool is_tree() const { return segment->parents != nullptr; }
  };

  /// Members [first, last) of order_, with their first `shared` tiles in the same blocks.
  struct Group {
    int first = 0;
    int last = 0;
    int shared = 0;
    int chains = 0;  ///< members that are chains; they come first, trees after them
  };

  void build(std::span<const Segment> segments, int rows_of_item, bool share, bool all_fold);
  void find_groups(std::span<const Segment> segments);
  /// Tiles after the last whole split whose state is kept. The chains of a group resume from it,
  /// and so do the paths of a tree, which keep a state of their own.
  [[nodiscard]] int kept_tiles(const Group& group) const;
  [[nodiscard]] int kept_tiles(const Segment& tree, std::size_t chains) const;
  /// Returns how many tiles need not be read because states are kept.
  [[nodiscard]] std::int64_t spared_tiles(std::span<const Segment> segments) const;
  [[nodiscard]] std::span<const Chain> chains_of(int segment) const;
  void add_group(std::span<const Segment> segments, const Group& group);
  void add_chain(const Member& member, int first_tile);
  void add_tree(const Member& member, int first_tile);
  Member add_member(const Segment& segment, std::span<const Chain> chains, bool keeps_state);
  /// Adds items over tiles that all of the rows see entirely.
  void add_prefix(int first_row, int rows, int first_tile, int tiles, int table, AttentionEnd end);
  /// Adds items over all tiles that the rows of a chain see. These items fold the splits.
  void add_folding(const Chain& chain, int first_row, int table);
  /// Puts the chain's path into lists_ and returns its index; -1: the chain has none.
  int add_path(const Chain& chain);
  /// Adds items over the tiles from first_tile on. Each row of the chain sees one position more
  /// than the row before it, or all rows see the same positions (Chain::seen). Resumes if
  /// first_tile is within a split. first_row: index in rows_.
  void add_causal(const Chain& chain, int first_row, int first_tile, int table);
  void add_item(const AttentionItem& item) { items_[item.resumes].push_back(item); }
  void assemble(const AttentionGrid& at_least);
  [[nodiscard]] bool may_share(const Segment& segment) const;
  [[nodiscard]] bool folds(const Segment& segment) const;

  AttentionPlannerOptions options_;
  int group_ = 0;  ///< query heads that share a kv head
  AttentionPlan plan_;

  // The plan being built; items refer to rows_ and lists_ by index until all are assembled.
  const RowPlan* row_plan_ = nullptr;
  int rows_of_item_ = 0;
  bool share_ = false;
  bool all_fold_ = false;
  bool resume_ = false;  ///< whether states are kept for a second phase
  std::vector<AttentionItem> items_[2];
  std::vector<AttentionRow> rows_;
  std::vector<std::int32_t> lists_;  ///< block tables and paths
  std::vector<Group> groups_;
  std::vector<int> order_;                ///< segments, siblings together
  std::vector<std::size_t> first_chain_;  ///< [segments + 1] index of first chain in row plan
  std::vector<Member> members_;           ///< members of the group being planned
};

}  // namespace paceline::kernels::cuda
