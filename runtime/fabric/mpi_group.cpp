#include "runtime/fabric/mpi_group.hpp"

#include <algorithm>
#include <cstring>

#include "runtime/core/stopwatch.hpp"
#include "runtime/fabric/backoff.hpp"

namespace paceline::fabric {
namespace {
constexpr int kReduceTag = 1;
constexpr int kRowsTag = 2;
}  // namespace

void SingleRankGroup::exchange_rows(std::span<const float> send, std::span<const int>,
                                    std::span<const int>, std::span<float> receive) {
  std::copy(send.begin(), send.end(), receive.begin());
}

void SingleRankGroup::all_gather(std::span<const std::byte> mine, std::span<const int>,
                                 std::span<std::byte> all) {
  std::copy(mine.begin(), mine.end(), all.begin());
}

MpiGroup::MpiGroup(MPI_Comm comm) {
  MPI_Comm_dup(comm, &comm_);
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
}

MpiGroup::~MpiGroup() { MPI_Comm_free(&comm_); }

void MpiGroup::wait(std::span<MPI_Request> requests) {
  Backoff backoff;
  int done = 0;
  while (true) {
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    if (done != 0) return;
    backoff.pause();
  }
}

// Recursive doubling: after the step of distance d every rank holds the sum of its sub-tree of 2d
// neighbours. Both partners add the same two numbers, and addition commutes, so all ranks hold the
// same bits.
void MpiGroup::all_reduce_tree(std::span<float> values) {
  const Stopwatch watch(traffic_.sum_seconds);
  partner_.resize(values.size());
  const int count = static_cast<int>(values.size());
  for (int distance = 1; distance < size_; distance *= 2) {
    const int partner = rank_ ^ distance;
    MPI_Request requests[2];
    MPI_Irecv(partner_.data(), count, MPI_FLOAT, partner, kReduceTag, comm_, &requests[0]);
    MPI_Isend(values.data(), count, MPI_FLOAT, partner, kReduceTag, comm_, &requests[1]);
    wait(requests);
    for (int i = 0; i < count; ++i) values[i] += partner_[i];
    traffic_.bytes += values.size_bytes();
  }
}

void MpiGroup::gather_rows(std::span<float> rows, std::span<const int> first_row) {
  const Stopwatch watch(traffic_.sum_seconds);
  if (rows.empty()) return;
  const int width = static_cast<int>(rows.size() / first_row[size_]);
  std::vector<int> counts;
  std::vector<int> first;
  for (int r = 0; r < size_; ++r) {
    counts.push_back((first_row[r + 1] - first_row[r]) * width);
    first.push_back(first_row[r] * width);
  }
  traffic_.bytes += sizeof(float) * counts[rank_] * (size_ - 1);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, rows.data(), counts.data(), first.data(),
                  MPI_FLOAT, comm_, &request);
  wait({&request, 1});
}

void MpiGroup::exchange_rows(std::span<const float> send, std::span<const int> columns,
                             std::span<const int> first_row, std::span<float> receive) {
  const Stopwatch watch(traffic_.exchange_seconds);
  const std::size_t mine = first_row[rank_ + 1] - first_row[rank_];
  std::vector<MPI_Request> requests;
  columns_.resize(receive.size());
  std::size_t at = 0;  // start of rank r's block [mine, columns[r]] in columns_
  for (int r = 0; r < size_; ++r) {
    const std::size_t count = mine * columns[r];
    if (r != rank_ && count > 0) {
      MPI_Irecv(columns_.data() + at, static_cast<int>(count), MPI_FLOAT, r, kRowsTag, comm_,
                &requests.emplace_back());
    }
    at += count;
  }
  const std::size_t width = columns[rank_];
  for (int r = 0; r < size_; ++r) {
    const std::size_t rows = first_row[r + 1] - first_row[r];
    if (r != rank_ && rows * width > 0) {
      MPI_Isend(send.data() + first_row[r] * width, static_cast<int>(rows * width), MPI_FLOAT, r,
                kRowsTag, comm_, &requests.emplace_back());
      traffic_.bytes += rows * width * sizeof(float);
    }
  }
  wait(requests);

  std::size_t stride = 0;
  for (const int c : columns) stride += c;
  at = 0;
  std::size_t first_column = 0;
  for (int r = 0; r < size_; ++r) {
    const float* block = r == rank_ ? send.data() + first_row[r] * width : columns_.data() + at;
    for (std::size_t row = 0; row < mine; ++row) {
      std::memcpy(receive.data() + row * stride + first_column, block + row * columns[r],
                  columns[r] * sizeof(float));
    }
    at += mine * columns[r];
    first_column += columns[r];
  }
}

void MpiGroup::all_gather(std::span<const std::byte> mine, std::span<const int> sizes,
                          std::span<std::byte> all) {
  const Stopwatch watch(traffic_.exchange_seconds);
  traffic_.bytes += mine.size() * (size_ - 1);
  std::vector<int> first(sizes.size(), 0);
  for (std::size_t r = 1; r < sizes.size(); ++r) first[r] = first[r - 1] + sizes[r - 1];
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallgatherv(mine.data(), static_cast<int>(mine.size()), MPI_BYTE, all.data(), sizes.data(),
                  first.data(), MPI_BYTE, comm_, &request);
  wait({&request, 1});
}

}  // namespace paceline::fabric
