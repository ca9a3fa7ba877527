#include "kernels/cpu/attention_units.hpp"

#include <algorithm>
#include <numeric>

#include "kernels/cpu/kernel_table.hpp"

namespace paceline::kernels::cpu {
namespace {

/// Most row heads (rows times query heads of a kv head) that attend together: each K and V tile is
/// used so many times after it was read. With 64 prefill takes up to a fifth longer, with 256 the
/// same (measured, heads of 64 and of 128 elements).
constexpr int kRowHeads = 112;
/// Most row heads where sequences share no K and V (with three sequences together, verification of
/// drafts takes 6 % longer; measured), and where threads would otherwise have too few units.
constexpr int kFewerRowHeads = 64;
/// Least number of units for each thread, so that threads end at about the same time.
constexpr int kUnitsOfThread = 4;
/// Row heads up to which a tile of K and V is used so little that fetching it dominates.
constexpr int kFewRowHeads = 24;
/// Most bytes of K and V of a tile, over the kv heads of a task: with the next tile they fit a
/// second-level cache.
constexpr std::size_t kTileBytes = std::size_t{128} << 10;

std::int64_t work_of(const Chain& chain, int first, int rows) {
  if (chain.seen > 0) return std::int64_t{rows} * chain.seen;
  return rows * (std::int64_t{chain.first_position} + first) + rows * (rows + 1LL) / 2;
}

/// Number of positions from 0 on, in whole tiles, that all rows of both chains see in the same
/// blocks.
int in_common(const Chain& a, const Chain& b, int block) {
  const auto own = [](const Chain& c) { return c.path == nullptr ? c.first_position : c.base; };
  int positions = std::min(own(a), own(b));
  if (a.blocks != b.blocks) {
    const int blocks = (positions + block - 1) / block;
    const auto end = std::mismatch(a.blocks, a.blocks + blocks, b.blocks).first;
    positions = std::min(positions, static_cast<int>(end - a.blocks) * block);
  }
  return positions / kAttentionTile * kAttentionTile;
}

}  // namespace

void AttentionUnits::set(std::span<const Chain> chains, const KvShape& kv, int heads, int threads) {
  const int kv_heads = kv.kv_heads;
  pieces_.clear();
  units_.clear();
  work_ = 0;
  longest_path_ = 0;
  std::int64_t all_rows = 0;
  for (const Chain& chain : chains) {
    all_rows += chain.rows;
    work_ += work_of(chain, 0, chain.rows);
    if (chain.path != nullptr) {
      longest_path_ = std::max(longest_path_, chain.first_position + chain.rows - chain.base);
    }
  }
  const auto rows_of = [&](int row_heads) {
    return std::max(1, row_heads * kv_heads / std::max(1, heads));
  };
  const auto units_of_all = std::int64_t{threads} * kUnitsOfThread;
  const bool many = threads == 1 || all_rows * kv_heads >= units_of_all * rows_of(kRowHeads);
  const int most_rows = rows_of(many ? kRowHeads : kFewerRowHeads);
  const std::int64_t most_work = threads == 1 ? work_ : work_ * kv_heads / units_of_all;
  // Siblings need not be neighbours in the batch.
  order_.resize(chains.size());
  std::iota(order_.begin(), order_.end(), 0);
  std::ranges::stable_sort(order_, {}, [&](int c) { return chains[c].blocks[0]; });

  for (const int c : order_) {
    const Chain& chain = chains[c];
    if (chain.rows <= most_rows && !units_.empty()) {
      AttentionUnit& unit = units_.back();
      const int shared = in_common(chains[pieces_[unit.first_piece].chain], chain, kv.block);
      const std::int64_t work = unit.work + work_of(chain, 0, chain.rows);
      const int most = shared > 0 ? most_rows : rows_of(kFewerRowHeads);
      // A unit of one chain may begin to share; in other units no row may lose a shared position.
      if (unit.rows + chain.rows <= most && work <= most_work &&
          (unit.pieces == 1 || shared >= unit.shared) && (shared > 0 || unit.shared == 0)) {
        pieces_.push_back({c, 0, chain.rows});
        unit.shared = unit.pieces == 1 ? shared : std::min(unit.shared, shared);
        ++unit.pieces;
        unit.rows += chain.rows;
        unit.work = work;
        continue;
      }
    }
    for (int first = 0; first < chain.rows; first += most_rows) {
      const int rows = std::min(most_rows, chain.rows - first);
      units_.push_back({static_cast<int>(pieces_.size()), 1, rows, 0, work_of(chain, first, rows)});
      pieces_.push_back({c, first, rows});
    }
  }
  most_rows_ = 0;
  for (const AttentionUnit& unit : units_) most_rows_ = std::max(most_rows_, unit.rows);
  std::ranges::stable_sort(units_, std::ranges::greater{}, &AttentionUnit::work);
  set_tasks(chains, kv, heads / std::max(1, kv_heads), threads);
}

void AttentionUnits::set_tasks(std::span<const Chain> chains, const KvShape& kv, int group,
                               int threads) {
  tasks_.clear();
  sums_.clear();
  most_heads_ = 0;
  state_floats_ = 0;
  if (kv.layer_bytes() == 0) return;  // without a cache there is nothing to attend to
  const auto of_all_heads = static_cast<int>(units_.size()) * kv.kv_heads;
  const std::size_t tile_bytes = kv.layer_bytes() / kv.block / kv.kv_heads * kAttentionTile;
  const int most = std::min(static_cast<int>(kTileBytes / tile_bytes),
                            threads == 1 ? kv.kv_heads : of_all_heads / (threads * kUnitsOfThread));
  const std::int64_t share = work_ * kv.kv_heads / threads;  // work of one thread
  for (int u = 0; u < static_cast<int>(units_.size()); ++u) {
    const AttentionUnit& unit = units_[u];
    int rows = unit.shared > 0 ? unit.rows : 0;  // most rows that walk a tile together
    int positions = 0;                           // most positions that a row sees
    for (const AttentionPiece& piece : pieces(unit)) {
      rows = std::max(rows, piece.rows);
      const Chain& chain = chains[piece.chain];
      const int own = chain.first_position + piece.first + piece.rows;
      positions = std::max(positions, chain.seen > 0 ? chain.seen : own);
    }
    const int heads = rows * group > kFewRowHeads ? 1 : std::clamp(most, 1, kv.kv_heads);
    most_heads_ = std::max(most_heads_, heads);
    const int all = (positions + kAttentionSegment - 1) / kAttentionSegment;
    // Cuts only units that would keep the other threads waiting: a quarter more than a thread's
    // share.
    const bool cut = heads == 1 && all > 1 && unit.work > share + share / 4;
    const int segments =
        cut ? std::max(1, static_cast<int>(all * share / (kUnitsOfThread * unit.work))) : 0;
    const std::size_t floats = attention_state_floats(1, unit.rows * group, kv.value_dim());
    for (int first = 0; first < kv.kv_heads; first += heads) {
      AttentionTask task = {u, first, std::min(heads, kv.kv_heads - first)};
      if (!cut) {
        tasks_.push_back(task);
        continue;
      }
      sums_.push_back({u, first, 1, 0, all, state_floats_});
      for (; task.first_segment < all; task.first_segment += segments) {
        task.segments = std::min(segments, all - task.first_segment);
        task.states = state_floats_ + task.first_segment * floats;
        tasks_.push_back(task);
      }
      state_floats_ += all * floats;
    }
  }
}

}  // namespace paceline::kernels::cpu
