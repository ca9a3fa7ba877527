// What the speculation benchmarks share: a target, a draft model, prompts, and drafters made of
// them as app/assembly/drafters.cpp makes them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/eagle3_reader.hpp"
#include "io/text/tokenizer.hpp"
#include "kernels/backend.hpp"
#include "runtime/core/clock.hpp"
#include "runtime/core/thread_pool.hpp"
#include "runtime/costs/cost_measurement.hpp"
#include "runtime/draft/drafter.hpp"
#include "runtime/draft/head_drafter.hpp"
#include "runtime/draft/model_drafter.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/engine/executor.hpp"
#include "runtime/fabric/mpi_group.hpp"
#include "runtime/speculation/drafter_roster.hpp"
#include "tests/bench/bench_model.hpp"

namespace paceline::bench {

struct SpeculationOptions {
  std::string target = "configs/models/target";
  std::string draft = "configs/models/draft";
  std::string head;  ///< an EAGLE-3 head, or "mtp": the target's own layer; empty: none
  std::string prompts = "configs/prompts/unseen.jsonl";
  int layers_draft = 0;  ///< not 0: the draft is the target's first layers, weights are random
  double scale = 0.25;   ///< of the target's other layers then
  int stops = 0;         ///< of made-up weights: so many ids end a response
  std::string isa = "auto";
  bool device = false;
  int threads = 2;
  int samples = 8;        ///< responses a prompt
  int prompt_count = 64;  ///< of the file, or random
  int max_tokens = 512;   ///< of a response
  double temperature = 1;
  int max_length = 8;  ///< of a draft
  int paths = 1;
  int repeats = 5;
  double seconds = 1;    ///< that a plain run takes, about
  std::string arrivals;  ///< arrivals.hpp; empty: requests are there as soon as they have a place
  std::vector<int> batches{1, 2, 4, 8, 16, 32, 64};
  std::vector<std::string> drafters{"model"};
  std::vector<std::string> policies{"goodput", "fixed:4"};
  bool acceptance = false;
  bool costs = false;
  bool decisions = false;
  bool cpu_time = false;  ///< instead of the wall's
};

/// The wall's time, or what this thread has computed: on one thread of a shared machine that is the
/// steadier.
class SpeculationClock final : public Clock {
 public:
  explicit SpeculationClock(bool cpu) : cpu_(cpu) {}
  [[nodiscard]] double now() const override;

 private:
  bool cpu_;
};

/// Loaded models, prompts, and an engine that runs the target. The draft's prompts and noise are
/// the target's.
struct SpeculationSetup {
  explicit SpeculationSetup(const SpeculationOptions& options);

  /// The `index`-th request, siblings one after another; from the first prompt again after the
  /// last, under other ids and noise. `first_prompt` is added to the ids alone: the same request,
  /// but strange to a drafter that has seen it.
  [[nodiscard]] Admission request(int index, std::uint32_t first_prompt = 0) const;
  [[nodiscard]] SamplingParams sampling(int max_tokens) const;
  /// For one run of at most `max_batch` requests at once.
  [[nodiscard]] engine::Batcher batcher(int max_batch, int max_tokens) const;
  [[nodiscard]] draft::SequenceDrafterOptions drafter_options(int max_batch, int paths,
                                                              draft::DraftNoise noise) const;
  [[nodiscard]] std::unique_ptr<draft::Drafter> model_drafter(
      int max_batch, int max_tokens, int paths,
      draft::DraftNoise noise = draft::DraftNoise::shared);
  [[nodiscard]] std::unique_ptr<draft::Drafter> head_drafter(
      int max_batch, int max_tokens, int paths,
      draft::DraftNoise noise = draft::DraftNoise::shared);
  [[nodiscard]] std::shared_ptr<const model::Weights> load(const BenchModel& model);
  /// By name: "model", "eagle3", "mtp", "ngram" or "suffix". Throws UsageError on others.
  [[nodiscard]] std::unique_ptr<draft::Drafter> drafter(const std::string& name, int max_batch,
                                                        int max_tokens);

  /// The drafters of the options' names, in their order.
  [[nodiscard]] speculation::DrafterRoster drafters(int max_batch, int max_tokens);
  /// As a run measures itself at its start, for at most 2 s.
  [[nodiscard]] CostMeasurement measure_costs(const speculation::DrafterRoster& drafters,
                                              int max_batch, const Clock& clock);

  SpeculationOptions options;
  BenchModel target;
  std::optional<BenchModel> draft;  ///< none when nothing needs it
  std::optional<HeadConfig> head;   ///< likewise
  /// Of the head; null where they are the target's.
  std::unique_ptr<io::Checkpoint> head_weights;
  std::vector<std::vector<TokenId>> prompts;
  std::vector<TokenId> stops;
  int largest_batch = 0;
  int kv_blocks = 0;  ///< for the largest batch at its longest
  int longest = 0;    ///< sequence
  std::unique_ptr<kernels::Backend> backend;
  fabric::SingleRankGroup group;
  ThreadPool pool{options.threads};  ///< of drafters
  engine::ExecutorLimits limits;     ///< of the executor
  std::unique_ptr<engine::Executor> executor;
};

/// Prints the cost table of the largest batch, and by rows and context what it foretells of steps
/// beside what they took.
void bench_costs(SpeculationSetup& setup);

/// Prints what each policy takes to decide, by batch.
void bench_decisions(const SpeculationOptions& options);

/// Prints how much of drafts the target accepts, by drafter, paths and position.
void bench_acceptance(SpeculationSetup& setup);

}  // namespace paceline::bench
