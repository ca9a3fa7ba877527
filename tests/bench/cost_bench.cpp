// What the self-measurement foretells of steps and drafts, beside what they take in a run:
// bench_speculation --costs.
#include <algorithm>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <tuple>

#include "runtime/core/quantile.hpp"
#include "runtime/policy/length/draft_length.hpp"
#include "runtime/speculation/speculator.hpp"
#include "tests/bench/speculation_setup.hpp"

namespace paceline::bench {
namespace {

int octave(int n) {
  int power = 1;
  while (2 * power <= n) power *= 2;
  return power;
}

constexpr int kWaves = 8;  // requests for each slot, so that steps have contexts of every length

/// Steps of one kind: seconds by what was foretold.
struct Steps {
  std::vector<double> seconds, foretold;
};
/// By requests, drafted rows and context.
using Record = std::map<std::tuple<int, int, int>, Steps>;

void run(SpeculationSetup& setup, int batch, int length, const CostTable& costs, const Clock& clock,
         Record& steps, Record& drafts) {
  speculation::Speculator speculator(setup.drafters(batch, setup.options.max_tokens),
                                     std::make_unique<policy::FixedLength>(length),
                                     {std::max(1, length), std::max(1, length), 1}, clock);
  engine::Batcher batcher = setup.batcher(batch, setup.options.max_tokens);
  for (int next = 0; next < kWaves * batch || batcher.active() > 0;) {
    for (; next < kWaves * batch && batcher.active() < batch; ++next) {
      Admission request = setup.request(next);
      speculator.start(request);
      if (!batcher.admit(request)) throw std::logic_error("the KV pool is too small");
    }
    const std::span<const engine::Decoding> decoding = batcher.decoding();
    const int prefill = batcher.prefill_rows();
    StepShape shape;
    shape.requests = static_cast<double>(decoding.size());
    for (const engine::Decoding& d : decoding) shape.context += d.context / shape.requests;
    const std::span<const engine::DraftTree> trees = speculator.draft(decoding, prefill);
    const double drafted = clock.now();
    const engine::Step& plan = batcher.plan(trees);
    const engine::StepCounts counts = batcher.counts();
    static_cast<void>(batcher.commit(setup.executor->run(plan)));
    const double seconds = clock.now() - drafted;
    shape.drafted = counts.drafted;
    const bool pure = prefill == 0 && shape.requests > 0;
    if (pure && (length == 0 || counts.drafted > 0)) {
      const auto requests = static_cast<int>(shape.requests);
      const std::tuple place{octave(requests),
                             length == 0 ? 0 : octave(static_cast<int>(counts.drafted)),
                             octave(static_cast<int>(shape.context))};
      steps[place].seconds.push_back(seconds);
      steps[place].foretold.push_back(costs.step_seconds(shape));
      if (length > 0) {
        drafts[place].seconds.push_back(speculator.draft_seconds());
        drafts[place].foretold.push_back(costs.first_seconds(requests, shape.context) +
                                         (length - 1) *
                                             costs.round_seconds(requests, shape.context));
      }
    }
    speculator.commit(batcher.committed(), seconds);
  }
}

void print(const char* title, const Record& record) {
  constexpr std::size_t kEnough = 8;  // steps that a median says something of
  std::printf("\n%s\nrequests  drafted  context   steps        ms  foretold  ratio\n", title);
  for (const auto& [place, steps] : record) {
    if (steps.seconds.size() < kEnough) continue;
    const auto [requests, drafted, context] = place;
    const double seconds = quantile(steps.seconds, 0.5);
    const double foretold = quantile(steps.foretold, 0.5);
    std::printf("%8d %8d %8d %7zu %9.3f %9.3f  %5.2f\n", requests, drafted, context,
                steps.seconds.size(), 1e3 * seconds, 1e3 * foretold, seconds / foretold);
  }
}

void print_curve(const char* name, const CostCurve& curve) {
  std::printf("%s (ms):", name);
  for (const CostCurve::Point& p : curve.points())
    std::printf(" %g: %.3f", p.rows, 1e3 * p.seconds);
  std::printf("; %.3f us a row and 1000 positions", 1e9 * curve.per_position());
  std::printf("\n");
}

}  // namespace

void bench_costs(SpeculationSetup& setup) {
  const SpeculationClock clock(setup.options.cpu_time);
  speculation::DrafterRoster drafters =
      setup.drafters(setup.largest_batch, setup.options.max_tokens);
  const CostMeasurement m = setup.measure_costs(drafters, setup.largest_batch, clock);
  drafters.clear();
  std::printf("%d measurements in %.2f s\n", m.measurements, m.seconds);
  print_curve("decode", m.table.decode);
  print_curve("prefill", m.table.prefill);
  for (const DrafterCosts& d : m.table.drafters) {
    print_curve((d.name + ", first round").c_str(), d.first);
    print_curve((d.name + ", further round").c_str(), d.round);
    print_curve((d.name + ", catching up").c_str(), d.catch_up);
  }
  std::printf("drafted rows: %.3f us a row and 1000 positions\n", 1e9 * m.table.drafted_position);
  Record steps;
  Record drafts;
  for (const int batch : setup.options.batches) {
    for (const int length : {0, std::min(2, setup.options.max_length), setup.options.max_length})
      run(setup, batch, length, m.table, clock, steps, drafts);
  }
  print("steps", steps);
  print("drafts", drafts);
}

}  // namespace paceline::bench
