#include "io/workers/worker_pool.hpp"

#include <utility>

#include "io/workers/worker_line.hpp"

namespace paceline::io {

WorkerPool::WorkerPool(const RewardSection& settings, std::span<const std::string> subjects,
                       const Tokenizer& tokenizer, const Clock& clock)
    : settings_(settings),
      subjects_(subjects),
      tokenizer_(tokenizer),
      clock_(clock),
      jobs_(settings.workers),
      crew_({"reward", settings.command, settings.workers, settings.timeout}, *this, clock) {
  crew_.start();
}

void WorkerPool::submit(const Trajectory& response) {
  Job job;
  job.response.id = response.id;
  job.response.tokens = response.tokens;
  job.response.finish_reason = response.finish_reason;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(job));
  }
  crew_.ring();
}

std::vector<Score> WorkerPool::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(done_, {});
}

std::size_t WorkerPool::pending() const {
  const std::lock_guard lock(mutex_);
  return queue_.size() + in_flight_;
}

Trouble WorkerPool::trouble() const {
  const std::lock_guard lock(mutex_);
  return trouble_;
}

std::optional<std::string> WorkerPool::next(int worker) {
  {
    const std::lock_guard lock(mutex_);
    if (queue_.empty()) return std::nullopt;
    jobs_[worker] = std::move(queue_.front());
    queue_.pop_front();
    ++in_flight_;
  }
  const Trajectory& response = jobs_[worker].response;
  return request_line(response, subjects_[response.id.prompt], tokenizer_, settings_.send_tokens);
}

std::string WorkerPool::hear(const CrewLine& line, const std::string& answer) {
  Job& job = jobs_[line.worker];
  WorkerAnswer read = read_answer(answer, job.response.id);
  if (read.kind == WorkerAnswer::Kind::garbage) return read.text;
  Score score;
  score.start = line.asked;
  score.duration = line.now - line.asked;
  if (read.kind == WorkerAnswer::Kind::score) {
    score.value = read.score;
    score.extra = std::move(read.extra);
  } else {
    score.outcome = ScoreOutcome::refused;
    score.error = "a reward worker refused it: " + read.text;
  }
  finish(job, std::move(score));
  return "";
}

void WorkerPool::fail(const CrewLine& line, bool asked, ScoreOutcome outcome,
                      const std::string& what, bool /*given_up*/) {
  Job& job = jobs_[line.worker];
  {
    const std::lock_guard lock(mutex_);
    if (trouble_.failures++ == 0) trouble_.first = what;
    if (!asked) return;
    if (++job.attempts < settings_.attempts) {
      queue_.push_back(std::move(job));
      --in_flight_;
      return;
    }
  }
  Score score;
  score.outcome = outcome;
  score.start = line.asked;
  score.duration = line.now - line.asked;
  score.error = "a reward worker " + what;
  finish(job, std::move(score));
}

void WorkerPool::finish(const Job& job, Score score) {
  score.id = job.response.id;
  const std::lock_guard lock(mutex_);
  done_.push_back(std::move(score));
  --in_flight_;
}

void WorkerPool::none_left() {
  const std::lock_guard lock(mutex_);
  for (const Job& job : std::exchange(queue_, {})) {
    Score score;
    score.id = job.response.id;
    score.outcome = ScoreOutcome::not_tried;
    score.start = clock_.now();
    score.error = "no reward worker is left; the first one " + trouble_.first;
    done_.push_back(std::move(score));
  }
}

}  // namespace paceline::io
