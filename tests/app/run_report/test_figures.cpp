#include "app/run_report/figures.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <string>

#include "app/run_report/reports.hpp"
#include "app/run_report/trace.hpp"

namespace paceline::app {
namespace {

/// Two attempts of two ranks, of 10 and 6 seconds: a verifier, and a drafter that idles.
RecordedTelemetry small_run() {
  RecordedTelemetry run;
  run.attempts = {{1, 2, 1000, 1010, "plan"}, {2, 2, 2000, 2006, "plan"}};
  run.processes = {
      {1, 0, 4, 0, "here"}, {1, 1, 4, 0, "there"}, {2, 0, 2, 0, "here"}, {2, 1, 1, 0, "elsewhere"}};
  run.drafters = {"suffix"};
  for (const std::uint32_t attempt : {1U, 2U}) {
    for (const std::uint32_t rank : {0U, 1U}) {
      RoleRecord role;
      role.preparing = 2;
      role.loading = 0.5;
      role.role = static_cast<std::uint32_t>(rank == 0 ? Role::verifier : Role::drafter);
      run.roles.push_back({role, attempt, rank});
      RankSummary summary;
      summary.rank = rank;
      summary.role = role.role;
      summary.response_tokens = rank == 0 ? 50 : 0;
      summary.peak_rss_bytes = (rank + 1) << 20;
      run.summaries.push_back({summary, attempt, rank});
    }
  }
  StepRecord step;
  step.start = 2;
  step.duration = 8;
  step.draft_duration = 1;
  step.forward_duration = 6;
  step.sample_duration = 0.5;
  step.sum_duration = 1.5;
  step.exchange_duration = 0.25;
  step.requests = 3;
  step.prefill_tokens = 10;
  step.decode_tokens = 20;
  step.drafted = 5;
  step.accepted = 4;
  step.kv_blocks_used = 30;
  step.kv_blocks = 60;
  run.steps.push_back({step, 1, 0});
  step.duration = 4;
  step.prefill_tokens = 0;
  step.drafted = step.accepted = 0;
  step.draft_duration = 0;
  step.forward_duration = 4;
  step.sample_duration = step.sum_duration = step.exchange_duration = 0;
  run.steps.push_back({step, 2, 0});
  run.writes.push_back({{9, 0.25, WriteRecord::Kind::trajectories}, 1, 0});  // in its step
  run.writes.push_back({{5, 1, WriteRecord::Kind::telemetry}, 1, 1});
  const auto event = [&](double time, std::uint32_t sample, RequestEventKind kind,
                         std::uint32_t tokens, std::uint32_t attempt) {
    RequestEvent e;
    e.time = time;
    e.id = {7, sample};
    e.kind = kind;
    e.tokens = tokens;
    run.events.push_back({e, attempt, 0});
  };
  event(2, 0, RequestEventKind::leased, 0, 1);
  event(2, 1, RequestEventKind::leased, 0, 1);
  event(9, 0, RequestEventKind::finished, 40, 1);  // and lost: it is generated again
  event(10, 1, RequestEventKind::stopped, 30, 1);
  event(2, 0, RequestEventKind::leased, 0, 2);
  event(2, 1, RequestEventKind::resumed, 30, 2);
  event(5, 0, RequestEventKind::finished, 40, 2);
  run.events.back().row.reason = FinishReason::stop_id;
  event(6, 1, RequestEventKind::finished, 60, 2);
  run.events.back().row.reason = FinishReason::length;
  return run;
}

TEST(RunFigures, TimeIsSharedOutToPhases) {
  const RunFigures figures = figures_of(small_run(), 16);
  EXPECT_DOUBLE_EQ(figures.seconds, 16);
  EXPECT_EQ(figures.attempt_ends, (std::vector<double>{10, 16}));
  ASSERT_EQ(figures.ranks.size(), 2U);
  const PhaseSeconds& verifier = figures.ranks[0].seconds;
  EXPECT_DOUBLE_EQ(verifier[Phase::starting], 3);
  EXPECT_DOUBLE_EQ(verifier[Phase::loading], 1);
  EXPECT_DOUBLE_EQ(verifier[Phase::prefill], 1.5);  // 10 of 30 rows of 6 - 1.5 seconds
  EXPECT_DOUBLE_EQ(verifier[Phase::verify], 0.75);  // 5 of them
  EXPECT_DOUBLE_EQ(verifier[Phase::decode], 2.25 + 4);
  EXPECT_DOUBLE_EQ(verifier[Phase::communication], 1.5 + 0.25);
  EXPECT_DOUBLE_EQ(verifier[Phase::draft], 1);
  EXPECT_DOUBLE_EQ(verifier[Phase::sample], 0.25);
  EXPECT_DOUBLE_EQ(verifier[Phase::flush], 0.25);
  EXPECT_DOUBLE_EQ(verifier[Phase::other], 0.25);
  EXPECT_DOUBLE_EQ(verifier[Phase::idle], 0);
  EXPECT_DOUBLE_EQ(figures.ranks[1].seconds[Phase::flush], 1);
  EXPECT_DOUBLE_EQ(figures.ranks[1].seconds[Phase::idle], 11);
  for (const RankFigures& rank : figures.ranks) {
    EXPECT_DOUBLE_EQ(rank.seconds.sum(), 16);
    double sum = 0;
    for (const PhaseSeconds& bin : rank.timeline) {
      EXPECT_NEAR(bin.sum(), 1, 1e-9);
      sum += bin.sum();
    }
    EXPECT_NEAR(sum, 16, 1e-9);
  }
  EXPECT_EQ(figures.ranks[0].role, Role::verifier);
  EXPECT_EQ(largest_loss(figures).find("ranks were idle for 34 % of their time; "), 0U);
}

TEST(RunFigures, AMembersStepsAreDividedAsItsLeaders) {
  RecordedTelemetry run = small_run();
  for (auto& role : run.roles) {
    role.row.leader = 0;
    if (role.rank == 1) role.row.role = static_cast<std::uint32_t>(Role::verifier_member);
  }
  StepRecord step;
  step.role = static_cast<std::uint32_t>(Role::verifier_member);
  step.start = 2.5;
  step.duration = step.forward_duration = 6;
  run.steps.push_back({step, 1, 1});
  step.duration = step.forward_duration = 1;
  run.steps.push_back({step, 2, 1});
  step.start = 7;
  run.steps.push_back({step, 2, 1});  // the leader has no record of it
  const RunFigures figures = figures_of(run, 16);
  const PhaseSeconds& member = figures.ranks[1].seconds;
  EXPECT_DOUBLE_EQ(member[Phase::prefill], 2);  // 10 of 30 rows of 6 seconds
  EXPECT_DOUBLE_EQ(member[Phase::verify], 1);   // 5 of them
  EXPECT_DOUBLE_EQ(member[Phase::decode], 3 + 1 + 1);
  EXPECT_EQ(figures.drafted, 5U);
}

TEST(RunFigures, PicturesArePrefill) {
  RecordedTelemetry run = small_run();
  run.steps[0].row.picture_duration = 0.125;  // of the 0.5 seconds that are left of the step
  const PhaseSeconds seconds = figures_of(run, 16).ranks[0].seconds;
  EXPECT_DOUBLE_EQ(seconds[Phase::prefill], 1.5 + 0.125);
  EXPECT_DOUBLE_EQ(seconds[Phase::other], 0.125);
  EXPECT_DOUBLE_EQ(seconds.sum(), 16);
  EXPECT_NE(trace_of(run).find(R"("name":"pictures")"), std::string::npos);
}

TEST(RunFigures, WhatWasWrittenWhileStartingCountsOnce) {
  RecordedTelemetry run = small_run();
  run.writes.insert(run.writes.begin(), {{1, 0.5, WriteRecord::Kind::telemetry}, 1, 0});
  const PhaseSeconds seconds = figures_of(run, 16).ranks[0].seconds;
  EXPECT_DOUBLE_EQ(seconds[Phase::starting], 2.5);
  EXPECT_DOUBLE_EQ(seconds[Phase::flush], 0.75);
  EXPECT_DOUBLE_EQ(seconds.sum(), 16);
}

TEST(RunFigures, AChangeOfRolesLoads) {
  RecordedTelemetry run = small_run();
  RoleRecord role;
  role.start = 7;
  role.preparing = 1;
  role.loading = 0.75;
  role.epoch = 1;
  run.roles.push_back({role, 1, 1});
  const PhaseSeconds seconds = figures_of(run, 16).ranks[1].seconds;
  EXPECT_DOUBLE_EQ(seconds[Phase::starting], 3);
  EXPECT_DOUBLE_EQ(seconds[Phase::loading], 1.75);
  EXPECT_DOUBLE_EQ(seconds.sum(), 16);
}

TEST(RunFigures, HostsAndWallTimeAreNamed) {
  RecordedTelemetry run = small_run();
  const RunFigures figures = figures_of(run, 16);
  EXPECT_EQ(figures.ranks[0].host, "here");
  EXPECT_EQ(figures.ranks[1].host, "elsewhere");  // in the last attempt
  ASSERT_EQ(figures.nodes.size(), 2U);
  EXPECT_EQ(figures.nodes[0].host, "elsewhere");
  EXPECT_EQ(figures.nodes[0].peak_rss_bytes, 2U << 20);
  const std::string text = text_of({{"run", figures}});
  EXPECT_NE(text.find(" a rank (2 ranks), 2.1 a core (3 cores)\n"), std::string::npos) << text;
  EXPECT_NE(text.find("from 1970-01-01 00:16:40 to 1970-01-01 00:33:26 UTC on 2 nodes"),
            std::string::npos)
      << text;
  const std::string trace = trace_of(run);
  EXPECT_NE(trace.find(R"("name":"there: rank 1, attempt 1")"), std::string::npos) << trace;
  EXPECT_NE(trace.find(R"("name":"telemetry","pid":1,"tid":2,"ts":5000000.000,"dur":1000000.000)"),
            std::string::npos)
      << trace;
  run.processes[1].host = "a\"b\\\n";  // damaged
  EXPECT_NE(trace_of(run).find(R"("name":"a?b??: rank 1, attempt 1")"), std::string::npos);
}

TEST(RunFigures, TheLastMomentOfAnAttemptIsItsEnd) {
  RecordedTelemetry run = small_run();
  run.attempts[1].ended += 1;  // rank 0 wrote the final files
  EXPECT_DOUBLE_EQ(figures_of(run, 16).seconds, 17);
  run.attempts[1].ended = std::nan("");
  EXPECT_DOUBLE_EQ(figures_of(run, 16).seconds, 16);
}

TEST(RunFigures, BinsAreMeansOverTime) {
  const RunFigures figures = figures_of(small_run(), 16);
  EXPECT_DOUBLE_EQ(figures.timeline[0].requests, 0);
  EXPECT_NEAR(figures.timeline[5].requests, 3, 1e-9);
  EXPECT_NEAR(figures.timeline[5].tokens, (20 - 5 + 4) / 8.0, 1e-9);
  EXPECT_NEAR(figures.timeline[5].drafted, 5 / 8.0, 1e-9);
  EXPECT_NEAR(figures.timeline[5].kv_used, 0.5, 1e-9);
  EXPECT_DOUBLE_EQ(figures.timeline[11].requests, 0);
  EXPECT_EQ(figures.drafted, 5U);
  EXPECT_EQ(figures.accepted, 4U);
  ASSERT_EQ(figures.steps.size(), 1U);  // the other step had prompts
  EXPECT_EQ(figures.steps[0].requests, 2U);
  EXPECT_EQ(figures.steps[0].plain, 1U);
  EXPECT_DOUBLE_EQ(figures.steps[0].plain_seconds, 4);
}

TEST(RunFigures, AResponseCountsOnce) {
  const RunFigures figures = figures_of(small_run(), 16);
  ASSERT_EQ(figures.responses.size(), 2U);
  EXPECT_DOUBLE_EQ(figures.responses[0].finished, 15);
  EXPECT_DOUBLE_EQ(figures.responses[0].leased, 2);
  EXPECT_DOUBLE_EQ(figures.responses[1].finished, 16);
  EXPECT_EQ(figures.partial, 0U);
  EXPECT_DOUBLE_EQ(figures.finished_by(0.5), 15);
  EXPECT_DOUBLE_EQ(figures.finished_by(0.51), 16);
  EXPECT_DOUBLE_EQ(figures.length_quantile(0.5), 60);
  ASSERT_EQ(figures.groups.size(), 1U);
  EXPECT_EQ(figures.groups[0].longest, 60U);
  const std::string text = text_of({{"run", figures}});
  EXPECT_NE(text.find("2 responses finished (1 by stop_id, 1 by length), in 2 attempts"),
            std::string::npos)
      << text;
  EXPECT_DOUBLE_EQ(figures.groups[0].mean, 50);
}

TEST(RunFigures, TurnsAndTheirWaits) {
  RecordedTelemetry run = small_run();
  EXPECT_EQ(text_of({{"run", figures_of(run, 16)}}).find("Conversations"), std::string::npos);
  const auto event = [&](double time, std::uint32_t sample, RequestEventKind kind,
                         std::uint32_t tokens, std::uint32_t attempt) {
    RequestEvent e;
    e.time = time;
    e.id = {7, sample};
    e.kind = kind;
    e.tokens = tokens;
    run.events.insert(run.events.end() - 4, {e, attempt, 0});  // before both resume
  };
  event(3, 0, RequestEventKind::turn_ended, 10, 1);
  event(5, 0, RequestEventKind::answered, 16, 1);
  event(6, 0, RequestEventKind::turn_ended, 40, 1);  // and is lost
  event(9, 1, RequestEventKind::turn_ended, 20, 1);  // a wait that a kill ended
  for (auto& e : run.events)
    if (e.row.kind == RequestEventKind::finished) e.row.tokens += 1000;
  run.events.insert(run.events.end() - 2, {{3, {7, 0}, RequestEventKind::turn_ended, 40}, 2, 0});
  run.events.insert(run.events.end() - 2, {{3, {7, 1}, RequestEventKind::answered, 30}, 2, 0});
  run.summaries[0].row.pool_stored_bytes = 3 << 20;
  run.summaries[2].row.pool_disk_bytes = 1 << 20;
  const RunFigures figures = figures_of(run, 16);
  EXPECT_EQ(figures.turns.responses, (std::vector<std::uint64_t>{0, 1, 1}));
  EXPECT_DOUBLE_EQ(figures.turns.mean(), 1.5);
  EXPECT_EQ(figures.turns.waits, std::vector<double>{2});
  const std::string text = text_of({{"run", figures}, {"plain", figures_of(small_run(), 16)}});
  for (const char* said : {"Conversations, 1.50 turns a response\n", "Waits for answers, s\n",
                           "KV of requests that waited, MiB\n", "turns a response\n"})
    EXPECT_NE(text.find(said), std::string::npos) << said << text;
  const std::string html = html_of({{"run", figures}, {"again", figures}});
  EXPECT_NE(html.find("Turns a response, run by run"), std::string::npos);
  EXPECT_NE(html.find("Turns of responses"), std::string::npos);
  EXPECT_EQ(html.find("nan"), std::string::npos);
}

/// How wide what is drawn in each rank's row is, by the row's place.
std::map<double, double> drawn_widths(const std::string& html) {
  const std::size_t begin = html.find("<svg");
  const std::string picture = html.substr(begin, html.find("</svg>") - begin);
  constexpr const char* box = "<rect x=\"%lf\" y=\"%lf\" width=\"%lf\" height=\"%lf\" fill%n";
  std::map<double, double> widths;
  for (std::size_t at = picture.find("<rect"); at != std::string::npos;
       at = picture.find("<rect", at + 1)) {
    double x = 0;
    double y = 0;
    double width = 0;
    double height = 0;
    int end = 0;  // 0: it is no such box
    const int read = std::sscanf(picture.c_str() + at, box, &x, &y, &width, &height, &end);
    if (read == 4 && end > 0 && height > 10) widths[y] += width;  // no legend
  }
  return widths;
}

TEST(RunFigures, RanksThatWereNotThereAreNotDrawn) {
  RecordedTelemetry run = small_run();
  std::map<double, double> widths = drawn_widths(html_of({{"run", figures_of(run, 16)}}));
  ASSERT_EQ(widths.size(), 2U);
  EXPECT_NEAR(widths.begin()->second, 710, 0.5);
  EXPECT_NEAR(widths.rbegin()->second, 710, 0.5);
  // Resumed on one rank, for 6 of 16 seconds.
  const auto second = [](const auto& row) { return row.attempt == 2 && row.rank == 1; };
  std::erase_if(run.processes, second);
  std::erase_if(run.roles, second);
  std::erase_if(run.summaries, second);
  std::erase_if(run.writes, second);
  run.attempts[1].ranks = 1;
  widths = drawn_widths(html_of({{"run", figures_of(run, 16)}}));
  ASSERT_EQ(widths.size(), 2U);
  EXPECT_NEAR(widths.begin()->second, 710, 0.5);
  EXPECT_NEAR(widths.rbegin()->second, 710.0 * 10 / 16, 0.5);
}

TEST(RunFigures, OfARunThatDidNothing) {
  RecordedTelemetry run;
  for (int attempts = 0; attempts < 2; ++attempts) {
    const std::vector<NamedRun> runs{{"a <run>", figures_of(run, 4)}, {"b", figures_of(run, 4)}};
    EXPECT_NE(text_of(runs).find("0 tokens in 0.000 s"), std::string::npos);
    const std::string html = html_of(runs);
    EXPECT_NE(html.find("a &lt;run&gt;"), std::string::npos);
    EXPECT_EQ(html.find("nan"), std::string::npos) << html;
    EXPECT_EQ(html.find("inf"), std::string::npos);
    EXPECT_NE(trace_of(run).find("traceEvents"), std::string::npos);
    run.attempts = {{1, 1, 1000, 1000, ""}};
  }
}

TEST(RunFigures, DamagedTimesHarmNothing) {
  RecordedTelemetry run = small_run();
  run.steps[0].row.start = std::nan("");
  run.events[0].row.time = std::nan("");
  run.steps[1].row.duration = -1;
  run.roles[3].row.start = std::nan("");
  run.writes[0].row.start = std::nan("");
  run.writes[1].row.duration = -1;
  const RunFigures figures = figures_of(run, 16);
  EXPECT_DOUBLE_EQ(figures.seconds, 16);
  EXPECT_EQ(html_of({{"run", figures}}).find("nan"), std::string::npos);
}

}  // namespace
}  // namespace paceline::app
