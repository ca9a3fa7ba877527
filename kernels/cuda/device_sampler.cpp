#include "kernels/cuda/device_sampler.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cuda/check.hpp"

namespace paceline::kernels::cuda {
namespace {

[[noreturn]] void fail_to_sample(std::size_t row) {
  throw UnusableLogits("sampling: row " + std::to_string(row) +
                       " has a NaN or infinite logit, or no token left to sample");
}

/// The lists of several rows as one array.
template <class T>
class JoinedLists {
 public:
  /// Returns the list's place in the array. Lists that are the same memory share a place: rows have
  /// few lists of banned tokens, for before and after min_tokens, and these may be long.
  std::int32_t share(std::span<const T> list) {
    const auto same = std::find_if(lists_.begin(), lists_.end(), [list](const List& known) {
      return known.values.data() == list.data() && known.values.size() == list.size();
    });
    return same != lists_.end() ? same->first : add(list);
  }
  /// Returns the list's place in the array.
  std::int32_t add(std::span<const T> list) {
    if (list.empty()) return 0;
    const std::int32_t first = size_;
    lists_.push_back({list, first});
    size_ += static_cast<std::int32_t>(list.size());
    return first;
  }
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(size_) * sizeof(T); }
  void copy(std::byte* to) const {
    for (const List& list : lists_)
      std::memcpy(to + list.first * sizeof(T), list.values.data(), list.values.size_bytes());
  }

 private:
  struct List {
    std::span<const T> values;
    std::int32_t first;
  };
  std::vector<List> lists_;
  std::int32_t size_ = 0;
};

}  // namespace

DeviceSampler::DeviceSampler(cudaStream_t stream, std::function<void()> wait)
    : stream_(stream), wait_(std::move(wait)) {}

// Rows and, behind them, their edits and banned tokens are sent as one copy.
SampleRows DeviceSampler::send(std::span<const SampleRow> rows) {
  JoinedLists<LogitEdit> edits;
  JoinedLists<TokenId> banned;
  std::vector<DeviceSampleRow> device_rows;
  device_rows.reserve(rows.size());
  for (const SampleRow& row : rows) {
    device_rows.push_back({row.noise, row.step, row.temperature, row.top_k, row.top_p, row.min_p,
                           banned.share(row.banned), static_cast<std::int32_t>(row.banned.size()),
                           edits.add(row.edits), static_cast<std::int32_t>(row.edits.size()),
                           row.given});
  }
  const std::size_t head = rows.size() * sizeof(DeviceSampleRow);
  const std::size_t bytes = head + edits.bytes() + banned.bytes();
  std::byte* const host = rows_stage_.room(bytes, stream_);
  std::memcpy(host, device_rows.data(), head);
  edits.copy(host + head);
  banned.copy(host + head + edits.bytes());
  rows_stage_.copy(bytes, stream_);
  const std::byte* const device = rows_stage_.device();
  return {reinterpret_cast<const DeviceSampleRow*>(device),
          reinterpret_cast<const TokenId*>(device + head + edits.bytes()),
          reinterpret_cast<const LogitEdit*>(device + head), static_cast<int>(rows.size())};
}

std::byte* DeviceSampler::workspace(int rows, int vocab) {
  const std::size_t bytes = sample_workspace_bytes(rows, vocab);
  if (workspace_.size() < bytes) {
    wait_();
    workspace_ = DeviceMemory(bytes);
  }
  return workspace_.data();
}

template <class T>
T* DeviceSampler::results(std::size_t count) {
  const std::size_t bytes = count * sizeof(T);
  if (results_.size() < bytes) {
    wait_();
    results_ = DeviceMemory(bytes);
    results_back_ = PinnedMemory(bytes);
  }
  return reinterpret_cast<T*>(results_.data());
}

/// Reads back all results of a call. The span is valid until the next call.
template <class T>
std::span<const T> DeviceSampler::read_results(std::size_t count) {
  sampled_.record(stream_);
  PACELINE_CUDA_CHECK(cudaMemcpyAsync(results_back_.data(), results_.data(), count * sizeof(T),
                                      cudaMemcpyDeviceToHost, stream_));
  wait_();
  return {reinterpret_cast<const T*>(results_back_.data()), count};
}

void DeviceSampler::sample(const float* logits, std::size_t stride, int vocab,
                           std::span<const SampleRow> rows, std::span<Sampled> out,
                           std::span<TokenId> kept) {
  if (rows.empty()) return;
  const SampleRows device = send(rows);
  // Kept tokens lie behind the samples, so that everything is read back at once.
  const std::size_t head = rows.size() * sizeof(Sampled);
  const std::size_t bytes = head + kept.size_bytes();
  std::byte* const memory = results<std::byte>(bytes);
  const KeptOutput kept_output = {reinterpret_cast<TokenId*>(memory + head),
                                  static_cast<int>(kept.size() / rows.size())};
  cuda::sample(logits, stride, vocab, device, workspace(device.count, vocab),
               reinterpret_cast<Sampled*>(memory), kept_output, stream_);
  const std::span<const std::byte> all = read_results<std::byte>(bytes);
  std::memcpy(out.data(), all.data(), head);
  if (!kept.empty()) std::memcpy(kept.data(), all.data() + head, kept.size_bytes());
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (out[r].token < 0) fail_to_sample(r);
  }
}

void DeviceSampler::rank(const float* logits, std::size_t stride, int vocab,
                         std::span<const SampleRow> rows, int count, std::span<Ranked> out) {
  rank(logits, stride, vocab, rows, count, RankedAs::score, out);
}

// Rows at temperature 0 are ranked by their logits.
void DeviceSampler::top(const float* logits, std::size_t stride, int vocab, int rows, int count,
                        std::span<Ranked> out) {
  SampleRow plain;
  plain.temperature = 0;
  rank(logits, stride, vocab, std::vector<SampleRow>(static_cast<std::size_t>(rows), plain), count,
       RankedAs::log_probability, out);
}

void DeviceSampler::rank(const float* logits, std::size_t stride, int vocab,
                         std::span<const SampleRow> rows, int count, RankedAs as,
                         std::span<Ranked> out) {
  if (rows.empty()) return;
  const std::size_t best = rows.size() * count;
  const SampleRows device = send(rows);
  cuda::rank(logits, stride, vocab, device, count, as, workspace(device.count, vocab),
             results<Ranked>(best), stream_);
  const std::span<const Ranked> ranked = read_results<Ranked>(best);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (ranked[r * count].token < -1) fail_to_sample(r);
  }
  std::copy(ranked.begin(), ranked.end(), out.begin());
}

}  // namespace paceline::kernels::cuda
