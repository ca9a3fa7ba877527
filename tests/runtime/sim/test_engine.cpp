// Steps cost what the table says, say what the responses say, and find KV that is wrong.
#include "runtime/sim/engine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <stdexcept>
#include <vector>

#include "runtime/engine/batcher.hpp"
#include "tests/runtime/sim/modelled_work.hpp"
#include "tests/runtime/sim/scripted_actor.hpp"

namespace paceline::sim {
namespace {

TEST(ShapeOf, CountsRowsAndWhatTheyAttendTo) {
  engine::Step step;
  step.tokens.resize(13);
  // A prompt's rows of which none, and of which the last is sampled; a draft of three; a request
  // that decodes plainly.
  step.parts = {{.first_row = 0, .rows = 5, .first_position = 10, .sequence = 0},
                {.first_row = 5, .rows = 3, .first_position = 0, .sequence = 1},
                {.first_row = 8, .rows = 4, .first_position = 20, .sequence = 2},
                {.first_row = 12, .rows = 1, .first_position = 30, .sequence = 3}};
  for (const std::int32_t row : {7, 8, 9, 10, 11, 12}) step.samples.push_back({{}, row, 0, 0});
  const StepShape shape = shape_of(step);
  EXPECT_EQ(shape.requests, 2);
  EXPECT_EQ(shape.drafted, 3);
  EXPECT_EQ(shape.prefill_rows, 8);
  EXPECT_EQ(shape.context, (20 + 30) / 2.0);
  EXPECT_EQ(shape.prefill_context, (5 * 10 + 3 * 0) / 8.0);
}

TEST(ShapeOf, AStepOfWorkOnKvAloneHasNone) {
  const StepShape shape = shape_of({});
  EXPECT_EQ(shape.requests, 0);
  EXPECT_EQ(shape.prefill_rows, 0);
  EXPECT_EQ(shape.context, 0);
}

CostTable costs() {
  CostTable table;
  table.decode = CostCurve({{1, 0.010}, {64, 0.020}}, 1e-5);
  table.prefill = CostCurve({{1, 0.005}, {256, 0.050}}, 1e-6);
  table.drafted_position = 1e-6;
  return table;
}

StepSeconds seconds_of(const CostTable& table) {
  return [table](const StepShape& shape, double) { return table.step_seconds(shape); };
}

/// A batcher on modelled requests, whose KV is looked at.
class Decoding {
 public:
  static constexpr int kBlock = 16;
  static constexpr int kBlocks = 40;
  static constexpr int kHeads = 2;

  explicit Decoding(std::int32_t prompts = 4, std::int32_t samples = 3, std::int32_t chunk = 0)
      : work(modelled_work(prompts, samples)),
        responses(work, kNoiseSeed, 0),
        batcher({.max_batch = 5,
                 .prefill_chunk = 13,
                 .kv_block = kBlock,
                 .kv_blocks = kBlocks,
                 .context = 200,
                 .growth = chunk},
                sampling(), {kModelledStop}, nullptr),
        actor_(world),
        memory_(bytes()),
        runner_(world, actor_.id, seconds_of(costs()), responses, kv()) {
    for (std::uint32_t p = 0; p < work.prompts.size(); ++p) {
      for (std::uint32_t s = 0; s < work.requests[p].size(); ++s) {
        Admission& made = queue.emplace_back();
        made.trajectory.id = {p, s};
        made.prompt = work.prompts[p].tokens;
        made.noise = noise_of(work, {p, s});
      }
    }
  }

  /// One step, in which each request that decodes has a draft: `right` tokens of its response, and
  /// then as many others.
  void step(int right = 0, int wrong = 0) {
    for (Admission& parked : batcher.take_parked()) queue.push_front(std::move(parked));
    while (!queue.empty() && batcher.admit(queue.front())) queue.pop_front();
    std::vector<std::vector<TokenId>> tokens;
    std::vector<std::vector<std::int32_t>> parents;
    for (const engine::Decoding& decoding : batcher.decoding()) {
      const Response& response = responses.of(noise_of(work, decoding.id));
      const int most = std::min(right + wrong, decoding.most_drafted);
      tokens.emplace_back();
      parents.emplace_back();
      for (int i = 0; i < most; ++i) {
        const TokenId said = responses.token(response, decoding.response + i);
        tokens.back().push_back(i < right ? said : wrong_token(said, responses.vocab()));
        parents.back().push_back(i - 1);
      }
    }
    std::vector<engine::DraftTree> drafts;
    for (std::size_t i = 0; i < tokens.size(); ++i) drafts.push_back({tokens[i], parents[i]});
    const engine::Step& planned = batcher.plan(drafts);
    const double before = world.clock(actor_.id).now();
    const engine::StepResult result = runner_.run(planned);
    const double expected = planned.empty() ? 0 : costs().step_seconds(shape_of(planned));
    EXPECT_NEAR(world.clock(actor_.id).now() - before, expected, 1e-12);
    if (!planned.empty()) {
      EXPECT_NEAR(result.forward_seconds, expected, 1e-12);
    }
    for (Trajectory& t : batcher.commit(result)) {
      const RequestId id = t.id;
      EXPECT_TRUE(finished.emplace(id, std::move(t)).second);
    }
  }
  [[nodiscard]] bool done() const { return queue.empty() && batcher.active() == 0; }
  /// The element of a head at a position of the request.
  std::int32_t& slot(RequestId id, int head, std::int32_t position) {
    const std::int32_t block = batcher.table(id)[position / kBlock];
    return memory_[(static_cast<std::size_t>(block) * kHeads + head) * kBlock + position % kBlock];
  }
  [[nodiscard]] std::optional<engine::KvMemory> kv() {
    return engine::KvMemory{{1, kHeads / 2, 1, kBlock, DType::f32},
                            std::as_writable_bytes(std::span(memory_)),
                            nullptr};
  }

  World world;
  Workload work;
  Responses responses;
  engine::Batcher batcher;
  std::deque<Admission> queue;
  std::map<RequestId, Trajectory> finished;

 private:
  static SamplingParams sampling() {
    SamplingParams params;
    params.max_tokens = 80;
    return params;
  }
  static std::vector<std::int32_t> bytes() {
    return std::vector<std::int32_t>(static_cast<std::size_t>(kBlocks) * kHeads * kBlock, -1);
  }
  ScriptedActor actor_;
  std::vector<std::int32_t> memory_;
  ModelledRunner runner_;
};

void expect_the_responses(const Decoding& decoding) {
  ASSERT_EQ(decoding.finished.size(), 12U);
  for (const auto& [id, t] : decoding.finished) {
    const Response& response = decoding.responses.of(noise_of(decoding.work, id));
    ASSERT_EQ(t.tokens.size(), 60U);
    for (std::int32_t i = 0; i < 60; ++i)
      ASSERT_EQ(t.tokens[i], decoding.responses.token(response, i)) << i;
    EXPECT_EQ(t.finish_reason, FinishReason::stop_id);
  }
}

TEST(ModelledRunner, ResponsesAreWhatTheWorkSaysHoweverTheyAreFound) {
  for (const std::int32_t chunk : {0, 30}) {
    Decoding plain(4, 3, chunk);
    while (!plain.done()) plain.step();
    expect_the_responses(plain);
    Decoding drafted(4, 3, chunk);
    for (int n = 0; !drafted.done(); ++n) drafted.step(n % 5, n % 3);
    expect_the_responses(drafted);
  }
}

/// Whether a request's KV that is spoiled at a position of any head is found by the next step.
TEST(ModelledRunner, KvThatIsWrongIsFound) {
  for (int head = 0; head < Decoding::kHeads; ++head) {
    for (const std::int32_t position : {0, 15, 16, 19, 20, 24}) {
      Decoding decoding;
      for (int n = 0; n < 30; ++n) decoding.step();
      const RequestId id = decoding.batcher.decoding().front().id;
      ASSERT_GT(decoding.batcher.decoding().front().context, 25);
      std::int32_t& slot = decoding.slot(id, head, position);
      const std::int32_t held = slot;
      decoding.step();  // nothing is wrong yet
      slot = held + 1;
      EXPECT_THROW(decoding.step(), std::logic_error) << "head " << head << ", " << position;
      EXPECT_GT(held, 0) << "no token was there";
    }
  }
}

TEST(ModelledRunner, KvOfAnotherRequestIsFound) {
  Decoding decoding;
  for (int n = 0; n < 30; ++n) decoding.step();
  const auto running = decoding.batcher.decoding();
  ASSERT_GE(running.size(), 2U);
  const RequestId one = running[0].id, other = running[1].id;
  ASSERT_EQ(one.prompt, other.prompt);
  for (int head = 0; head < Decoding::kHeads; ++head)
    decoding.slot(one, head, 22) = decoding.slot(other, head, 22);
  EXPECT_THROW(decoding.step(), std::logic_error);
}

TEST(ModelledRunner, WithoutMemoryNothingIsLookedAt) {
  const Workload work = modelled_work(1, 1);
  const Responses responses(work, kNoiseSeed, 0);
  World world;
  ScriptedActor actor(world);
  ModelledRunner runner(world, actor.id, seconds_of(costs()), responses, std::nullopt);
  engine::Step step;
  step.tokens = {1};
  step.parts = {{.first_row = 0, .rows = 1, .first_position = 30, .sequence = 0}};
  step.samples = {{noise_of(work, {0, 0}), 0, 10, 0}};
  const auto sampled = runner.run(step).sampled;
  ASSERT_EQ(sampled.size(), 1U);
  EXPECT_EQ(sampled[0].token, responses.token(responses.of(noise_of(work, {0, 0})), 10));
}

TEST(ModelledRunner, RefusesKvThatIsNotOneNumberAHeadAndSlot) {
  const Workload work = modelled_work(1, 1);
  const Responses responses(work, kNoiseSeed, 0);
  World world;
  ScriptedActor actor(world);
  for (const kernels::KvShape& shape :
       {kernels::KvShape{1, 1, 2, 16, DType::f32}, kernels::KvShape{1, 1, 1, 16, DType::bf16}}) {
    EXPECT_THROW(ModelledRunner(world, actor.id, seconds_of(costs()), responses,
                                engine::KvMemory{shape, {}, nullptr}),
                 std::invalid_argument);
  }
}

}  // namespace
}  // namespace paceline::sim
