#include "runtime/sim/environment.hpp"

#include <stdexcept>
#include <utility>

namespace paceline::sim {

void ModelledEnvironment::ask(const Trajectory& response, bool goes_on) {
  const Response& modelled = responses_.of(response.id);
  const std::vector<ModelledTurn>& turns = modelled.request->turns;
  const std::size_t number = response.turns.size();
  const ModelledTurn whole{.end = modelled.request->length};  // the turn of a response of one turn
  const bool one = turns.empty() && number == 0;
  if (!one && number >= turns.size()) throw std::logic_error("a turn past those of the workload");
  const ModelledTurn& turn = one ? whole : turns[number];
  if (turn.end != std::ssize(response.tokens))
    throw std::logic_error("a turn that ends where the workload has no end");
  EnvironmentReply reply;
  reply.id = response.id;
  reply.failed = turn.failed;
  reply.done = turn.given == 0 && !turn.failed;
  reply.seconds = turn.seconds;
  if (goes_on && turn.given > 0) {
    reply.by = GivenBy::tool;
    for (std::int32_t t = 0; t < turn.given; ++t)
      reply.tokens.push_back(responses_.token(modelled, turn.end + t));
  }
  const double at = world_.clock(actor_).now() + turn.seconds;
  coming_.emplace(at, std::move(reply));
  world_.wake(actor_, at);
}

void ModelledEnvironment::leave(RequestId id) {
  std::erase_if(coming_, [id](const auto& coming) { return coming.second.id == id; });
}

std::vector<EnvironmentReply> ModelledEnvironment::take() {
  std::vector<EnvironmentReply> there;
  const auto end = coming_.upper_bound(world_.clock(actor_).now());
  for (auto at = coming_.begin(); at != end; ++at) there.push_back(std::move(at->second));
  coming_.erase(coming_.begin(), end);
  return there;
}

}  // namespace paceline::sim
