// Experts that tokens use (SamplingParams::keep_routing), in shards and in files of a whole run.
// Private to this folder.
//
// In a shard:
//   /routed_experts i16: Trajectory::routing of one finished response after the other
//   /routing compound: one row a response, flushed before the row of /index
//
// In a file of a whole run, GROUP being /trajectories or /scores:
//   GROUP/routed_experts, /prompts/routed_experts i16 [tokens * layers * k]: of each token of the
//       responses, or the prompts, the k experts that it uses, ascending, in each layer that has
//       experts; -1 for the last token of a response, which no other follows
//   GROUP/routed_layers u8 [layers of the model]: 1 where a layer has experts
// The experts are in compressed chunks: most differ little from their neighbours, and half of their
// bytes are 0.
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
  std::uint64_t offset = 0;  ///< of the first in /routed_experts
  std::uint64_t size = 0;
  std::uint64_t checksum = 0;  ///< XXH3-64 of them and the response's id
  std::uint32_t prompt = 0;
  std::uint32_t sample = 0;

  RoutingRow() = default;
  RoutingRow(RequestId id, std::span<const std::int16_t> experts, std::uint64_t at);
};
[[nodiscard]] std::vector<h5::Field> routing_row_fields();

/// A response's experts in a shard.
struct RoutingPlace {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint32_t prompt = 0;
  std::uint32_t sample = 0;
  std::uint32_t source = 0;  ///< index of the shard
};

/// Appends the undamaged experts of a shard. Memory: those of one response. Throws IoError where
/// the shard has none.
void read_routing_places(const std::string& path, std::uint32_t source,
                         std::vector<RoutingPlace>& places);

/// For each response, in order by id, the last place in its own shard. Removes responses that have
/// none, and returns how many these were.
[[nodiscard]] std::size_t match_routing(std::vector<RoutingPlace>& places,
                                        std::vector<StoredResponse>& responses);

/// Reads the experts of responses in order. Places of at most `window_bytes` together, and at least
/// one, are read before `use` gets them, so that one file is open at a time. Throws IoError.
void read_routing_in_order(
    std::span<const std::string> paths, std::span<const RoutingPlace> places,
    std::size_t window_bytes,
    const std::function<void(std::size_t index, std::span<const std::int16_t>)>& use);

/// The experts' datasets of a file that is being written.
class RoutingColumns {
 public:
  /// Creates the datasets, where `shape` has any width. `group` must exist, as must /prompts.
  RoutingColumns(const h5::File& file, const std::string& group, const RoutingShape& shape,
                 std::span<const Prompt> prompts, std::uint64_t tokens);
  /// Writes the experts of a response's positions from `first` on, of which some may be its
  /// prompt's. `offset`: of its first token in the file. Throws std::logic_error on another number
  /// of positions.
  void write(std::uint32_t prompt, std::uint64_t offset, std::uint64_t length, std::size_t first,
             std::span<const std::int16_t> experts);
  /// Writes that no experts of a prompt are known.
  void write_unknown(std::uint32_t prompt);
  void flush();
  void close();

 private:
  std::size_t width_;                  ///< of a token; 0: there are no datasets
  std::vector<std::uint64_t> starts_;  ///< [prompts + 1] first tokens
  h5::Dataset of_prompts_, of_responses_;
};

}  // namespace paceline::io
