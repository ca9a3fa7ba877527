#include "runtime/policy/schedule/balance.hpp"

#include <algorithm>
#include <cstdint>
#include <map>

namespace paceline::policy {

Balance::Balance(const RunState& run, double drafted) {
  std::map<int, int> index;  // by leader
  for (const GroupState& group : run.groups) {
    index[group.ranks.leader] = static_cast<int>(loads.size());
    loads.push_back({group.room, group.costs, drafted});
  }
  const RequestTable& table = run.requests;
  std::vector<std::uint32_t> tokens;
  for (const auto& [id, request] : table.leased()) {
    const auto move = table.moves().find(id);
    const bool moves = move != table.moves().end();
    const auto group = index.find(moves ? move->second : request.group);
    if (request.ended || group == index.end()) continue;  // second case: its group is to end
    if (moves) --loads[group->second].room;
    const auto prompt = static_cast<double>(run.prompts[id.prompt].tokens.size());
    requests.push_back({group->second, prompt + request.tokens, 0, moves});
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
