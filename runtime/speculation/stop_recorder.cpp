#include "runtime/speculation/stop_recorder.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/speculation/learned_stop.hpp"

namespace paceline::speculation {
namespace {

constexpr int kCalls = StopPoint::kCalls;
constexpr int kStates = StopPoint::kStates;
/// Limit on the tokens of a tree: kStates in level 1, and kStates children of each token that has
/// children. At most kMostRecordedRows tokens have children.
constexpr int kMostGrown = kStates + kMostRecordedRows * kStates;

/// Stores in a point the input that the stop network would get at each level. Never stops a draft.
class Watch final : public draft::Levels {
 public:
  explicit Watch(StopPoint& point) : point_(point) {
    for (auto& states : point_.states) states = confidences({});
  }
  void judge(int level, std::span<draft::GrowingDraft> drafts) override {
    point_.first = static_cast<std::uint32_t>(drafts.front().first);
    point_.states.at(static_cast<std::size_t>(level - 1)) = confidences(drafts.front().frontier);
  }

 private:
  StopPoint& point_;
};

}  // namespace

StopRecorder::StopRecorder(std::unique_ptr<draft::Drafter> head, const StopRecorderOptions& options,
                           TelemetrySink& telemetry)
    : head_(std::move(head)), options_(options), telemetry_(telemetry) {}

/// The noise key decides after which of the next `every` tokens the request's first point is due,
/// so that first points of several requests lie at different response lengths.
void StopRecorder::start(const draft::DraftStart& request, double now) {
  head_->start(request, now);
  Progress progress;
  progress.noise = request.noise;
  progress.tokens = static_cast<std::int64_t>(request.response.size());
  progress.due =
      progress.tokens + 1 + static_cast<std::int64_t>(request.noise.key % options_.every);
  requests_[request.id] = progress;
}

void StopRecorder::commit(RequestId id, std::span<const TokenId> tokens, double now) {
  head_->commit(id, tokens, now);
  requests_.at(id).tokens += static_cast<std::int64_t>(tokens.size());
}

void StopRecorder::finish(RequestId id, double now) {
  head_->finish(id, now);
  requests_.erase(id);
}

void StopRecorder::leave(RequestId id, double now) {
  head_->leave(id, now);
  requests_.erase(id);
}

bool StopRecorder::due(const draft::DraftSlot& slot) const {
  const Progress& progress = requests_.at(slot.id);
  return progress.tokens >= progress.due && slot.assumed.empty() &&
         slot.limits.max_length >= kCalls && slot.limits.paths >= kStates &&
         slot.limits.max_tokens >= kMostRecordedRows && slot.output.capacity() >= kMostRecordedRows;
}

void StopRecorder::propose(std::span<draft::DraftSlot> batch, double now,
                           draft::Levels* /*levels*/) {
  pending_.reset();
  for (draft::DraftSlot& slot : batch) slot.count = slot.calls = 0;
  const auto recorded = std::ranges::find_if(batch, [this](const auto& slot) { return due(slot); });
  if (recorded != batch.end()) record(*recorded, now);
}

/// Lets the head grow a tree. Its inner tokens (StoppedTrees::inner()) become the slot's draft.
void StopRecorder::record(draft::DraftSlot& slot, double now) {
  Pending pending;
  pending.noise = requests_.at(slot.id).noise;
  pending.point.id = slot.id;
  pending.tokens.resize(kMostGrown);
  pending.parents.resize(kMostGrown);
  std::vector<float> scores(kMostGrown);
  draft::DraftSlot whole{
      slot.id, {kMostGrown, kCalls, kStates}, {pending.tokens, pending.parents, scores}};
  Watch watch(pending.point);
  head_->propose({&whole, 1}, now, &watch);
  slot.calls = whole.calls;
  pending.tokens.resize(whole.count);
  pending.parents.resize(whole.count);
  scores.resize(whole.count);
  pending.trees.emplace(pending.parents, scores, options_.most);
  const policy::StoppedTrees& trees = *pending.trees;
  // A tree of fewer levels is not recorded. The response, for example, had no room for more.
  if (whole.count == 0 || trees.depth(whole.count - 1) < kCalls) return;

  std::vector<std::int32_t> place(pending.tokens.size(), -1);  // [tokens] index in the draft, or -1
  for (std::int32_t token = 0; token < trees.size(); ++token) {
    if (!trees.inner(token)) continue;
    const std::int32_t parent = pending.parents[token];
    place[token] = slot.count;
    slot.output.set(slot.count++, pending.tokens[token], parent < 0 ? -1 : place[parent],
                    scores[token]);
  }
  Progress& progress = requests_.at(slot.id);
  progress.due = progress.tokens + options_.every;
  pending_ = std::move(pending);
}

/// Finds the step's sample after the committed text, and its sample after each token of the draft.
/// Returns false if the step verifies another draft, or only a part of this one.
bool StopRecorder::find_samples(const engine::Step& step) {
  Pending& p = *pending_;
  const auto first = std::ranges::find(step.samples, p.noise, &engine::StepSample::noise);
  if (first == step.samples.end()) return false;
  const auto part = std::ranges::find(step.parts, first->row, &engine::StepPart::first_row);
  if (part == step.parts.end()) return false;
  // A decoding request has one sample for each of its rows, in order.
  const auto root = static_cast<std::int32_t>(first - step.samples.begin());
  p.samples.assign(1 + p.tokens.size(), -1);
  p.samples[0] = root;
  std::vector<std::int32_t> row(p.tokens.size(), -1);  // [tokens] row in the part; -1: not found
  std::int32_t found = 1;
  for (std::int32_t token = 0; token < p.trees->size(); ++token) {
    if (!p.trees->inner(token)) continue;
    const std::int32_t after = p.parents[token] < 0 ? 0 : row[p.parents[token]];
    for (std::int32_t r = 1; r < part->rows && row[token] < 0; ++r) {
      const std::int32_t before =
          part->first_parent < 0 ? r - 1 : step.parents[part->first_parent + r];
      if (before == after && step.tokens[part->first_row + r] == p.tokens[token]) row[token] = r;
    }
    if (row[token] < 0) return false;
    p.samples[1 + token] = root + row[token];
    ++found;
  }
  return found == part->rows;
}

const engine::Step& StopRecorder::with_questions(const engine::Step& step) {
  if (!pending_) return step;
  if (!find_samples(step)) {
    pending_.reset();
    return step;
  }
  Pending& p = *pending_;
  p.questions.assign(p.tokens.size(), -1);
  if (options_.foreknows) return step;
  step_ = step;
  for (std::int32_t token = 0; token < p.trees->size(); ++token) {
    if (!p.trees->verified(token)) continue;
    engine::StepSample question = step.samples[p.samples[1 + p.parents[token]]];
    question.given = p.tokens[token];
    p.questions[token] = static_cast<std::int32_t>(step_.samples.size());
    step_.samples.push_back(question);
  }
  return step_;
}

void StopRecorder::answered(std::span<const kernels::Sampled> sampled) {
  if (!pending_) return;
  Pending& p = *pending_;
  std::vector<std::int32_t> path;  // the path of tokens in the tree that the target sampled
  std::vector<double> conditional(p.tokens.size(), 0.0);
  std::int32_t last = -1;
  for (std::int32_t token = 0; token < p.trees->size(); ++token) {
    if (!p.trees->verified(token)) continue;
    const std::int32_t parent = p.parents[token];
    const bool said = sampled[p.samples[1 + parent]].token == p.tokens[token];
    conditional[token] = options_.foreknows
                             ? (said ? 1.0 : 0.0)
                             : std::exp(double{sampled[p.questions[token]].sampling_logprob});
    if (said && parent == last) {
      path.push_back(token);
      last = token;
    }
  }
  p.point.lengths = p.trees->lengths(conditional);
  p.point.accepted = p.trees->accepted(path);
  telemetry_.stop_point(p.point);
  pending_.reset();
}

}  // namespace paceline::speculation
