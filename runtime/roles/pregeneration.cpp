#include "runtime/roles/pregeneration.hpp"

#include <algorithm>
#include <utility>

namespace paceline::roles {

void Pregeneration::take(const PregeneratedRun& run, std::vector<Admission> requests) {
  if (!std::exchange(opened_, true)) sink_ = open_ ? open_(run) : nullptr;
  const std::vector<TokenId>* prompt = nullptr;
  for (Admission& request : requests) {
    // Of siblings, only the first has the prompt.
    if (!request.prompt.empty()) {
      prompt = &request.prompt;
    } else if (prompt != nullptr) {
      request.prompt = *prompt;
    }
    request.trajectory.id.prompt |= kUpcoming;
  }
  for (Admission& request : requests) waiting_.push_back(std::move(request));
}

/// Takes waiting requests into the batch while there is room. A request that does not fit even in
/// an empty batch is given up.
void Pregeneration::admit() {
  if (running_.empty()) blocks_free_ = batcher_.blocks_free();
  while (!full_ && !waiting_.empty()) {
    Admission& next = waiting_.front();
    Admission begun = next;
    begun.trajectory = {};
    const RequestId id = next.trajectory.id;
    if (!next.prompt.empty() && batcher_.admit(next)) {
      running_.emplace(id, std::move(begun));
    } else if (!running_.empty()) {
      full_ = true;
      return;
    } else {
      ++done_;
      keep(next.trajectory);
    }
    waiting_.pop_front();
  }
}

bool Pregeneration::step() {
  const double start = clock_.now();
  admit();
  const bool runs = running();
  if (runs) {
    const engine::Step& step = batcher_.plan();
    for (Admission& parked : batcher_.take_parked()) {
      leave(parked.trajectory.id);
      waiting_.push_front(std::move(parked));
    }
    const std::vector<Trajectory> finished = batcher_.commit(runner_.run(step));
    for (const engine::Committed& c : batcher_.committed()) tokens_ += c.tokens.size();
    for (const Trajectory& response : finished) {
      leave(response.id);
      ++done_;
      keep(response);
    }
  }
  seconds_ += clock_.now() - start;
  return runs;
}

Admission Pregeneration::leave(RequestId id) {
  full_ = false;
  return std::move(running_.extract(id).mapped());
}

void Pregeneration::drop() {
  if (!running()) return;
  std::vector<Trajectory> begun = batcher_.stop();
  std::for_each(begun.rbegin(), begun.rend(), [this](Trajectory& response) {
    Admission request = leave(response.id);
    request.trajectory = std::move(response);
    waiting_.push_front(std::move(request));
  });
}

void Pregeneration::end() {
  drop();
  for (const Admission& request : waiting_) keep(request.trajectory);
  waiting_.clear();
}

/// Writes the main fields of a response, finished or not, to the sink.
void Pregeneration::keep(const Trajectory& response) {
  if (sink_ == nullptr || response.tokens.empty()) return;
  Trajectory text;
  text.id = {response.id.prompt & ~kUpcoming, response.id.sample};
  text.tokens = response.tokens;
  text.logprob = response.logprob;
  text.sampling_logprob = response.sampling_logprob;
  text.finish_reason = response.finish_reason;
  text.reward = response.reward;
  text.weight_version = response.weight_version;
  sink_->append(text);
}

}  // namespace paceline::roles
