// What speculation gains over plain decoding, measured in the same run: bench_speculation.
// For each batch size the same requests are decoded plainly and with each policy, in turn and
// several times, by continuous batching as a verifier does it. The first time warms up and teaches
// the policy, which lives as long as in a rollout; then medians. Ratios are of runs next to one
// another. Every run must give the same tokens and log-probabilities, or the exit code is 1.
//   bench_speculation                          speed
//   bench_speculation --threads 1 --cpu-time   the same in seconds of CPU, for a shared machine
//   bench_speculation --arrivals HOW           speed and mean latency of requests that arrive at
//   times                                      (arrivals.hpp); batches are the largest ones then
//   bench_speculation --acceptance             how much of drafts is accepted
//   (acceptance_bench.cpp)
//   bench_speculation --head DIR ...           with an EAGLE-3 head too: --drafters eagle3
//   bench_speculation --head mtp ...           with the target's own layer: --drafters mtp
//   bench_speculation --costs                  what the self-measurement foretells of a run's steps
//   (cost_bench.cpp)
//   bench_speculation --decisions              what the policies take to decide
//   (decision_bench.cpp)
//   bench_speculation --backend cuda --target tests/bench/shapes/qwen2.5-7b --layers-draft 1
//       --scale S                              random weights; the draft is the target's first
//       layer
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/core/quantile.hpp"
#include "runtime/policy/length/make_draft_length.hpp"
#include "runtime/speculation/speculator.hpp"
#include "tests/bench/arrivals.hpp"
#include "tests/bench/machine.hpp"
#include "tests/bench/speculation_setup.hpp"

namespace {

using namespace paceline;
using bench::SpeculationOptions;
using bench::SpeculationSetup;

double load() {
  double average[1] = {0};
  return getloadavg(average, 1) == 1 ? average[0] : -1;
}

/// The requests of one batch size.
struct Workload {
  int batch = 1;
  int requests = 1;
  int max_tokens = 1;
  std::vector<double> arrivals;  ///< [requests] seconds; empty: as soon as there is a place
};

struct Run {
  std::vector<Trajectory> trajectories;  ///< [requests]
  double seconds = 0;                    ///< but for those without a request
  double latency = 0;                    ///< from arrival to end, mean over requests
  double draft_seconds = 0;
  double tokens = 0;          ///< of all responses
  double decoding_steps = 0;  ///< summed over requests
  double committed = 0;       ///< in those
  [[nodiscard]] double rate() const { return tokens / seconds; }
};

/// Decodes the workload to its end. `speculator`: null for plain decoding. `first_prompt`: see
/// SpeculationSetup::request().
Run decode(SpeculationSetup& setup, const Workload& work, speculation::Speculator* speculator,
           std::uint32_t first_prompt) {
  Run run;
  run.trajectories.resize(work.requests);
  std::vector<Admission> requests;
  for (int i = 0; i < work.requests; ++i) requests.push_back(setup.request(i, first_prompt));
  engine::Batcher batcher = setup.batcher(work.batch, work.max_tokens);
  const bench::SpeculationClock clock(setup.options.cpu_time);
  const double start = clock.now();
  double idle = 0;  // nothing is waited for: time without requests is only counted
  const auto arrival = [&](std::size_t i) { return work.arrivals.empty() ? 0 : work.arrivals[i]; };
  for (std::size_t next = 0; next < requests.size() || batcher.active() > 0;) {
    if (batcher.active() == 0) idle = std::max(idle, arrival(next) - (clock.now() - start));
    while (next < requests.size() && batcher.active() < work.batch &&
           arrival(next) <= clock.now() - start + idle) {
      if (speculator != nullptr) speculator->start(requests[next]);
      if (!batcher.admit(requests[next++])) throw std::logic_error("the KV pool is too small");
    }
    if (batcher.active() == 0) continue;  // the clock is still a rounding before the arrival
    std::span<const engine::DraftTree> drafts;
    if (speculator != nullptr) {
      const std::span<const engine::Decoding> decoding = batcher.decoding();
      drafts = speculator->draft(decoding, batcher.prefill_rows());
      run.draft_seconds += speculator->draft_seconds();
    }
    const double drafted = clock.now();
    std::vector<Trajectory> finished = batcher.commit(setup.executor->run(batcher.plan(drafts)));
    const double verified = clock.now();
    for (const engine::Committed& c : batcher.committed()) {
      run.tokens += static_cast<double>(c.tokens.size());
      if (c.decoding < 0) continue;
      run.decoding_steps += 1;
      run.committed += static_cast<double>(c.tokens.size());
    }
    if (speculator != nullptr) {
      if (speculator->observes()) speculator->observe(batcher.computed(), *setup.executor);
      speculator->commit(batcher.committed(), verified - drafted);
    }
    for (Trajectory& t : finished) {
      const auto index = static_cast<int>(t.id.prompt - first_prompt) * setup.options.samples +
                         static_cast<int>(t.id.sample);
      run.trajectories[index] = std::move(t);
      run.latency += (clock.now() - start + idle - arrival(index)) / work.requests;
    }
  }
  run.seconds = clock.now() - start;
  return run;
}

/// Enough requests that the batch is mostly full, of a length that keeps to the time. Where they
/// arrive at times, as many; where they all do at once, a batch, so that it shrinks to one.
Workload plan(SpeculationSetup& setup, int batch) {
  constexpr int kTurnover = 2;  // requests a place of the batch
  constexpr int kLeastTokens = 16;
  Workload work{batch, kTurnover * batch, std::min(64, setup.options.max_tokens), {}};
  const Run trial = decode(setup, work, nullptr, 0);
  const double tokens = trial.rate() * setup.options.seconds;
  work.max_tokens =
      std::clamp(static_cast<int>(tokens / work.requests), kLeastTokens, setup.options.max_tokens);
  const Run again = decode(setup, work, nullptr, 0);
  work.requests = std::max(work.requests, static_cast<int>(work.requests * tokens / again.tokens));
  const std::string& how = setup.options.arrivals;
  if (how.empty()) return work;
  if (how == "once") {
    work.requests = batch;
    work.max_tokens = setup.options.max_tokens;
  }
  work.arrivals = bench::arrivals(how, work.requests);
  return work;
}

/// A policy by name: that of speculation.policy, after which "goodput:PATHS", "fixed:LENGTH" and
/// "tetris:LENGTH" have a number.
struct Named {
  SpeculationPolicy policy = SpeculationPolicy::goodput;
  int length = 0;  ///< of the longest draft
  int paths = 0;
};
Named named(const std::string& text, const SpeculationOptions& options) {
  Named named{SpeculationPolicy::goodput, options.max_length, options.paths};
  const std::size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  const auto* policy = std::find_if(kSpeculationPolicies.begin(), kSpeculationPolicies.end(),
                                    [&](SpeculationPolicy p) { return name == name_of(p); });
  bool known = policy != kSpeculationPolicies.end();
  if (known) named.policy = *policy;
  if (colon != std::string::npos) {
    known = known && (drafts_always(named.policy) || named.policy == SpeculationPolicy::goodput);
    (drafts_always(named.policy) ? named.length : named.paths) =
        std::atoi(text.c_str() + colon + 1);
  }
  if (!known || named.length < 1 || named.length > options.max_length || named.paths < 1 ||
      named.paths > options.paths) {
    std::string names;
    for (const SpeculationPolicy p : kSpeculationPolicies)
      names += std::string(names.empty() ? "" : ", ") + name_of(p);
    throw std::invalid_argument("policies are " + names +
                                ", goodput:PATHS, fixed:LENGTH and tetris:LENGTH, not " + text);
  }
  return named;
}

/// A policy under test and what was measured of it.
struct Contender {
  std::string name;
  std::unique_ptr<speculation::Speculator> speculator;  ///< null: plain
  std::vector<double> rates, ratios, latencies, steps, draft_shares;
  /// At position 1 before the counted runs.
  double drafted_before = 0, accepted_before = 0;

  [[nodiscard]] std::pair<double, double> first_position() const {
    double drafted = 0;
    double accepted = 0;
    for (const AcceptanceCell& cell : speculator->acceptance()) {
      if (cell.position != 1) continue;
      drafted += static_cast<double>(cell.drafted);
      accepted += static_cast<double>(cell.accepted);
    }
    return {drafted, accepted};
  }
};

Contender make_contender(SpeculationSetup& setup, const std::string& name, const Workload& work,
                         const Clock& clock) {
  const auto [policy, length, paths] = named(name, setup.options);
  speculation::DrafterRoster drafters = setup.drafters(work.batch, work.max_tokens);
  CostTable costs;
  if (reads_costs(policy)) costs = setup.measure_costs(drafters, work.batch, clock).table;
  Contender contender;
  contender.name = name;
  contender.speculator = std::make_unique<speculation::Speculator>(
      std::move(drafters), policy::make_draft_length(policy, std::move(costs), length, 1),
      draft::DraftLimits{length * paths, length, paths}, clock);
  return contender;
}

bool same(const std::vector<Trajectory>& a, const std::vector<Trajectory>& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [](const Trajectory& x, const Trajectory& y) {
        return x.tokens == y.tokens && x.logprob.size() == y.logprob.size() &&
               std::memcmp(x.logprob.data(), y.logprob.data(), x.logprob.size() * sizeof(float)) ==
                   0;
      });
}

void print(const Workload& work, const Contender& c) {
  std::printf("%5d  %-16s %9.1f", work.batch, c.name.c_str(), quantile(c.rates, 0.5));
  if (!work.arrivals.empty()) std::printf("  %7.3f s", quantile(c.latencies, 0.5));
  if (c.speculator == nullptr) {
    std::printf("\n");
    return;
  }
  const auto [drafted, accepted] = c.first_position();
  const auto [low, high] = std::minmax_element(c.ratios.begin(), c.ratios.end());
  const double judged = drafted - c.drafted_before;
  std::printf("  %5.2f  %5.2f-%.2f  %11.2f", quantile(c.ratios, 0.5), *low, *high,
              quantile(c.steps, 0.5));
  if (judged > 0) {
    std::printf("  %12.3f", (accepted - c.accepted_before) / judged);
  } else {
    std::printf("  %12s", "-");
  }
  std::printf("  %7.1f %%\n", 100 * quantile(c.draft_shares, 0.5));
}

/// False when a run gave other trajectories.
bool bench_batch(SpeculationSetup& setup, int batch) {
  const bench::SpeculationClock clock(setup.options.cpu_time);
  const Workload work = plan(setup, batch);
  std::vector<Contender> contenders(1);
  contenders[0].name = "plain";
  for (const std::string& name : setup.options.policies)
    contenders.push_back(make_contender(setup, name, work, clock));
  std::vector<Trajectory> expected;
  std::uint32_t first_prompt = 0;
  for (int repeat = 0; repeat <= setup.options.repeats; ++repeat) {
    double plain = 0;
    for (Contender& c : contenders) {
      const Run run = decode(setup, work, c.speculator.get(), first_prompt);
      if (expected.empty()) expected = run.trajectories;
      if (!same(run.trajectories, expected)) {
        std::fprintf(stderr, "batch %d, %s: other tokens than plain decoding\n", batch,
                     c.name.c_str());
        return false;
      }
      if (c.speculator == nullptr) plain = run.rate();
      if (repeat == 0) {
        if (c.speculator != nullptr)
          std::tie(c.drafted_before, c.accepted_before) = c.first_position();
        continue;
      }
      c.rates.push_back(run.rate());
      c.latencies.push_back(run.latency);
      c.ratios.push_back(run.rate() / plain);
      c.steps.push_back(run.committed / run.decoding_steps);
      c.draft_shares.push_back(run.draft_seconds / run.seconds);
    }
    first_prompt += static_cast<std::uint32_t>(work.requests);
  }
  for (const Contender& c : contenders) print(work, c);
  std::printf("       (%d requests of up to %d tokens)\n", work.requests, work.max_tokens);
  return true;
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

int positive(const std::string& text) {
  const int number = std::atoi(text.c_str());
  if (number < 1) throw std::invalid_argument("a positive number is wanted, not " + text);
  return number;
}

bool is_device(const std::string& backend) {
  if (backend != "cpu" && backend != "cuda")
    throw std::invalid_argument("backends are cpu and cuda, not " + backend);
  return backend == "cuda";
}

SpeculationOptions read_arguments(int argc, char** argv) {
  SpeculationOptions o;
  const std::map<std::string, std::function<void(const std::string&)>> known{
      {"--target", [&](const std::string& v) { o.target = v; }},
      {"--draft", [&](const std::string& v) { o.draft = v; }},
      {"--head", [&](const std::string& v) { o.head = v; }},
      {"--prompts", [&](const std::string& v) { o.prompts = v; }},
      {"--layers-draft", [&](const std::string& v) { o.layers_draft = positive(v); }},
      {"--stops", [&](const std::string& v) { o.stops = positive(v); }},
      {"--scale", [&](const std::string& v) { o.scale = std::atof(v.c_str()); }},
      {"--isa", [&](const std::string& v) { o.isa = v; }},
      {"--backend", [&](const std::string& v) { o.device = is_device(v); }},
      {"--threads", [&](const std::string& v) { o.threads = positive(v); }},
      {"--samples", [&](const std::string& v) { o.samples = positive(v); }},
      {"--prompt-count", [&](const std::string& v) { o.prompt_count = positive(v); }},
      {"--temperature", [&](const std::string& v) { o.temperature = std::atof(v.c_str()); }},
      {"--tokens", [&](const std::string& v) { o.max_tokens = positive(v); }},
      {"--max-length", [&](const std::string& v) { o.max_length = positive(v); }},
      {"--paths", [&](const std::string& v) { o.paths = positive(v); }},
      {"--repeats", [&](const std::string& v) { o.repeats = positive(v); }},
      {"--arrivals", [&](const std::string& v) { o.arrivals = v; }},
      {"--seconds", [&](const std::string& v) { o.seconds = std::atof(v.c_str()); }},
      {"--drafters", [&](const std::string& v) { o.drafters = split(v); }},
      {"--policies", [&](const std::string& v) { o.policies = split(v); }},
      {"--batches",
       [&](const std::string& v) {
         o.batches.clear();
         for (const std::string& part : split(v)) o.batches.push_back(positive(part));
       }},
  };
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto option = known.find(argument);
    if (argument == "--acceptance") {
      o.acceptance = true;
    } else if (argument == "--costs") {
      o.costs = true;
    } else if (argument == "--decisions") {
      o.decisions = true;
    } else if (argument == "--cpu-time") {
      o.cpu_time = true;
    } else if (option != known.end() && i + 1 < argc) {
      option->second(argv[++i]);
    } else {
      std::string usage =
          "usage: bench_speculation [--acceptance] [--costs] [--decisions] [--cpu-time]";
      for (const auto& [name, set] : known) usage += " [" + name + " VALUE]";
      throw std::invalid_argument(usage);
    }
  }
  if (o.cpu_time && o.threads != 1) throw std::invalid_argument("--cpu-time needs --threads 1");
  if (o.batches.empty() || o.drafters.empty())
    throw std::invalid_argument("batches and drafters must not be empty");
  for (const std::string& name : o.policies) static_cast<void>(named(name, o));
  if (!o.arrivals.empty()) static_cast<void>(bench::arrivals(o.arrivals, 1));
  // Cheap drafters first, as speculation::Speculator wants them.
  std::stable_partition(o.drafters.begin(), o.drafters.end(),
                        [](const std::string& name) { return name != "model"; });
  return o;
}

int bench_speed(SpeculationSetup& setup) {
  const std::string isa = setup.backend->info().isa;
  if (setup.options.device) {
    std::printf("instruction set %s, load average %.1f\n", isa.c_str(), load());
  } else {
    const bench::Machine machine = bench::measure_machine(setup.options.threads, isa);
    std::printf(
        "instruction set %s, %d threads; bf16 product peak %.1f GFLOP/s, memory read %.1f "
        "GB/s, load average %.1f\n",
        isa.c_str(), setup.options.threads, machine.products / 1e9, machine.bandwidth / 1e9,
        load());
  }
  std::printf("target %s, weights %.1f MB; drafters:", setup.options.target.c_str(),
              static_cast<double>(setup.executor->weight_bytes()) / 1e6);
  for (const std::string& name : setup.options.drafters) std::printf(" %s", name.c_str());
  std::printf(", up to %d tokens, %d paths\n\n", setup.options.max_length, setup.options.paths);
  std::printf(
      "batch  policy            tokens/s  %sratio     min-max  tokens/step  acceptance 1  "
      "drafting\n",
      setup.options.arrivals.empty() ? "" : " latency   ");
  for (const int batch : setup.options.batches) {
    if (!bench_batch(setup, batch)) return 1;
  }
  std::printf("load average at the end %.1f\n", load());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    const SpeculationOptions options = read_arguments(argc, argv);
    if (options.decisions) {
      bench::bench_decisions(options);
      return 0;
    }
    SpeculationSetup setup(options);
    if (setup.options.acceptance) {
      bench::bench_acceptance(setup);
    } else if (setup.options.costs) {
      bench::bench_costs(setup);
    } else {
      return bench_speed(setup);
    }
    return 0;
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 64;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
