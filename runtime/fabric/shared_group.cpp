#include "runtime/fabric/shared_group.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "runtime/core/stopwatch.hpp"

namespace paceline::fabric {
namespace {

/// Most bytes that a rank gives at a meeting: a second-level cache holds two such pieces.
constexpr std::size_t kPiece = std::size_t{512} << 10;
/// Least number of values that a group of more than two ranks sums in slices, with a second
/// meeting. A meeting takes as long as reading some ten thousand values that other ranks wrote.
constexpr std::size_t kSliced = 16384;
/// Number of looks at a late rank before the thread sleeps: some ten microseconds, the time that it
/// takes to sleep and be woken.
constexpr int kSpins = 300;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Copies to memory that another core reads next. Non-temporal stores take a quarter to a tenth of
/// the time of ordinary stores, which first fetch the cache lines from the core that read them
/// last. `to`: aligned to 16 bytes.
void hand_over(const std::byte* from, std::size_t bytes, std::byte* to) {
  std::size_t done = 0;
#if defined(__x86_64__)
  for (; done + 16 <= bytes; done += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + done),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + done)));
  }
  _mm_sfence();
#endif
  std::memcpy(to + done, from + done, bytes - done);
}

}  // namespace

/// State of a rank that the others read. They wait for it by futexes, as std::atomic's wait works
/// within one process only.
struct alignas(128) SharedGroup::Post {
  std::atomic<std::uint32_t> meetings;  ///< number of meetings that the rank has come to
  std::atomic<std::uint32_t> sleepers;  ///< ranks that may sleep until its next meeting
};

std::unique_ptr<SharedGroup> SharedGroup::make(MPI_Comm comm) {
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  std::optional<SharedMemory> memory = share_memory(comm, size * (sizeof(Post) + 2 * kPiece));
  if (!memory) return nullptr;
  return std::unique_ptr<SharedGroup>(new SharedGroup(rank, size, std::move(*memory)));
}

SharedGroup::SharedGroup(int rank, int size, SharedMemory memory)
    : rank_(rank), size_(size), memory_(std::move(memory)) {}

SharedGroup::Post& SharedGroup::post(int rank) const {
  return reinterpret_cast<Post*>(memory_.bytes().data())[rank];
}

/// The memory of a rank's piece at a meeting. Two pieces are used in turn: when a rank writes to
/// one again, all others have come to the meeting in between, and so have read the old content.
std::byte* SharedGroup::piece(int rank, std::uint32_t meeting) const {
  return memory_.bytes().data() + size_ * sizeof(Post) +
         (2 * static_cast<std::size_t>(rank) + meeting % 2) * kPiece;
}

void SharedGroup::give(std::span<const std::byte> bytes) {
  hand_over(bytes.data(), bytes.size(), piece(rank_, meetings_ + 1));
  traffic_.bytes += bytes.size();
}

void SharedGroup::meet() {
  ++meetings_;
  Post& mine = post(rank_);
  mine.meetings.store(meetings_, std::memory_order_seq_cst);
  if (mine.sleepers.load(std::memory_order_seq_cst) > 0)
    syscall(SYS_futex, &mine.meetings, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
  // Compares by difference, as the count wraps around after 2^32 meetings.
  const auto is_late = [this](std::uint32_t meetings) {
    return static_cast<std::int32_t>(meetings - meetings_) < 0;
  };
  for (int r = 0; r < size_; ++r) {
    Post& other = post(r);
    std::uint32_t seen = other.meetings.load(std::memory_order_acquire);
    for (int spins = 0; is_late(seen) && spins < kSpins; ++spins) {
      pause();
      seen = other.meetings.load(std::memory_order_acquire);
    }
    if (!is_late(seen)) continue;
    other.sleepers.fetch_add(1, std::memory_order_seq_cst);
    while (is_late(seen = other.meetings.load(std::memory_order_seq_cst)))
      syscall(SYS_futex, &other.meetings, FUTEX_WAIT, seen, nullptr, nullptr, 0);
    other.sleepers.fetch_sub(1, std::memory_order_relaxed);
  }
}

namespace {

/// Most values that sum_tree() sums at a time: each level of the tree has two arrays of them.
constexpr std::size_t kChunk = 256;
void add(const float* __restrict a, const float* __restrict b, std::size_t count,
         float* __restrict sum) {
  if (count == kChunk) {  // a loop of constant length is vectorised
    for (std::size_t i = 0; i < kChunk; ++i) sum[i] = a[i] + b[i];
  } else {
    for (std::size_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
  }
}
/// Sums up to kChunk values over neighbouring ranks, in the canonical tree.
void sum_tree(std::span<const float* const> ranks, std::size_t first, std::size_t count,
              float* sum) {
  if (ranks.size() == 2) {
    add(ranks[0] + first, ranks[1] + first, count, sum);
    return;
  }
  const std::size_t half = ranks.size() / 2;
  float left[kChunk];
  float right[kChunk];
  sum_tree(ranks.first(half), first, count, left);
  sum_tree(ranks.last(half), first, count, right);
  add(left, right, count, sum);
}

}  // namespace

/// Sums the ranks' pieces of the last meeting, from value `first` on. `given`: this rank's own
/// piece.
void SharedGroup::sum_pieces(std::span<const float> given, std::size_t first,
                             std::span<float> sum) const {
  std::vector<const float*> ranks;
  for (int r = 0; r < size_; ++r) ranks.push_back(reinterpret_cast<const float*>(met(r)));
  ranks[rank_] = given.data();  // the copy handed over is in no cache of this core
  float chunk[kChunk];          // `sum` may be a part of `given`
  for (std::size_t at = 0; at < sum.size(); at += kChunk) {
    const std::size_t count = std::min(kChunk, sum.size() - at);
    sum_tree(ranks, first + at, count, chunk);
    std::memcpy(sum.data() + at, chunk, count * sizeof(float));
  }
}

// Every rank computes the same tree, or copies the result of a rank that did.
void SharedGroup::all_reduce_tree(std::span<float> values) {
  const Stopwatch watch(traffic_.sum_seconds);
  if (size_ == 1) return;
  for (std::size_t at = 0; at < values.size(); at += kPiece / sizeof(float)) {
    const auto part = values.subspan(at, std::min(kPiece / sizeof(float), values.size() - at));
    give(std::as_bytes(part));
    meet();
    if (size_ == 2 || part.size() < kSliced) {
      sum_pieces(part, 0, part);
      continue;
    }
    const auto slice = [&](int rank) {
      const std::size_t first = part.size() * rank / size_;
      return part.subspan(first, part.size() * (rank + 1) / size_ - first);
    };
    const std::span<float> mine = slice(rank_);
    sum_pieces(part, mine.data() - part.data(), mine);
    give(std::as_bytes(mine));
    meet();
    for (int r = 0; r < size_; ++r)
      if (r != rank_) std::memcpy(slice(r).data(), met(r), slice(r).size_bytes());
  }
}

void SharedGroup::exchange_rows(std::span<const float> send, std::span<const int> columns,
                                std::span<const int> first_row, std::span<float> receive) {
  const Stopwatch watch(traffic_.exchange_seconds);
  const std::size_t rows = first_row[size_];
  const std::size_t begin = first_row[rank_];
  const std::size_t end = first_row[rank_ + 1];
  const std::size_t widest = *std::max_element(columns.begin(), columns.end());
  std::size_t stride = 0;
  for (const int c : columns) stride += c;
  // Each rank gives its rows as one stream of values, cut into pieces of kValues.
  constexpr std::size_t kValues = kPiece / sizeof(float);
  for (std::size_t at = 0; at < rows * widest; at += kValues) {
    if (at < send.size())
      give(std::as_bytes(send.subspan(at, std::min(kValues, send.size() - at))));
    meet();
    std::size_t column = 0;
    for (int r = 0; r < size_; ++r) {
      const std::size_t width = columns[r];
      const auto* const values = reinterpret_cast<const float*>(met(r));
      for (std::size_t row = begin; row < end; ++row) {
        const std::size_t from = std::max(at, row * width);
        const std::size_t to = std::min(at + kValues, (row + 1) * width);
        if (from < to)
          std::memcpy(receive.data() + (row - begin) * stride + column + (from - row * width),
                      values + (from - at), (to - from) * sizeof(float));
      }
      column += width;
    }
  }
}

void SharedGroup::gather(std::span<const std::byte> mine, std::span<const std::size_t> sizes,
                         std::byte* all) {
  const std::size_t longest = *std::max_element(sizes.begin(), sizes.end());
  for (std::size_t at = 0; at < longest; at += kPiece) {
    if (at < mine.size()) give(mine.subspan(at, std::min(kPiece, mine.size() - at)));
    meet();
    std::size_t first = 0;
    for (int r = 0; r < size_; ++r) {
      std::byte* const to = all + first + at;
      const bool there = r == rank_ && to == mine.data() + at;
      if (at < sizes[r] && !there) std::memcpy(to, met(r), std::min(kPiece, sizes[r] - at));
      first += sizes[r];
    }
  }
}

void SharedGroup::gather_rows(std::span<float> rows, std::span<const int> first_row) {
  const Stopwatch watch(traffic_.sum_seconds);
  if (rows.empty()) return;
  const std::size_t row_bytes = rows.size_bytes() / first_row[size_];
  std::vector<std::size_t> sizes;
  for (int r = 0; r < size_; ++r) sizes.push_back((first_row[r + 1] - first_row[r]) * row_bytes);
  const std::span<std::byte> all = std::as_writable_bytes(rows);
  gather(all.subspan(first_row[rank_] * row_bytes, sizes[rank_]), sizes, all.data());
}

void SharedGroup::all_gather(std::span<const std::byte> mine, std::span<const int> sizes,
                             std::span<std::byte> all) {
  const Stopwatch watch(traffic_.exchange_seconds);
  gather(mine, std::vector<std::size_t>(sizes.begin(), sizes.end()), all.data());
}

}  // namespace paceline::fabric
