#include "app/run_report/trace.hpp"

#include <fmt/format.h>

#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "runtime/core/role.hpp"

namespace paceline::app {
namespace {

constexpr int kSteps = 0;  // this and the next two: thread numbers in each process of the trace
constexpr int kTransfers = 1;
constexpr int kWrites = 2;

const char* name_of(WriteRecord::Kind kind) {
  switch (kind) {
    case WriteRecord::Kind::trajectories:
      return "trajectories";
    case WriteRecord::Kind::telemetry:
      return "telemetry";
    case WriteRecord::Kind::final_trajectories:
      return "final trajectories";
    case WriteRecord::Kind::final_telemetry:
      return "final telemetry";
  }
  return "?";  // a damaged file
}

/// Returns the text with '?' for quotes, backslashes, control characters and non-ASCII bytes.
std::string plain_ascii(const std::string& text) {
  std::string plain;
  for (const char c : text) plain += c < ' ' || c == '"' || c == '\\' || c == 127 ? '?' : c;
  return plain;
}

class Trace {
 public:
  explicit Trace(const RecordedTelemetry& run) {
    for (const RecordedAttempt& attempt : run.attempts)
      begins_[attempt.attempt] = 1e6 * (attempt.started - run.attempts.front().started);
    for (const RecordedProcess& process : run.processes)
      hosts_[{process.attempt, process.rank}] = plain_ascii(process.host);
  }

  /// The trace's process number for a rank of an attempt. If the process is new, names it first.
  int process(std::uint32_t attempt, std::uint32_t rank) {
    const auto [at, added] =
        processes_.emplace(std::pair(attempt, rank), static_cast<int>(processes_.size()));
    if (added) {
      const std::string& host = hosts_[{attempt, rank}];
      add(R"("ph":"M","name":"process_name","pid":{},"args":{{"name":"{}{}rank {}, attempt {}"}})",
          at->second, host, host.empty() ? "" : ": ", rank, attempt);
      add(R"("ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"steps"}})",
          at->second, kSteps);
      add(R"("ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"KV transfers"}})",
          at->second, kTransfers);
      add(R"("ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"writing"}})",
          at->second, kWrites);
    }
    return at->second;
  }

  void slice(const char* name, int process, int thread, double begin, double seconds,
             const std::string& arguments = {}) {
    if (!(seconds > 0)) return;
    add(R"("ph":"X","name":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{{}}})", name,
        process, thread, begin, 1e6 * seconds, arguments);
  }

  /// Microseconds from the run's start to `time`, which is in seconds since the attempt's start.
  [[nodiscard]] double at(std::uint32_t attempt, double time) const {
    const auto begin = begins_.find(attempt);
    return (begin == begins_.end() ? 0 : begin->second) + 1e6 * time;
  }

  [[nodiscard]] std::string text() const {
    return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + events_ + "\n]}\n";
  }

 private:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    events_ += events_.empty() ? "{" : ",\n{";
    fmt::format_to(std::back_inserter(events_), format, std::forward<Args>(args)...);
    events_ += '}';
  }

  std::map<std::uint32_t, double> begins_;  ///< [attempt] microseconds since the run's start
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::string> hosts_;  ///< (attempt, rank)
  std::map<std::pair<std::uint32_t, std::uint32_t>, int> processes_;
  std::string events_;
};

}  // namespace

std::string trace_of(const RecordedTelemetry& run) {
  Trace trace(run);
  for (const auto& [role, attempt, rank] : run.roles) {
    trace.slice("preparing", trace.process(attempt, rank), kSteps, trace.at(attempt, role.start),
                role.preparing,
                fmt::format(R"("role":"{}","loading":{:.6f})",
                            name_of(static_cast<Role>(role.role)), role.loading));
  }
  for (const auto& [step, attempt, rank] : run.steps) {
    const int process = trace.process(attempt, rank);
    const double begin = trace.at(attempt, step.start);
    trace.slice(
        "step", process, kSteps, begin, step.duration,
        fmt::format(
            R"("requests":{},"prefill":{},"decode":{},"drafted":{},"accepted":{},"kv_blocks":{})",
            step.requests, step.prefill_tokens, step.decode_tokens, step.drafted, step.accepted,
            step.kv_blocks_used));
    double next = begin;
    // Collectives get no slices, because a step's record has only the sums of their seconds.
    for (const auto& [name, seconds, communication] :
         {std::tuple("draft", step.draft_duration, 0.0),
          std::tuple("pictures", step.picture_duration, 0.0),
          std::tuple("forward", step.forward_duration, step.sum_duration),
          std::tuple("sample", step.sample_duration, step.exchange_duration)}) {
      trace.slice(name, process, kSteps, next, seconds,
                  communication > 0 ? fmt::format(R"("communication":{:.6f})", communication) : "");
      next += 1e6 * seconds;
    }
  }
  for (const auto& [transfer, attempt, rank] : run.transfers) {
    trace.slice(transfer.sends != 0 ? "send KV" : "receive KV", trace.process(attempt, rank),
                kTransfers, trace.at(attempt, transfer.start), transfer.duration,
                fmt::format(R"("bytes":{},"peer":{},"complete":{})", transfer.bytes, transfer.peer,
                            transfer.complete));
  }
  for (const auto& [write, attempt, rank] : run.writes) {
    trace.slice(name_of(write.kind), trace.process(attempt, rank), kWrites,
                trace.at(attempt, write.start), write.duration);
  }
  return trace.text();
}

}  // namespace paceline::app
