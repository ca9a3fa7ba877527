#include "io/run/routing.hpp"

#include <xxhash.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <tuple>

#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

constexpr std::uint64_t kRowsAtOnce = 1024;
constexpr std::size_t kChunkCache = std::size_t{512} << 10;
constexpr std::uint64_t kChunk = 131072;  ///< elements of a compressed chunk: 256 KiB

h5::Dataset open_experts(const h5::File& file) {
  return h5::Dataset::open(file, "routed_experts", h5::native<std::int16_t>(), kChunkCache);
}

}  // namespace

RoutingRow::RoutingRow(RequestId id, std::span<const std::int16_t> experts, std::uint64_t at)
    : offset(at),
      size(experts.size()),
      checksum(XXH3_64bits_withSeed(experts.data(), experts.size_bytes(),
                                    (std::uint64_t{id.prompt} << 32) | id.sample)),
      prompt(id.prompt),
      sample(id.sample) {}

std::vector<h5::Field> routing_row_fields() {
  return {
      {"offset", offsetof(RoutingRow, offset), h5::native<std::uint64_t>()},
      {"size", offsetof(RoutingRow, size), h5::native<std::uint64_t>()},
      {"checksum", offsetof(RoutingRow, checksum), h5::native<std::uint64_t>()},
      {"prompt_index", offsetof(RoutingRow, prompt), h5::native<std::uint32_t>()},
      {"sample_index", offsetof(RoutingRow, sample), h5::native<std::uint32_t>()},
  };
}

void read_routing_places(const std::string& path, std::uint32_t source,
                         std::vector<RoutingPlace>& places) {
  const h5::File file = h5::File::open(path);
  const h5::Handle type = h5::compound(routing_row_fields(), sizeof(RoutingRow));
  const h5::Dataset index = h5::Dataset::open(file, "routing", type.get(), 0);
  const h5::Dataset data = open_experts(file);
  std::vector<std::int16_t> experts;
  std::vector<RoutingRow> rows;
  for (std::uint64_t done = 0; done < index.size(); done += rows.size()) {
    rows.assign(std::min(kRowsAtOnce, index.size() - done), {});
    index.read(done, rows.size(), rows.data());
    for (const RoutingRow& row : rows) {
      if (row.offset > data.size() || row.size > data.size() - row.offset) continue;
      experts.resize(row.size);
      try {
        data.read(row.offset, row.size, experts.data());
      } catch (const IoError&) {
        continue;
      }
      if (RoutingRow({row.prompt, row.sample}, experts, 0).checksum == row.checksum)
        places.push_back({row.offset, row.size, row.prompt, row.sample, source});
    }
  }
}

std::size_t match_routing(std::vector<RoutingPlace>& places,
                          std::vector<StoredResponse>& responses) {
  const auto key = [](const auto& at) { return std::tie(at.prompt, at.sample, at.source); };
  std::ranges::stable_sort(places, {}, key);
  std::vector<RoutingPlace> matched;
  const std::size_t before = responses.size();
  std::erase_if(responses, [&](const StoredResponse& response) {
    const auto after = std::ranges::upper_bound(places, key(response), {}, key);
    if (after == places.begin() || key(*std::prev(after)) != key(response)) return true;
    matched.push_back(*std::prev(after));
    return false;
  });
  places = std::move(matched);
  return before - responses.size();
}

void read_routing_in_order(
    std::span<const std::string> paths, std::span<const RoutingPlace> places,
    std::size_t window_bytes,
    const std::function<void(std::size_t index, std::span<const std::int16_t>)>& use) {
  std::vector<std::size_t> by_place;
  std::vector<std::vector<std::int16_t>> window;
  for (std::size_t first = 0; first < places.size(); first += window.size()) {
    std::size_t bytes = 0;
    std::size_t last = first;
    do {
      bytes += places[last].size * sizeof(std::int16_t);
      ++last;
    } while (last < places.size() &&
             bytes + places[last].size * sizeof(std::int16_t) <= window_bytes);
    window.assign(last - first, {});
    by_place.resize(window.size());
    std::iota(by_place.begin(), by_place.end(), first);
    std::ranges::sort(by_place, {}, [&](std::size_t i) {
      return std::tuple(places[i].source, places[i].offset, i);
    });
    std::optional<h5::File> file;
    std::optional<h5::Dataset> data;
    std::uint32_t source = 0;
    for (const std::size_t i : by_place) {
      const RoutingPlace& place = places[i];
      if (!file || source != place.source) {
        data.reset();
        file.reset();  // closed before the next is opened
        source = place.source;
        file = h5::File::open(paths[source]);
        data = open_experts(*file);
      }
      window[i - first].resize(place.size);
      data->read(place.offset, place.size, window[i - first].data());
    }
    for (std::size_t i = 0; i < window.size(); ++i) use(first + i, window[i]);
  }
}

RoutingColumns::RoutingColumns(const h5::File& file, const std::string& group,
                               const RoutingShape& shape, std::span<const Prompt> prompts,
                               std::uint64_t tokens)
    : width_(shape.width()) {
  if (width_ == 0) return;
  starts_.push_back(0);
  for (const Prompt& prompt : prompts) starts_.push_back(starts_.back() + prompt.tokens.size());
  const auto experts_of = [&](const std::string& name, std::uint64_t count) {
    return h5::Dataset::create<std::int16_t>(
        file, name + "/routed_experts",
        {.size = count * width_, .chunk = kChunk, .compressed = true});
  };
  of_prompts_ = experts_of("prompts", starts_.back());
  of_responses_ = experts_of(group, tokens);
  h5::write_all(file, group + "/routed_layers", shape.layers);
}

void RoutingColumns::write(std::uint32_t prompt, std::uint64_t offset, std::uint64_t length,
                           std::size_t first, std::span<const std::int16_t> experts) {
  if (width_ == 0 || length == 0) return;
  const std::uint64_t begin = starts_.at(prompt);
  const std::uint64_t size = starts_.at(prompt + 1) - begin;
  const std::uint64_t end = size + length - 1;  // of the positions with experts
  if (first > size || experts.size() != (end - first) * width_)
    throw std::logic_error("experts of another response");
  const std::size_t of_prompt = (size - first) * width_;
  of_prompts_.write((begin + first) * width_, of_prompt, experts.data());
  const auto own = experts.subspan(of_prompt);
  of_responses_.write(offset * width_, own.size(), own.data());
  const std::vector<std::int16_t> none(width_, -1);
  of_responses_.write(offset * width_ + own.size(), width_, none.data());
}

void RoutingColumns::write_unknown(std::uint32_t prompt) {
  if (width_ == 0) return;
  const std::uint64_t begin = starts_.at(prompt) * width_;
  const std::vector<std::int16_t> none(starts_.at(prompt + 1) * width_ - begin, -1);
  of_prompts_.write(begin, none.size(), none.data());
}

void RoutingColumns::flush() {
  if (width_ == 0) return;
  of_prompts_.flush();
  of_responses_.flush();
}

void RoutingColumns::close() {
  of_prompts_.close();
  of_responses_.close();
}

}  // namespace paceline::io
