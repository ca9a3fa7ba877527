#include "runtime/policy/length/nightjar.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace paceline::policy {

Nightjar::Nightjar(CostTable costs, int max_length, std::uint64_t seed)
    : costs_(std::move(costs)), max_length_(max_length), draws_(seed) {}

int Nightjar::best(const Batch& batch, double switching) const {
  int best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (int length = 0; length <= max_length_; ++length) {
    const MeanGoodput& arm = batch.arms[length];
    if (arm.visits() == 0) continue;
    const double cost = 1 / arm.value() + (length > 0 ? switching / length : 0);
    if (cost < least) {
      least = cost;
      best = length;
    }
  }
  return best;
}

/// Where plain decoding is best without the cost of switching it is best with it, so that the lags
/// of requests need not be asked for.
bool Nightjar::considers(const DraftQuery& query) {
  step_ = {};
  if (query.requests == 0) return false;
  while (batches_.size() < static_cast<std::size_t>(query.requests))
    batches_.push_back({{}, false, std::vector<MeanGoodput>(max_length_ + 1)});
  Batch& batch = batches_[query.requests - 1];
  step_.requests = query.requests;
  step_.is_round = query.prefill_rows == 0;
  if (step_.is_round) {
    if (batch.schedule.begins_bin())
      batch.explores = draws_.uniform() < batch.schedule.exploration();
    step_.explores = batch.explores;
  }
  step_.length = step_.explores ? draws_.below(max_length_ + 1) : best(batch, 0);
  return step_.length > 0;
}

void Nightjar::choose(const DraftQuery& query, std::span<int> lengths) {
  if (!step_.explores && last_ == 0 && !query.lag.empty()) {
    const int furthest = *std::max_element(query.lag.begin(), query.lag.end());
    const double tokens = static_cast<double>(furthest) * query.requests;
    step_.length =
        best(batches_[query.requests - 1], costs_.catch_up_seconds(tokens, query.context));
  }
  step_.length = draft_alike(query, step_.length, lengths);
}

void Nightjar::observe(const StepOutcome& measured) {
  if (step_.requests == 0) return;
  last_ = step_.length;
  if (!step_.is_round) return;
  Batch& batch = batches_[step_.requests - 1];
  batch.arms[step_.length].record(measured);
  batch.schedule.advance();
}

}  // namespace paceline::policy
