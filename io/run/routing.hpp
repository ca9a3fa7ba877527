// Experts that tokens use (SamplingParams::keep_routing), in shards and in files of a whole run.
// Private to this folder.
//
// In a shard:
//   /routed_experts i16: Trajectory::routing of the finished responses, one after the other
//   /routing compound: one row a response, flushed before its row of /index
//
// In a file of a whole run, where GROUP is /trajectories or /scores:
//   GROUP/routed_experts, /prompts/routed_experts i16 [tokens * layers * k]: for each token of the
//       responses, or the prompts, and each layer with experts: the k experts that it uses,
//       ascending; -1 for the last token of a response, which no token follows
//   GROUP/routed_layers u8 [layers of the model]: 1 if a layer has experts
// Experts are stored in compressed chunks: most differ little from their neighbours, and half of
// their bytes are 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/hdf5/file.hpp"
#include "io/run/manifest.hpp"
#include "io/run/stored_response.hpp"
#include "runtime/core/request.hpp"

namespace paceline::io {

/// A row of a shard's /routing.
struct RoutingRow {
  std::uint64_t offset = 0;  ///< place of the response's first expert in /routed_experts
  std::uint64_t size = 0;
  std::uint64_t checksum = 0;  ///< XXH3-64 of the experts and the response's id
  std::uint32_t prompt = 0;
  std::uint32_t sample = 0;

  RoutingRow() = default;
  RoutingRow(RequestId id, std::span<const std::int16_t> experts, std::uint64_t at);
};
[[nodiscard]] std::vector<h5::Field> routing_row_fields();

/// The place of a response's experts in a shard.
struct RoutingPlace {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint32_t prompt = 0;
  std::uint32_t sample = 0;
  std::uint32_t source = 0;  ///< index of the shard
};

/// Appends the places of a shard's undamaged experts. Memory: the experts of one response. Throws
/// IoError if the shard has none.
void read_routing_places(const std::string& path, std::uint32_t source,
                         std::vector<RoutingPlace>& places);

/// Leaves in `places` one place for each response, in order by id: the last one in the response's
/// own shard. Removes responses without a place, and returns their number.
[[nodiscard]] std::size_t match_routing(std::vector<RoutingPlace>& places,
                                        std::vector<StoredResponse>& responses);

/// Reads the experts of responses in order. It reads places of at most `window_bytes` together, and
/// at least one place, before it calls `use` for them; one file is open at a time. Throws IoError.
void read_routing_in_order(
    std::span<const std::string> paths, std::span<const RoutingPlace> places,
    std::size_t window_bytes,
    const std::function<void(std::size_t index, std::span<const std::int16_t>)>& use);

/// The datasets of experts in a file that is being written.
class RoutingColumns {
 public:
  /// Creates the datasets, unless `shape` has width 0. `group` and /prompts must exist.
  RoutingColumns(const h5::File& file, const std::string& group, const RoutingShape& shape,
                 std::span<const Prompt> prompts, std::uint64_t tokens);
  /// Writes the experts of a response's positions from `first` on, some of which may be its
  /// prompt's. `offset`: of the response's first token in the file. Throws std::logic_error if the
  /// number of positions is wrong.
  void write(std::uint32_t prompt, std::uint64_t offset, std::uint64_t length, std::size_t first,
             std::span<const std::int16_t> experts);
  /// Marks the experts of a prompt as not known.
  void write_unknown(std::uint32_t prompt);
  void flush();
  void close();

 private:
  std::size_t width_;                  ///< experts of a token; 0: there are no datasets
  std::vector<std::uint64_t> starts_;  ///< [prompts + 1] first token of each
  h5::Dataset of_prompts_, of_responses_;
};

}  // namespace paceline::io
