#include "runtime/policy/schedule/balance.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace paceline::policy {

Balance::Balance(const RunState& run, double drafted) {
  // There may be a thousand groups, and a hundred requests of each.
  std::vector<int> index;  // by leader; -1: no group, or one that is to end
  for (const GroupState& group : run.groups) {
    const auto leader = static_cast<std::size_t>(group.ranks.leader);
    if (leader >= index.size()) index.resize(leader + 1, -1);
    index[leader] = static_cast<int>(loads.size());
    loads.push_back({group.room, group.costs, drafted});
  }
  const RequestTable& table = run.requests;
  std::vector<std::uint32_t> tokens;
  auto move = table.moves().begin();  // both are in the order of requests
  for (const auto& [id, request] : table.leased()) {
    while (move != table.moves().end() && move->first < id) ++move;
    const bool moves = move != table.moves().end() && move->first == id;
    const auto leader = static_cast<std::size_t>(moves ? move->second : request.group);
    const int group = leader < index.size() ? index[leader] : -1;
    if (request.ended || group < 0) continue;
    if (moves) --loads[group].room;
    const auto prompt = static_cast<double>(run.prompts[id.prompt].tokens.size());
    requests.push_back({group, prompt + request.tokens, 0, moves});
    ids.push_back(id);
    tokens.push_back(request.tokens);
  }
  const std::vector<double> remaining = table.lengths().remaining(tokens);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].remaining = remaining[i];
    if (const auto most = run.prompts[ids[i].prompt].sampling.max_tokens)
      requests[i].remaining =
          std::min(remaining[i], std::max(0.0, *most - static_cast<double>(tokens[i])));
  }
}

}  // namespace paceline::policy
