#include "io/run/stored_routing.hpp"

#include "io/hdf5/file.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {

constexpr std::size_t kChunkCache = std::size_t{1} << 20;

struct StoredRouting::State {
  explicit State(const StoredRun& stored)
      : run(stored),
        width(stored.manifest.routing.width()),
        file(h5::File::open(stored.paths.front())),
        of_prompts(open("prompts/routed_experts")),
        of_responses(open("trajectories/routed_experts")) {
    starts.push_back(0);
    for (const Prompt& prompt : stored.prompts)
      starts.push_back(starts.back() + prompt.tokens.size());
  }
  [[nodiscard]] h5::Dataset open(const char* name) const {
    return h5::Dataset::open(file, name, h5::native<std::int16_t>(), kChunkCache);
  }

  const StoredRun& run;
  std::size_t width;  ///< experts of a token
  h5::File file;
  h5::Dataset of_prompts, of_responses;
  std::vector<std::uint64_t> starts;  ///< [prompts + 1] first token of each
};

StoredRouting::StoredRouting(const StoredRun& run) {
  const auto lock = h5::lock_hdf5();
  state_ = std::make_unique<State>(run);
}

StoredRouting::~StoredRouting() {
  const auto lock = h5::lock_hdf5();
  state_.reset();
}

std::vector<std::int16_t> StoredRouting::of(std::size_t response) const {
  const auto lock = h5::lock_hdf5();
  const State& s = *state_;
  const StoredResponse& entry = s.run.finished.at(response);
  const std::size_t prompt = (s.starts[entry.prompt + 1] - s.starts[entry.prompt]) * s.width;
  const std::size_t own = (entry.length - 1) * s.width;
  std::vector<std::int16_t> routing(prompt + own);
  s.of_prompts.read(s.starts[entry.prompt] * s.width, prompt, routing.data());
  s.of_responses.read(entry.offset * s.width, own, routing.data() + prompt);
  const RoutingShape& shape = s.run.manifest.routing;
  const auto chosen = static_cast<std::size_t>(shape.chosen);
  for (std::size_t i = 0; i < routing.size(); ++i) {
    const bool ascends = i % chosen == 0 || routing[i - 1] < routing[i];
    if (routing[i] < 0 || routing[i] >= shape.experts || !ascends)
      throw IoError("cannot read " + s.file.path() + ": its experts are damaged");
  }
  return routing;
}

}  // namespace paceline::io
