#include "io/run/digest.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "io/hdf5/file.hpp"
#include "io/run/stored_run.hpp"

namespace paceline::io {
namespace {

/// The position of each prompt in the order of uids.
std::vector<std::size_t> rank_by_uid(const std::vector<Prompt>& prompts) {
  std::vector<std::size_t> order(prompts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {},
                           [&](std::size_t i) -> const std::string& { return prompts[i].uid; });
  std::vector<std::size_t> rank(prompts.size());
  for (std::size_t i = 0; i < order.size(); ++i) rank[order[i]] = i;
  return rank;
}

}  // namespace

DigestReport digest_report(const std::string& path) {
  const auto lock = h5::lock_hdf5();
  StoredRun run = open_stored_run(path);
  const std::vector<std::size_t> rank = rank_by_uid(run.prompts);
  std::ranges::sort(run.finished, {},
                    [&](const StoredResponse& r) { return std::pair(rank[r.prompt], r.sample); });
  TrajectoryDigest digest;
  read_responses(run, run.finished, [&](Trajectory&& response) {
    const Prompt& prompt = run.prompts[response.id.prompt];
    digest.add(prompt.uid, prompt.tokens, response);
  });
  return {digest.hex(), run.finished.size(), ResponseOrder(run.manifest).size()};
}

}  // namespace paceline::io
