#include "io/workers/environment_pool.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "io/workers/worker_line.hpp"

namespace paceline::io {
namespace {

constexpr int kMostWarnings = 3;  // of a rank; further failures have the same reasons

}  // namespace

EnvironmentPool::EnvironmentPool(const EnvironmentSection& settings,
                                 std::span<const std::string> scenes, const Tokenizer& tokenizer,
                                 TurnEncoder encoder, EnvironmentRun run, const Clock& clock)
    : settings_(settings),
      scenes_(scenes),
      tokenizer_(tokenizer),
      encoder_(std::move(encoder)),
      run_(std::move(run)),
      clock_(clock),
      places_(settings.workers),
      crew_({"environment", settings.command, settings.workers, settings.timeout}, *this, clock) {
  crew_.start();
}

void EnvironmentPool::ask(const Trajectory& response, bool goes_on) {
  Job job;
  job.response.id = response.id;
  job.response.tokens = response.tokens;
  job.response.turns = response.turns;
  job.response.finish_reason = response.finish_reason;
  job.goes_on = goes_on;
  job.asked = clock_.now();
  {
    const std::lock_guard lock(mutex_);
    asked_.push_back(std::move(job));
  }
  crew_.ring();
}

void EnvironmentPool::leave(RequestId id) {
  Job job;
  job.response.id = id;
  job.close = true;
  {
    const std::lock_guard lock(mutex_);
    asked_.push_back(std::move(job));
  }
  crew_.ring();
}

std::vector<EnvironmentReply> EnvironmentPool::take() {
  std::vector<Done> done;
  {
    const std::lock_guard lock(mutex_);
    if (fault_) throw Error(*fault_);
    done = std::exchange(done_, {});
  }
  std::vector<EnvironmentReply> replies;
  for (Done& d : done) {
    if (!d.error.empty() && warnings_++ < kMostWarnings)
      run_.warn(fmt::format("the conversation of prompt {} sample {} failed: {}", d.reply.id.prompt,
                            d.reply.id.sample, d.error));
    replies.push_back(std::move(d.reply));
  }
  return replies;
}

/// Assigns new jobs to workers.
void EnvironmentPool::deal_out() {
  std::deque<Job> asked;
  {
    const std::lock_guard lock(mutex_);
    asked = std::exchange(asked_, {});
  }
  for (Job& job : asked) assign(std::move(job));
}

void EnvironmentPool::assign(Job job) {
  const RequestId id = job.response.id;
  auto session = sessions_.find(id);
  if (job.close) {
    if (session == sessions_.end()) return;
    Place& place = places_[session->second.worker];
    // Turns of it that wait are no longer wanted; a turn under way is finished.
    const auto first = place.jobs.begin() + (place.jobs.empty() ? 0 : 1);
    place.jobs.erase(
        std::remove_if(first, place.jobs.end(), [&](const Job& j) { return j.response.id == id; }),
        place.jobs.end());
    if (session->second.told == 0 && place.jobs.empty()) {
      forget(id);
    } else {
      place.jobs.push_back(std::move(job));
    }
    return;
  }
  if (session != sessions_.end() && places_[session->second.worker].given_up) {
    forget(id);
    session = sessions_.end();
  }
  if (session == sessions_.end()) {
    const auto rank = [](const Place& p) { return std::pair(p.given_up, p.sessions); };
    const auto least = std::ranges::min_element(places_, {}, rank);
    session = sessions_.emplace(id, Session{static_cast<int>(least - places_.begin()), 0}).first;
    ++least->sessions;
  }
  places_[session->second.worker].jobs.push_back(std::move(job));
}

void EnvironmentPool::forget(RequestId id) {
  const auto session = sessions_.find(id);
  if (session == sessions_.end()) return;
  --places_[session->second.worker].sessions;
  sessions_.erase(session);
}

std::optional<std::string> EnvironmentPool::next(int worker) {
  deal_out();
  Place& place = places_[worker];
  while (!place.jobs.empty()) {
    Job& job = place.jobs.front();
    const Trajectory& response = job.response;
    auto session = sessions_.find(response.id);
    if (session != sessions_.end() && session->second.worker != worker) {
      place.jobs.pop_front();  // the conversation left, and returned to another worker
      continue;
    }
    if (job.close) {
      if (session != sessions_.end() && session->second.told > 0) return close_line(response.id);
      forget(response.id);  // the process that knew the conversation is gone
      place.jobs.pop_front();
      continue;
    }
    if (session == sessions_.end()) {  // closed and begun again
      session = sessions_.emplace(response.id, Session{worker, 0}).first;
      ++place.sessions;
    }
    const std::size_t turn = std::min(session->second.told, response.turns.size());
    const bool replay = turn < response.turns.size();
    return turn_line(response, turn, scenes_[response.id.prompt], tokenizer_,
                     {.last = !replay && !job.goes_on, .replay = replay});
  }
  return std::nullopt;
}

/// Encodes an observation. Returns why it cannot be encoded, else "".
std::string EnvironmentPool::encode(const TurnAnswer& answer, TokenId last,
                                    EnvironmentReply& reply) const {
  try {
    if (const auto* ids = std::get_if<std::vector<TokenId>>(&answer.observation)) {
      reply.tokens = *ids;
      reply.by = GivenBy::tokens;
    } else if (const auto* text = std::get_if<std::string>(&answer.observation);
               text != nullptr && !encoder_.has_template()) {
      reply.tokens = encoder_.encode_plainly(*text);
      reply.by = GivenBy::user;
    } else {
      std::vector<ChatMessage> messages;
      if (text != nullptr) {
        messages.push_back(encoder_.message_of(*text));
      } else if (const auto* said = std::get_if<std::vector<ChatMessage>>(&answer.observation)) {
        messages = *said;
      } else {
        return "neither an observation nor done";
      }
      reply.tokens = encoder_.encode(messages, last);
      const bool tool = messages.front().role == "tool" || messages.front().role == "ipython";
      reply.by = tool ? GivenBy::tool : GivenBy::user;
    }
  } catch (const DataError& error) {
    return std::string("an observation that cannot be encoded: ") + error.what();
  }
  if (reply.tokens.empty()) return "an observation without tokens";
  const auto wrong = std::ranges::find_if(
      reply.tokens, [this](TokenId t) { return t < 0 || t >= run_.vocabulary; });
  if (wrong != reply.tokens.end())
    return fmt::format("token {}, where the model has ids below {}", *wrong, run_.vocabulary);
  for (const TokenId id : run_.placeholders) {
    if (std::ranges::find(reply.tokens, id) != reply.tokens.end())
      return fmt::format("token {}, which stands for a picture or a film", id);
  }
  if (std::ssize(reply.tokens) >= run_.context)
    return fmt::format("an observation of {} tokens, where the model has a context of {}",
                       reply.tokens.size(), run_.context);
  return "";
}

std::string EnvironmentPool::hear(const CrewLine& line, const std::string& answer) {
  Place& place = places_[line.worker];
  Job& job = place.jobs.front();
  const RequestId id = job.response.id;
  const auto session = sessions_.find(id);
  const bool replay = !job.close && session->second.told < job.response.turns.size();
  TurnAnswer read = read_turn_answer(answer, id, !job.close && !replay);
  if (read.kind == TurnAnswer::Kind::garbage) return read.text;
  answered_ = true;
  if (replay) {
    ++session->second.told;
    return "";
  }
  if (job.close) {
    forget(id);
    place.jobs.pop_front();
    return "";
  }
  EnvironmentReply reply;
  std::string error;
  if (read.kind == TurnAnswer::Kind::error) {
    error = read.text;
  } else if (!read.done && job.goes_on) {
    error = encode(read, job.response.tokens.back(), reply);
    if (!error.empty()) error = "wrote " + error;
  }
  if (!error.empty()) {
    reply = {};
    reply.failed = true;
    error = "an environment worker " + error;
  } else {
    reply.done = read.done;
    reply.reward = read.reward;
    reply.extra = std::move(read.extra);
  }
  ++session->second.told;
  const Job answered = std::move(job);
  place.jobs.pop_front();
  if (reply.done) forget(id);  // a failed conversation is closed by leave()
  finish(answered, std::move(reply), std::move(error));
  return "";
}

void EnvironmentPool::fail(const CrewLine& line, bool asked, ScoreOutcome /*outcome*/,
                           const std::string& what, bool given_up) {
  Place& place = places_[line.worker];
  last_failure_ = what;
  for (auto& [id, session] : sessions_) {
    if (session.worker == line.worker) session.told = 0;
  }
  if (asked) {
    Job& job = place.jobs.front();
    if (job.close) {
      forget(job.response.id);
      place.jobs.pop_front();
    } else if (answered_ && ++job.attempts >= settings_.attempts) {
      const Job failed = std::move(job);
      place.jobs.pop_front();
      forget(failed.response.id);
      EnvironmentReply reply;
      reply.failed = true;
      finish(failed, std::move(reply), "an environment worker " + what);
    }
  }
  if (!given_up) return;
  place.given_up = true;
  for (Job& job : std::exchange(place.jobs, {})) assign(std::move(job));
}

void EnvironmentPool::none_left() {
  deal_out();
  std::set<RequestId> waiting;
  for (const Place& place : places_) {
    for (const Job& job : place.jobs) {
      if (job.close) {
        waiting.erase(job.response.id);
      } else {
        waiting.insert(job.response.id);
      }
    }
  }
  if (waiting.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    if (fault_) return;
    if (answered_) {
      fault_.emplace(ExitCode::try_again,
                     "environment.command: no worker is left to answer turns, as the last one " +
                         last_failure_ + "; run again with --resume to continue");
    } else {
      fault_.emplace(
          ExitCode::bad_data,
          "environment.command: no worker has ever answered, and the last one " + last_failure_);
    }
  }
  run_.wake();
}

void EnvironmentPool::finish(const Job& job, EnvironmentReply reply, std::string error) {
  reply.id = job.response.id;
  reply.seconds = clock_.now() - job.asked;
  {
    const std::lock_guard lock(mutex_);
    done_.push_back({std::move(reply), std::move(error)});
  }
  run_.wake();
}

}  // namespace paceline::io
