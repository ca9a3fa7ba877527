#include "app/run_report/reports.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "runtime/core/quantile.hpp"

namespace paceline::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchemaVersion = 1;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json share(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return nullptr;
  return static_cast<double>(part) / static_cast<double>(whole);
}

Json rewards_json(const RewardFigures& f) {
  if (f.scored == 0) return nullptr;
  Json pass = Json::object();
  for (const RewardFigures::PassAt& at : f.pass)
    pass[std::to_string(at.k)] = {{"rate", number(at.rate)}, {"prompts", at.prompts}};
  Json lengths = Json::array();
  for (const RewardFigures::Length& length : f.by_length) {
    lengths.push_back({{"from", length.from},
                       {"to", length.to},
                       {"responses", length.responses},
                       {"mean", number(length.mean)}});
  }
  return {{"scored", f.scored},
          {"missing", f.responses - f.scored},
          {"mean", number(f.mean)},
          {"std", number(f.deviation)},
          {"min", number(f.least)},
          {"max", number(f.most)},
          {"pass_threshold", number(f.threshold)},
          {"pass_at", pass},
          {"prompts",
           {{"compared", f.groups},
            {"all_equal", f.equal},
            {"all_equal_share", share(f.equal, f.groups)},
            {"all_pass", f.all_pass},
            {"none_pass", f.none_pass}}},
          {"by_length", lengths},
          {"length_correlation", number(f.correlation)}};
}

Json responses_json(const NamedRun& run) {
  const RunFigures& f = run.figures;
  std::map<std::string, std::uint64_t> reasons;
  double tokens = 0;
  for (const ResponseFigures& response : f.responses) {
    ++reasons[paceline::name_of(response.reason)];
    tokens += response.tokens;
  }
  // If dynamic sampling chose prompts, only responses in trajectories.h5 count as "finished".
  const bool chosen = run.rewards && run.rewards->choice;
  const std::uint64_t finished = chosen ? run.rewards->responses : f.responses.size();
  Json json = {{"finished", finished},
               {"finished_besides", f.responses.size() - std::min(f.responses.size(), finished)},
               {"expected", run.rewards ? Json(run.rewards->expected) : Json(nullptr)},
               {"partial", f.partial},
               {"reasons", reasons},
               {"moves", f.moves}};
  if (f.responses.empty()) return json;
  json["tokens"] = {{"p50", f.length_quantile(0.5)},
                    {"p95", f.length_quantile(0.95)},
                    {"p99", f.length_quantile(0.99)},
                    {"max", f.length_quantile(1 - 1e-9)},
                    {"mean", tokens / static_cast<double>(f.responses.size())}};
  json["finished_by_seconds"] = {{"p50", number(f.finished_by(0.5))},
                                 {"p90", number(f.finished_by(0.9))},
                                 {"p99", number(f.finished_by(0.99))},
                                 {"p100", number(f.finished_by(1))}};
  return json;
}

Json phases_json(const RunFigures& f) {
  Json json = Json::object();
  const PhaseSeconds all = f.all_ranks();
  for (int i = 0; i < kPhases && !f.ranks.empty(); ++i) {
    const auto phase = static_cast<Phase>(i);
    const auto [least, most] = std::ranges::minmax_element(
        f.ranks, {}, [phase](const RankFigures& rank) { return rank.seconds[phase]; });
    json[app::name_of(phase)] = {{"seconds", number(all[phase])},
                                 {"share", number(all[phase] / all.sum())},
                                 {"min", number(least->seconds[phase])},
                                 {"max", number(most->seconds[phase])},
                                 {"max_rank", most->rank}};
  }
  return json;
}

Json ranks_json(const RunFigures& f) {
  Json json = Json::array();
  for (const RankFigures& rank : f.ranks) {
    json.push_back({{"rank", rank.rank},
                    {"role", paceline::name_of(rank.role)},
                    {"host", rank.host},
                    {"tokens", rank.tokens},
                    {"peak_rss_bytes", rank.peak_rss_bytes},
                    {"weight_bytes", rank.weight_bytes},
                    {"kv_bytes", rank.kv_bytes}});
  }
  return json;
}

Json drafts_json(const RunFigures& f) {
  Json drafters = Json::array();
  for (std::size_t d = 0; d < f.drafters.size(); ++d) {
    Json positions = Json::array();
    for (const AcceptanceFigures& cell : f.acceptance[d])
      positions.push_back({{"drafted", cell.drafted}, {"accepted", cell.accepted}});
    drafters.push_back({{"name", f.drafters[d]}, {"positions", positions}});
  }
  return {{"verified", f.drafted},
          {"accepted", f.accepted},
          {"pregenerated", f.pregenerated},
          {"drafters", drafters}};
}

Json steps_json(const RunFigures& f) {
  Json json = Json::array();
  for (const StepFigures& step : f.steps) {
    json.push_back({{"requests", step.requests},
                    {"plain", step.plain},
                    {"plain_median_seconds", number(step.plain_seconds)},
                    {"drafted", step.drafted},
                    {"drafted_median_seconds", number(step.drafted_seconds)}});
  }
  return json;
}

Json choice_json(const NamedRun& run) {
  if (!run.rewards || !run.rewards->choice) return nullptr;
  const auto& [prompts, kept, dropped] = *run.rewards->choice;
  return {{"prompts", prompts},
          {"kept", kept},
          {"dropped", dropped},
          {"left_over", prompts - kept - dropped},
          {"cancelled_responses", run.figures.partial}};
}

Json turns_json(const TurnFigures& turns) {
  if (turns.responses.empty()) return nullptr;
  Json responses = Json::object();
  for (std::size_t i = 0; i < turns.responses.size(); ++i)
    if (turns.responses[i] > 0) responses[std::to_string(i)] = turns.responses[i];
  Json waits = nullptr;
  if (!turns.waits.empty()) {
    waits = {{"answers", turns.waits.size()},
             {"p50", number(quantile(turns.waits, 0.5))},
             {"p95", number(quantile(turns.waits, 0.95))},
             {"max", number(turns.waits.back())},
             {"sum", number(std::accumulate(turns.waits.begin(), turns.waits.end(), 0.0))}};
  }
  return {{"mean", number(turns.mean())}, {"responses", responses}, {"wait_seconds", waits}};
}

Json stored_kv_json(const StoredKvFigures& kv) {
  return {{"stored_bytes", kv.stored},
          {"memory_bytes", kv.from_memory},
          {"disk_bytes", kv.from_disk},
          {"lost_requests", kv.lost}};
}

Json run_json(const NamedRun& run) {
  const RunFigures& f = run.figures;
  const bool known = run.rewards.has_value();
  const double rate = f.seconds > 0 ? static_cast<double>(f.tokens) / f.seconds : 0;
  return {{"run", run.name},
          {"complete", known ? Json(run.rewards->complete) : Json(nullptr)},
          {"weight_version", known ? Json(run.rewards->weight_version) : Json(nullptr)},
          {"rewards", known ? rewards_json(*run.rewards) : Json(nullptr)},
          {"dynamic_sampling", choice_json(run)},
          {"tokens", f.tokens},
          {"seconds", number(f.seconds)},
          {"tokens_per_second", number(rate)},
          {"started", f.started > 0 ? number(f.started) : Json(nullptr)},
          {"ended", f.started > 0 ? number(f.ended) : Json(nullptr)},
          {"attempts", f.attempt_ends.size()},
          {"nodes", f.nodes.size()},
          {"cores", f.cores},
          {"gpus", f.gpus},
          {"responses", responses_json(run)},
          {"turns", turns_json(f.turns)},
          {"stored_kv", stored_kv_json(f.stored_kv)},
          {"phases", phases_json(f)},
          {"largest_loss", largest_loss(f)},
          {"drafts", drafts_json(f)},
          {"steps", steps_json(f)},
          {"ranks", ranks_json(f)}};
}

}  // namespace

std::string json_of(const std::vector<NamedRun>& runs) {
  Json json = {{"schema_version", kSchemaVersion}, {"runs", Json::array()}};
  for (const NamedRun& run : runs) json["runs"].push_back(run_json(run));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace paceline::app
