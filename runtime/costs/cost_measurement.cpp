#include "runtime/costs/cost_measurement.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "runtime/core/quantile.hpp"
#include "runtime/kv/block_owners.hpp"
#include "runtime/kv/block_pool.hpp"

namespace paceline {
namespace {

constexpr int kDraftLength = 4;  ///< limit on the rounds of a timed draft
constexpr int kPasses = 25;      ///< limit on the measurements of a point
/// Largest share of the time that a point may take, if it is measured more than once.
constexpr double kPointShare = 0.05;
/// Share of the time for which a point is run at a time: 20 ms of 10 s. Runs in its second half
/// count. A cache may keep KV only after many steps have read it: after a single step, attention of
/// a few requests took 2.5 times as long as in a rollout, and after 3 ms 1.15 to 1.3 times. Ranks
/// that measure the same point at the same time are all at work while runs count.
constexpr double kRuns = 0.002;
constexpr double kGrid = 1.4;           ///< ratio of neighbouring row counts in the grid
constexpr int kLongestContext = 1024;   ///< positions; costs are linear beyond it
constexpr int kLeastContext = 64;       ///< positions; below them a slope would be noise
constexpr double kContextShare = 0.25;  ///< share of the time that filling the KV may take
/// Number of the first prompt of made-up requests.
constexpr std::uint32_t kFirstPrompt = 0xF0000000U;

constexpr int kPeriod = 29;  ///< period of made-up text, so that lookups find matches

/// Token at a position of made-up text. Requests have different tokens, so that the rows of a step
/// use as many experts as rows of a rollout do.
TokenId made_up_token(int position, int vocab, int request = 0) {
  constexpr std::int64_t kApart = 1009;
  return static_cast<TokenId>((7 + 13 * (position % kPeriod) + kApart * request) % vocab);
}

std::vector<TokenId> made_up_text(int tokens, int vocab) {
  std::vector<TokenId> text;
  text.reserve(tokens);
  for (int i = 0; i < tokens; ++i) text.push_back(made_up_token(i, vocab));
  return text;
}

/// A step or draft to time: `run` makes it once.
struct Point {
  double rows = 0;
  int context = 0;
  bool needed = false;          ///< measured even when time is short
  bool follows_itself = true;   ///< in a rollout it follows runs like it, so it is run for kRuns
  std::function<double()> run;  ///< returns seconds; 0: it could not be made
  std::vector<double> times;
  double spent = 0;  ///< seconds spent on it, uncounted runs included

  [[nodiscard]] double seconds() const { return quantile(times, 0.5); }
};
using Points = std::vector<Point>;

/// Numbers from 1 to `last`, both included, growing by kGrid.
std::vector<int> grid(int last) {
  std::vector<int> numbers;
  for (int n = 1; n < last; n = static_cast<int>(std::ceil(n * kGrid))) numbers.push_back(n);
  numbers.push_back(last);
  return numbers;
}

/// Attention goes by positions alone. Many rows with short contexts take some 10 % longer than few
/// with as many positions, but less where siblings share their prompt's KV.
CostCurve curve_of(const Points& points) {
  std::vector<CostCurve::Point> measured;
  std::vector<CostCurve::Attention> attention;
  for (const Point& p : points) {
    if (p.times.empty()) continue;
    if (p.context == 0) {
      measured.push_back({p.rows, p.seconds()});
      continue;
    }
    const auto base = std::find_if(points.begin(), points.end(), [&](const Point& b) {
      return b.rows == p.rows && b.context == 0 && !b.times.empty();
    });
    if (base == points.end()) continue;
    attention.push_back({p.rows * p.context, std::max(0.0, p.seconds() - base->seconds())});
  }
  return CostCurve(std::move(measured), std::move(attention));
}

/// Curve of each point's seconds minus base(point), divided by `parts`.
template <class Base>
CostCurve beyond(Points points, const Base& base, int parts) {
  for (Point& p : points) {
    if (!p.times.empty()) p.times = {std::max(1e-9, (p.seconds() - base(p)) / parts)};
  }
  return curve_of(points);
}

/// First-round costs with a second row for each request, which the timed drafts lack. After a draft
/// that was accepted whole, the first round computes its last token and the target's next token.
CostCurve with_second_row(const DrafterCosts& costs) {
  std::vector<CostCurve::Point> points = costs.first.points();
  for (CostCurve::Point& p : points)
    p.seconds += costs.round.seconds(2 * p.rows) - costs.round.seconds(p.rows);
  return CostCurve(std::move(points), costs.first.attention(), costs.first.context());
}

class Measurement {
 public:
  Measurement(const MeasuredEngine& engine, const Clock& clock, const MeasurementBudget& budget)
      : engine_(engine), clock_(clock), budget_(budget), start_(clock.now()) {
    const engine::ExecutorLimits& l = engine.limits;
    context_ = std::min({l.max_position / 2, l.max_position - 1 - l.max_draft, kLongestContext});
    context_ = std::max(0, context_);
    fit_sequences();
    length_ = std::min(engine.max_length, kDraftLength);
  }

  CostMeasurement run() {
    for (int i = 0; i < sequences_; ++i) {
      for (int b = 0; b < blocks_; ++b) step_.kv.edits.push_back({i, b, block(i, b)});
    }
    engine_.runner.run(step_);
    list_steps();
    for (std::size_t d = 0; d < engine_.drafters.size(); ++d) list_drafts(d);
    measure_once();
    fill_context();
    list_long();
    for (int pass = 1; pass <= kPasses; ++pass) {
      for (const auto& [place, point] : in_order(pass)) {
        const double step = expected(*point);
        if (!has_time(*point, step)) continue;
        if (engine_.meet) engine_.meet(place, step, std::min(remaining(), kPointShare * deadline_));
        measure(*point, step);
      }
    }
    for (std::size_t d = 0; d < engine_.drafters.size(); ++d) finish_drafts(d);
    return result();
  }

 private:
  struct DrafterPoints {
    Points first, whole, catch_up;  ///< drafts of one round, of length_ rounds, catching up
    Points next;                    ///< drafts of one round that go on from earlier drafts
    int started[2] = {0, 0};        ///< requests started: [0] without context, [1] with it
  };

  /// All points in the order of a pass, each with its place (MeasuredEngine::meet). The order is
  /// the same on all ranks, even where a rank had no time for some points.
  [[nodiscard]] std::vector<std::pair<std::uint64_t, Point*>> in_order(int pass) {
    std::vector<std::pair<std::uint64_t, Point*>> order;
    std::uint32_t list = 0;
    for (Points* points : lists()) {
      ++list;
      for (Point& p : *points) {
        std::seed_seq what{static_cast<std::uint32_t>(pass), list,
                           static_cast<std::uint32_t>(p.rows),
                           static_cast<std::uint32_t>(p.context > 0 ? 1 : 0)};
        std::uint32_t mixed = 0;
        what.generate(&mixed, &mixed + 1);
        order.emplace_back(static_cast<std::uint64_t>(pass) << 32U | mixed, &p);
      }
    }
    std::ranges::sort(order);
    return order;
  }

  [[nodiscard]] std::vector<Points*> lists() {
    std::vector<Points*> all{&decode_, &verify_, &prefill_};
    for (DrafterPoints& d : drafters_) {
      all.push_back(&d.first);
      all.push_back(&d.whole);
      all.push_back(&d.catch_up);
      all.push_back(&d.next);
    }
    return all;
  }

  /// Name of a sequence's block. Sequences are dealt to the owners in turn.
  [[nodiscard]] std::int32_t block(int sequence, int index) const {
    const int number = sequence / engine_.owners * blocks_ + index;
    return kv::BlockOwner{sequence % engine_.owners, engine_.owners}.name(number);
  }

  /// Finds how many sequences fit into the KV pool at a time, each long enough for the context and
  /// a draft.
  void fit_sequences() {
    const engine::ExecutorLimits& l = engine_.limits;
    blocks_ = static_cast<int>(kv::blocks_for(context_ + 1 + l.max_draft, l.kv_block));
    while (blocks_ > l.kv_blocks && context_ > 0) {
      context_ /= 2;
      blocks_ = static_cast<int>(kv::blocks_for(context_ + 1 + l.max_draft, l.kv_block));
    }
    sequences_ = std::clamp(l.kv_blocks / blocks_ * engine_.owners, 1, l.max_batch);
    // The last block may reach past the longest sequence, and a tree may have more tokens than the
    // longest sequence has positions.
    positions_ = std::min(blocks_ * l.kv_block, l.max_position);
    request_rows_ = std::min(1 + l.max_draft, positions_);
  }

  [[nodiscard]] double remaining() const { return deadline_ - (clock_.now() - start_); }

  [[nodiscard]] bool has_time(const Point& p, double expected) const {
    if (!(p.needed && p.times.empty()) && 2 * expected > remaining()) return false;
    return p.times.empty() || p.spent + 2 * expected <= kPointShare * deadline_;
  }

  void measure(Point& p, double expected) {
    if (!has_time(p, expected)) return;
    const double begin = clock_.now();
    const double seconds = p.follows_itself ? run_repeatedly(p) : p.run();
    p.spent += clock_.now() - begin;
    if (seconds <= 0) return;
    p.times.push_back(seconds);
    ++count_;
  }

  /// Mean seconds of the counted runs. The first run never counts.
  [[nodiscard]] double run_repeatedly(const Point& p) const {
    const double begin = clock_.now();
    double sum = 0;
    int counted = 0;
    static_cast<void>(p.run());
    for (double ran = clock_.now() - begin; counted == 0 || ran < kRuns * deadline_;
         ran = clock_.now() - begin) {
      const double seconds = p.run();
      if (ran < kRuns * deadline_ / 2) continue;
      sum += seconds;
      ++counted;
    }
    return sum / counted;
  }

  /// Expected seconds of a point. For a point not measured yet, they are in proportion to those of
  /// the nearest measured point with fewer rows.
  [[nodiscard]] static double expected(const Points& points, const Point& p) {
    if (!p.times.empty()) return p.seconds();
    const Point* below = nullptr;
    for (const Point& other : points) {
      if (other.times.empty() || other.rows > p.rows) continue;
      if (below == nullptr || other.rows > below->rows) below = &other;
    }
    return below == nullptr ? 0 : below->seconds() * p.rows / below->rows;
  }
  [[nodiscard]] double expected(const Point& p) {
    for (const Points* points : lists()) {
      if (points->data() <= &p && &p < points->data() + points->size()) return expected(*points, p);
    }
    return 0;
  }

  /// Runs a step of `rows` rows, dealt out to `requests` requests after `context` positions.
  /// Samples all rows, or each request's last row if not `sampled`. Returns the step's seconds.
  [[nodiscard]] double step(int rows, int requests, int context, bool sampled) {
    engine::Step& s = step_;
    s.clear();
    std::vector<int> order;  // sequences, by owner
    for (int owner = 0; owner < engine_.owners; ++owner) {
      for (int i = owner; i < requests; i += engine_.owners) order.push_back(i);
    }
    for (const int i : order) {
      const int mine = rows / requests + (i < rows % requests ? 1 : 0);
      engine::StepPart part;
      part.first_row = static_cast<std::int32_t>(s.tokens.size());
      part.rows = mine;
      part.first_position = context;
      part.sequence = i;
      for (int r = 0; r < mine; ++r) {
        const auto row = static_cast<std::int32_t>(s.tokens.size());
        s.tokens.push_back(made_up_token(context + r, engine_.vocab, i));
        if (sampled || r + 1 == mine)
          s.samples.push_back({{1, static_cast<std::uint32_t>(i)}, row, context + r, 0});
      }
      s.parts.push_back(part);
    }
    const double begin = clock_.now();
    engine_.runner.run(s);
    return clock_.now() - begin;
  }

  void add_step(Points& points, int rows, int requests, int context, bool sampled = true) {
    Point p;
    p.rows = rows;
    p.context = context;
    p.run = [=, this] { return step(rows, requests, context, sampled); };
    points.push_back(std::move(p));
  }

  [[nodiscard]] int verified() const { return std::min(sequences_, 8); }
  [[nodiscard]] int verify_rows() const { return verified() * std::min(request_rows_, 5); }

  void list_steps() {
    const engine::ExecutorLimits& l = engine_.limits;
    const int full = std::min(sequences_, l.max_batch);
    for (const int n : grid(full)) add_step(decode_, n, n, 0);
    decode_.front().needed = decode_.back().needed = true;
    for (int rows = full; rows < full * request_rows_;) {
      rows = std::min(static_cast<int>(std::ceil(rows * kGrid)), full * request_rows_);
      add_step(decode_, rows, full, 0);
    }
    if (request_rows_ > 1) add_step(verify_, verify_rows(), verified(), 0);
    const int chunk = std::min(l.prefill_chunk, positions_);
    for (const int rows : {16, 64, chunk}) {
      if (rows <= chunk) add_step(prefill_, rows, 1, 0, false);
    }
  }

  void list_drafts(std::size_t d) {
    drafters_.resize(std::max(drafters_.size(), d + 1));
    for (const int n : grid(engine_.limits.max_batch)) add_draft(d, n, 0);
    for (Points* points : {&drafters_[d].first, &drafters_[d].whole})
      points->front().needed = points->back().needed = true;
    if (!lags(d)) return;
    for (const int tokens : {16, 64, 256}) {
      if (tokens >= engine_.limits.max_position) continue;
      add_catch_up(d, tokens, 0);
    }
  }

  void add_catch_up(std::size_t d, int tokens, int context) {
    Point p;
    p.rows = tokens;
    p.context = context;
    p.follows_itself = false;
    p.run = [=, this] { return catch_up(d, tokens, context); };
    drafters_[d].catch_up.push_back(std::move(p));
  }

  void add_draft(std::size_t d, int requests, int context) {
    for (Points* points : {&drafters_[d].first, &drafters_[d].whole}) {
      const int length = points == &drafters_[d].first ? 1 : length_;
      Point p;
      p.rows = requests;
      p.context = context;
      p.follows_itself = false;  // a step goes before it, and evicts its KV from caches
      p.run = [=, this] { return draft(d, requests, context, length); };
      points->push_back(std::move(p));
    }
    if (!engine_.drafters[d].drafter.capabilities().branches) return;
    Point p;
    p.rows = requests;
    p.context = context;
    p.run = [=, this] { return go_on(d, requests, context); };
    drafters_[d].next.push_back(std::move(p));
  }

  /// Request number i of a drafter. Requests without context are siblings with one short prompt.
  /// Requests with context have different prompts, so that they do not share KV.
  [[nodiscard]] static RequestId made_up(std::size_t d, int context, int i) {
    const auto first = kFirstPrompt + static_cast<std::uint32_t>(d << 17U);
    const auto index = static_cast<std::uint32_t>(i);
    return context > 0 ? RequestId{first + 1 + index, 0} : RequestId{first, index};
  }

  [[nodiscard]] std::vector<TokenId> prompt(int context) const {
    return made_up_text(std::max(context, kPeriod), engine_.vocab);
  }

  [[nodiscard]] bool lags(std::size_t d) const {
    return engine_.drafters[d].drafter.capabilities().state != nullptr;
  }

  /// If the drafter reads features, gives it those of a request's first `positions` positions.
  void observe(std::size_t d, RequestId id, std::size_t positions) {
    draft::FeatureReader* reader = engine_.drafters[d].drafter.capabilities().features;
    if (reader == nullptr) return;
    reader->observe(id, 0, std::vector<std::byte>(positions * reader->feature_bytes()));
  }

  /// Starts requests until there are `requests`. Returns false if there were so many already.
  bool start_drafts(std::size_t d, int requests, int context) {
    int& started = drafters_[d].started[context > 0 ? 1 : 0];
    if (started >= requests) return false;
    for (; started < requests; ++started) {
      engine_.drafters[d].drafter.start({made_up(d, context, started),
                                         prompt(context),
                                         {},
                                         {2, static_cast<std::uint32_t>(started)}},
                                        clock_.now());
      observe(d, made_up(d, context, started), prompt(context).size() - 1);
    }
    return true;
  }

  void finish_drafts(std::size_t d) {
    for (const int context : {0, 1}) {
      int& started = drafters_[d].started[context];
      for (; started > 0; --started)
        engine_.drafters[d].drafter.finish(made_up(d, context, started - 1), clock_.now());
    }
  }

  /// Seconds of a draft that follows a step, so that the caches hold the step's data.
  [[nodiscard]] double draft(std::size_t d, int requests, int context, int length) {
    if (start_drafts(d, requests, context))
      static_cast<void>(propose(d, requests, context, length));
    const int rows = std::min(requests, sequences_);
    static_cast<void>(step(rows, rows, 0, true));
    return propose(d, requests, context, length);
  }

  /// Seconds of drafting the token after those that earlier drafts took as said, one more each
  /// time.
  [[nodiscard]] double go_on(std::size_t d, int requests, int context) {
    if (start_drafts(d, requests, context)) static_cast<void>(propose(d, requests, context, 1));
    said_ = said_ % length_ + 1;
    return propose(d, requests, context, 1, made_up_text(said_, engine_.vocab));
  }

  [[nodiscard]] double propose(std::size_t d, int requests, int context, int length,
                               const std::vector<TokenId>& assumed = {}) {
    slots_.clear();
    outputs_.resize(std::max(outputs_.size(), static_cast<std::size_t>(requests)));
    for (int i = 0; i < requests; ++i) {
      slots_.push_back(slot(made_up(d, context, i), outputs_[i], length, engine_.paths));
      slots_.back().assumed = assumed;
    }
    const double begin = clock_.now();
    engine_.drafters[d].drafter.propose(slots_, begin);
    const double seconds = clock_.now() - begin;
    // A draft does not count if a draft model had no room for all requests or stopped early.
    const bool whole = std::all_of(slots_.begin(), slots_.end(),
                                   [&](const draft::DraftSlot& s) { return s.count >= length; });
    return lags(d) && !whole ? 0 : std::max(seconds, 1e-9);
  }

  /// Seconds of drafting one token for a request with `tokens` response tokens that the drafter has
  /// not computed. If `context` > 0, the request has the prompt of the first request with context,
  /// whose KV the drafter has.
  [[nodiscard]] double catch_up(std::size_t d, int tokens, int context) {
    draft::Drafter& drafter = engine_.drafters[d].drafter;
    if (context > 0) start_drafts(d, 1, context);
    RequestId id = made_up(d, context, 0);
    id.sample = static_cast<std::uint32_t>(engine_.limits.max_batch);
    drafter.start({id, prompt(context), made_up_text(tokens, engine_.vocab), {}}, clock_.now());
    observe(d, id, prompt(context).size() + tokens - 1);
    outputs_.resize(std::max<std::size_t>(outputs_.size(), 1));
    draft::DraftSlot one = slot(id, outputs_[0], 1, 1);
    const double begin = clock_.now();
    drafter.propose({&one, 1}, begin);
    const double seconds = clock_.now() - begin;
    drafter.finish(id, clock_.now());
    return std::max(seconds, 1e-9);
  }

  struct Output {
    std::vector<TokenId> tokens;
    std::vector<std::int32_t> parents;
    std::vector<float> scores;
  };
  [[nodiscard]] static draft::DraftSlot slot(RequestId id, Output& output, int length, int paths) {
    const int tokens = length * paths;
    output.tokens.resize(tokens);
    output.parents.resize(tokens);
    output.scores.resize(tokens);
    return {id, {tokens, length, paths}, {output.tokens, output.parents, output.scores}, {}, 0};
  }

  /// Measures the needed points, then all points without context once, from few rows to many.
  void measure_once() {
    Point& full =
        *std::find_if(decode_.rbegin(), decode_.rend(), [](const Point& p) { return p.needed; });
    measure(full, 0);
    deadline_ = std::min(budget_.seconds, budget_.share * budget_.steps_foreseen * full.seconds());
    for (const bool needed : {true, false}) {
      for (Points* points : lists()) {
        for (Point& p : *points) {
          if (p.needed == needed && p.times.empty()) measure(p, expected(*points, p));
        }
      }
    }
  }

  /// Computes the KV of one sequence of each owner, and copies it to the owner's other sequences.
  /// Sets context_ to the number of positions for which there was time.
  void fill_context() {
    const int chunk = static_cast<int>(prefill_.back().rows);
    const double until = remaining() * (1 - kContextShare);
    const int sources = std::min(engine_.owners, sequences_);  // one for each owner
    int filled = 0;
    while (filled < context_) {
      const int rows = std::min(chunk, context_ - filled);
      if (remaining() - expected(prefill_.back()) < until || prefill_.back().times.empty()) break;
      static_cast<void>(step(rows * sources, sources, filled, false));
      filled += rows;
    }
    context_ = filled < kLeastContext ? 0 : filled;
    if (context_ == 0) return;
    for (with_context_ = sources; with_context_ < sequences_ && remaining() > until;
         ++with_context_) {
      step_.clear();
      for (int b = 0; b < blocks_; ++b) {
        step_.kv.copies.push_back(
            {block(with_context_ % engine_.owners, b), block(with_context_, b)});
      }
      engine_.runner.run(step_);
    }
  }

  void list_long() {
    if (context_ == 0) return;
    const auto numbers = grid(std::min(sequences_, engine_.limits.max_batch));
    for (std::size_t i = 0; i < numbers.size(); i += 2) {
      if (numbers[i] <= with_context_) add_step(decode_, numbers[i], numbers[i], context_);
    }
    if (request_rows_ > 1 && verified() <= with_context_)
      add_step(verify_, verify_rows(), verified(), context_);
    const int chunk = static_cast<int>(prefill_.back().rows);
    if (context_ >= 2 * chunk) add_step(prefill_, chunk, 1, context_ - chunk, false);
    for (std::size_t d = 0; d < engine_.drafters.size(); ++d) {
      Point as_long;
      as_long.rows = context_;
      const double prompt = expected(drafters_[d].catch_up, as_long);
      const auto requests = grid(engine_.limits.max_batch);
      for (std::size_t i = 0; i < requests.size(); i += 3) {
        if (requests[i] * prompt < remaining() * kContextShare / 2)
          add_draft(d, requests[i], context_);
      }
      if (lags(d) && prompt < remaining() * kContextShare) add_catch_up(d, 64, context_);
    }
  }

  [[nodiscard]] CostMeasurement result() {
    CostMeasurement m;
    CostTable& table = m.table;
    table.decode = curve_of(decode_);
    table.prefill = curve_of(prefill_);
    if (table.prefill.empty()) table.prefill = table.decode;
    if (const std::vector<CostCurve::Attention> all = curve_of(verify_).attention(); !all.empty()) {
      const double own = table.decode.attending(verified(), context_);
      const double drafted = double{1} * (verify_rows() - verified()) * context_;
      table.drafted_position = std::max(0.0, all.back().seconds - own) / drafted;
    }
    for (std::size_t d = 0; d < drafters_.size(); ++d) {
      DrafterCosts costs;
      costs.name = engine_.drafters[d].name;
      costs.first = curve_of(drafters_[d].first);
      const auto first = [&](const Point& p) { return costs.first.seconds(p.rows, p.context); };
      if (length_ > 1) costs.round = beyond(drafters_[d].whole, first, length_ - 1);
      if (lags(d)) costs.first = with_second_row(costs);
      const auto one = [&](const Point& p) { return costs.first.seconds(1, p.context); };
      costs.catch_up = beyond(drafters_[d].catch_up, one, 1);
      costs.next = curve_of(drafters_[d].next);
      table.drafters.push_back(std::move(costs));
    }
    m.seconds = clock_.now() - start_;
    m.measurements = count_;
    return m;
  }

  const MeasuredEngine& engine_;
  const Clock& clock_;
  MeasurementBudget budget_;
  double start_;
  double deadline_ = 0;   ///< seconds from start_
  int context_ = 0;       ///< positions
  int blocks_ = 0;        ///< blocks of each sequence
  int positions_ = 0;     ///< positions of each sequence
  int request_rows_ = 1;  ///< limit on the rows of a request in a step
  int sequences_ = 1;
  int length_ = 1;        ///< rounds of a longer draft
  int said_ = 0;          ///< tokens that the last draft of go_on() took as said
  int with_context_ = 0;  ///< sequences whose KV is filled
  int count_ = 0;
  Points decode_, verify_, prefill_;
  std::vector<DrafterPoints> drafters_;
  engine::Step step_;
  std::vector<draft::DraftSlot> slots_;
  std::vector<Output> outputs_;
};

}  // namespace

CostMeasurement measure_costs(const MeasuredEngine& engine, const Clock& clock,
                              const MeasurementBudget& budget) {
  return Measurement(engine, clock, budget).run();
}

}  // namespace paceline
