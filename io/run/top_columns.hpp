// The most probable tokens at the position of each token (SamplingParams::logprobs), in files of a
// whole run. Private to this folder.
//
//   GROUP/top_ids i32, GROUP/top_logprob f32 [tokens * K], best first; GROUP: /trajectories or
//       /scores. top_ids has the attribute width: K
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "io/hdf5/file.hpp"
#include "runtime/core/types.hpp"

namespace paceline::io {

/// The datasets of a file that is being written. They are compressed, for ids and log-probabilities
/// of neighbouring tokens have similar high bytes.
class TopColumns {
 public:
  TopColumns(const h5::File& file, const std::string& group, std::uint64_t tokens,
             std::int32_t width)
      : width_(static_cast<std::uint64_t>(width)),
        ids_(create<TokenId>(file, group + "/top_ids", tokens * width_)),
        logprob_(create<float>(file, group + "/top_logprob", tokens * width_)) {
    h5::write_attribute(ids_.id(), file.path(), "width", width);
  }
  void append(std::span<const TokenId> ids, std::span<const float> logprob) {
    ids_.append<TokenId>(ids);
    logprob_.append<float>(logprob);
  }
  /// Writes the values of tokens from `first` on.
  void write(std::uint64_t first, std::span<const TokenId> ids, std::span<const float> logprob) {
    ids_.write(first * width_, ids.size(), ids.data());
    logprob_.write(first * width_, logprob.size(), logprob.data());
  }
  void flush() {
    ids_.flush();
    logprob_.flush();
  }
  void close() {
    ids_.close();
    logprob_.close();
  }

 private:
  static constexpr std::uint64_t kChunk = 65536;  // elements: 256 KiB
  template <typename T>
  static h5::Dataset create(const h5::File& file, const std::string& name, std::uint64_t size) {
    return h5::Dataset::create<T>(file, name, {.size = size, .chunk = kChunk, .compressed = true});
  }
  std::uint64_t width_;
  h5::Dataset ids_, logprob_;
};

}  // namespace paceline::io
