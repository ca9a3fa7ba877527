// `paceline score` reads a run, assigns its prompts to groups, computes, and writes one file into
// the run's directory. All work is known from the start. So groups exchange no messages while they
// compute, and each rank of a group plans the group's steps by itself.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app/assembly/communicator.hpp"
#include "app/assembly/compute.hpp"
#include "app/assembly/job.hpp"
#include "app/assembly/manifest.hpp"
#include "app/assembly/memory_plan.hpp"
#include "app/assembly/plan.hpp"
#include "app/assembly/plan_text.hpp"
#include "app/assembly/token_sets.hpp"
#include "app/assembly/wall_clock.hpp"
#include "app/commands/commands.hpp"
#include "app/terminal/signals.hpp"
#include "app/terminal/terminal.hpp"
#include "io/hdf5/atomic_file.hpp"
#include "io/run/scores_file.hpp"
#include "io/run/spool.hpp"
#include "io/run/stored_routing.hpp"
#include "io/run/stored_run.hpp"
#include "io/text/prompt_pictures.hpp"
#include "io/text/request_fields.hpp"
#include "runtime/core/counted.hpp"
#include "runtime/core/wire.hpp"
#include "runtime/engine/packed_prefill.hpp"
#include "runtime/policy/place/deal.hpp"

namespace paceline::app {
namespace {

/// Work of one group or of all groups, and how the new log-probabilities differ from the run's.
struct Counts {
  std::uint64_t rows = 0;             ///< rows computed, those of prompts included
  std::uint64_t tokens = 0;           ///< sampled tokens scored
  std::uint64_t differ = 0;           ///< tokens whose logprob differs from the run's in any bit
  std::uint64_t sampling_differ = 0;  ///< tokens whose sampling_logprob differs in any bit
  double difference = 0;              ///< sum over tokens of (the run's logprob - the new logprob)
  double largest = 0;                 ///< largest absolute difference of a token's two logprobs

  void compare(const Trajectory& in_run, const engine::ResponseScores& scores);
  void add(const Counts& other);
};

void Counts::compare(const Trajectory& in_run, const engine::ResponseScores& scores) {
  const auto same = [](float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
  };
  auto turn = in_run.turns.begin();
  for (std::size_t i = 0; i < in_run.tokens.size(); ++i) {
    while (turn != in_run.turns.end() && i >= turn->end) ++turn;
    if (turn != in_run.turns.end() && i >= turn->given) continue;  // given by the environment
    ++tokens;
    sampling_differ += same(in_run.sampling_logprob[i], scores.sampling_logprob[i]) ? 0 : 1;
    if (same(in_run.logprob[i], scores.logprob[i])) continue;
    const double token_difference = static_cast<double>(in_run.logprob[i]) - scores.logprob[i];
    ++differ;
    difference += token_difference;
    largest = std::max(largest, std::abs(token_difference));
  }
}

void Counts::add(const Counts& other) {
  rows += other.rows;
  tokens += other.tokens;
  differ += other.differ;
  sampling_differ += other.sampling_differ;
  difference += other.difference;
  largest = std::max(largest, other.largest);
}

struct Outcome {
  Counts counts;
  bool stopped = false;  ///< stopped before the end, because a rank got a signal
};

/// The path of the scores file. Throws UsageError on an invalid name. Throws IoError if the
/// directory is not writable, so that the user learns of the error before the computation.
std::string output_path(const Inputs& inputs, const ScoreArguments& arguments) {
  namespace fs = std::filesystem;
  // A path that ends with a slash has no filename(), so the filename() of its parent is used.
  const fs::path model = fs::path(inputs.config.model.path).lexically_normal();
  const fs::path last = model.has_filename() ? model.filename() : model.parent_path().filename();
  const std::string path =
      io::scores_path(arguments.directory, arguments.name.empty() ? last.string() : arguments.name);
  if (::access(arguments.directory.c_str(), W_OK) != 0)
    throw IoError("cannot write " + io::describe_errno(path, errno));
  return path;
}

/// Names the first setting that can change a log-probability and differs between the run and this
/// command; nullopt: no setting differs. Weights are not compared: they are expected to differ.
std::optional<std::string> other_difference(io::RunManifest now, const io::RunManifest& then) {
  now.model_fingerprint = then.model_fingerprint;
  now.weight_version = then.weight_version;
  now.sampling.seed = then.sampling.seed;
  now.sampling.max_tokens = then.sampling.max_tokens;
  now.sampling.stop_strings = then.sampling.stop_strings;
  now.sampling.keep_masks = then.sampling.keep_masks;
  now.sampling.keep_routing = then.sampling.keep_routing;
  now.sampling.logprobs = then.sampling.logprobs;
  now.routing = then.routing;
  if (now.sampling.min_tokens == 0) now.stops = then.stops;
  now.by_line = then.by_line;
  now.own_samples = then.own_samples;
  now.longest_response = then.longest_response;
  now.environment = then.environment;
  now.choice = then.choice;
  now.begun = then.begun;
  return io::first_difference(then, now);
}

void print_start(const Inputs& inputs, const Machine& machine, const Plan& plan, int ranks,
                 const io::RunManifest& now, const io::RunManifest& then) {
  write_to_user(banner_text(inputs, machine, ranks));
  for (const std::string& line : plan.layout.explanation) say("  {}", line);
  say("  {}", plan.memory.kv.explanation);
  if (const auto difference = other_difference(now, then))
    say("  not as in the run: {}", *difference);
}

/// Reads the sampling settings that prompts set for themselves, as far as log-probabilities depend
/// on them. Stop ids are among them, because they cannot be sampled before min_tokens.
void take_own_sampling(const Inputs& inputs, io::StoredRun& run) {
  std::vector<std::string> fields;
  std::copy_if(run.manifest.by_line.begin(), run.manifest.by_line.end(), std::back_inserter(fields),
               [](const std::string& field) { return field != "max_tokens" && field != "seed"; });
  io::RequestOptions options;
  options.sampling = inputs.config.sampling;
  options.stops = [&inputs](const SamplingParams& sampling) {
    return stop_set(inputs.target.config, sampling, inputs.text.tokenizer.get());
  };
  for (Prompt& prompt : run.prompts)
    prompt.sampling = io::stored_sampling(prompt, fields, options, inputs.target.config.vocab);
}

/// The responses that this rank's group scores, without empty ones. All responses to a prompt go to
/// one group, which computes the prompt once.
std::vector<Trajectory> share_of(const Plan& plan, int rank, const io::StoredRun& run) {
  const policy::Placement& placement = plan.layout.placement;
  std::vector<Trajectory> share;
  const int group = placement.group(rank);
  if (group < 0) return share;
  std::vector<int> degrees;
  for (const policy::GroupRanks& ranks : placement.groups) degrees.push_back(ranks.tp);
  std::vector<std::int64_t> rows;
  for (const Prompt& prompt : run.prompts) rows.push_back(std::ssize(prompt.tokens));
  for (const io::StoredResponse& response : run.finished) rows[response.prompt] += response.length;
  const std::vector<int> dealt = policy::deal(rows, degrees);

  std::vector<io::StoredResponse> entries;
  for (const io::StoredResponse& response : run.finished) {
    if (dealt[response.prompt] == group && response.length > 0) entries.push_back(response);
  }
  share.reserve(entries.size());
  io::read_responses(run, entries, [&](Trajectory&& t) { share.push_back(std::move(t)); });
  return share;
}

/// Reads the picture files that the run's prompts name. Throws DataError if a file is absent, or if
/// its picture is not the one that the run used.
class GivenPictures {
 public:
  explicit GivenPictures(const io::StoredRun& run)
      : run_(run), files_(run.prompts, run.paths.front()) {}

  /// Reads all pictures that `share` needs, so that errors show before the first step.
  void check(const std::vector<Trajectory>& share) {
    std::optional<std::uint32_t> checked;
    for (const Trajectory& t : share) {
      if (checked != t.id.prompt) (void)of(t.id.prompt);
      checked = t.id.prompt;
    }
  }
  [[nodiscard]] std::vector<PictureBytes> of(std::uint32_t prompt) {
    std::vector<PictureBytes> read;
    for (std::size_t i = 0; i < run_.prompts[prompt].pictures.size(); ++i)
      read.push_back(std::make_shared<const std::vector<std::byte>>(files_.file(prompt, i)));
    return read;
  }

 private:
  const io::StoredRun& run_;
  io::StoredPictures files_;
};

/// Whether any rank of the group got a signal to stop. Collective over the group.
bool any_stops(TensorParallelGroup& group) {
  const std::byte mine{stop_signalled()};
  const std::vector<int> sizes(group.size(), 1);
  std::vector<std::byte> all(group.size());
  group.all_gather({&mine, 1}, sizes, all);
  return std::find(all.begin(), all.end(), std::byte{true}) != all.end();
}

/// Throws UsageError if the options need experts that the model or the run lacks, or if the run's
/// experts do not match the model's.
void require_experts(const ModelConfig& config, const ScoreArguments& arguments,
                     const io::StoredRun& run) {
  if (!arguments.keeps_routing && !arguments.replays_routing) return;
  const char* option = arguments.replays_routing ? "--replay-routing" : "--keep-routing";
  if (!config.experts)
    throw UsageError(std::string(option) + ": expected a mixture of experts, found a dense model");
  if (!arguments.replays_routing) return;
  const io::RoutingShape& recorded = run.manifest.routing;
  const io::RoutingShape own = routing_shape(config);
  if (recorded.width() == 0)
    throw UsageError(
        "--replay-routing: the run recorded no experts; generate it with sampling.keep_routing: "
        "true");
  if (recorded != own)
    throw UsageError(
        fmt::format("--replay-routing: the model uses {} of {} experts for each token, but the run "
                    "recorded {} of {}{}",
                    own.chosen, own.experts, recorded.chosen, recorded.experts,
                    recorded.layers == own.layers ? "" : ", in other layers"));
}

std::vector<std::byte> record_of(const engine::ResponseScores& scores,
                                 const std::vector<std::int16_t>& routing) {
  WireWriter writer;
  writer.put_all(scores.id, scores.logprob, scores.sampling_logprob, scores.top_ids,
                 scores.top_logprob, scores.first_routed, routing);
  return writer.take();
}

/// Computes the log-probabilities of a group's responses. `share`: the responses, sorted by
/// prompt and sample. `replayed`: experts to use; null: the router chooses them. `scored`: gets the
/// group's results; null on ranks that do not lead a group. `watch`: called between steps.
Outcome score_share(const Inputs& inputs, const Plan& plan, engine::Executor& executor,
                    TensorParallelGroup& group, const io::StoredRun& run,
                    const std::vector<Trajectory>& share, const io::StoredRouting* replayed,
                    GivenPictures& pictures, io::Spool* scored,
                    const std::function<void()>& watch) {
  std::map<std::uint32_t, std::vector<TokenId>> banned;  // keys: prompts with own stop ids
  for (const Trajectory& t : share) {
    const auto& stops = run.prompts[t.id.prompt].sampling.stops;
    if (stops) banned.try_emplace(t.id.prompt, banned_early(inputs.config.sampling, stops->ids));
  }
  std::vector<engine::GivenResponse> given;
  given.reserve(share.size());
  for (const Trajectory& t : share) {
    const Prompt& prompt = run.prompts[t.id.prompt];
    const auto own = banned.find(t.id.prompt);
    const auto& bias = prompt.sampling.logit_bias;
    given.push_back({t.id, prompt.tokens, t.tokens, own == banned.end() ? nullptr : &own->second,
                     prompt.sampling.draw, bias ? &*bias : nullptr, t.turns, prompt.pictures});
  }
  const io::EngineSection& settings = inputs.config.engine;
  std::function<std::vector<std::int16_t>(RequestId)> routing;
  if (replayed != nullptr) {
    routing = [&, order = io::ResponseOrder(run.manifest)](RequestId id) {
      return replayed->of(order.place(id));
    };
  }
  const bool shown = inputs.sizes.largest_picture > 0;
  engine::PackedPrefill prefill({.max_batch = settings.max_batch,
                                 .rows = settings.prefill_chunk,
                                 .kv_block = settings.kv_block,
                                 .kv_blocks = plan.memory.kv.blocks,
                                 .keep_routing = inputs.config.sampling.keep_routing,
                                 .routing = std::move(routing),
                                 .logprobs = inputs.config.sampling.logprobs,
                                 .draw = inputs.config.sampling.draw(),
                                 .logit_bias = inputs.config.sampling.logit_bias,
                                 .picture_merge = shown ? inputs.picture_processor->merge : 0,
                                 .picture_rows = kept_picture_rows(inputs),
                                 .files = [&](std::uint32_t of) { return pictures.of(of); }},
                                inputs.config.sampling.min_tokens, std::move(given));
  Outcome outcome;
  while (true) {
    watch();
    const engine::Step& step = prefill.plan();
    if (step.empty()) break;
    outcome.stopped = any_stops(group);
    if (outcome.stopped) break;
    outcome.counts.rows += step.tokens.size();
    if (replayed != nullptr) executor.give_routing(prefill.routing());
    for (const engine::ResponseScores& scores : prefill.commit(executor.run(step))) {
      const auto of = std::lower_bound(share.begin(), share.end(), scores.id,
                                       [](const Trajectory& t, RequestId id) { return t.id < id; });
      outcome.counts.compare(*of, scores);
      if (scored != nullptr)
        scored->put(record_of(scores, executor.read_routing(scores.routed_places)));
    }
  }
  return outcome;
}

/// Rank 0 writes the results of all groups, and returns the sum of their counts. Other ranks return
/// zeros. `scored`: results of this rank's group; null if the rank leads no group. Collective.
Counts write_scores(const fabric::MpiEnvironment& mpi, const io::StoredRun& run,
                    const std::string& path, const io::RunManifest& manifest,
                    const Outcome& outcome, io::Spool* scored) {
  std::optional<io::ScoresWriter> file;
  if (mpi.rank() == 0) file.emplace(path, run, manifest);
  Counts counts;
  const Counts none;
  mpi.collect(std::as_bytes(std::span(scored != nullptr ? &outcome.counts : &none, 1)),
              [&](std::span<const std::byte> bytes) {
                WireReader reader(bytes);
                Counts of_group;
                reader.get(of_group);
                counts.add(of_group);
              });
  const io::ResponseOrder order(run.manifest);
  engine::ResponseScores scores;
  std::vector<std::int16_t> routing;
  const auto write = [&](std::span<const std::byte> records) {
    WireReader reader(records);
    while (!reader.empty()) {
      reader.get_all(scores.id, scores.logprob, scores.sampling_logprob, scores.top_ids,
                     scores.top_logprob, scores.first_routed, routing);
      const std::size_t response = order.place(scores.id);
      file->write(response, scores.logprob, scores.sampling_logprob);
      if (!scores.top_ids.empty()) file->write_top(response, scores.top_ids, scores.top_logprob);
      if (!routing.empty()) file->write_routing(response, scores.first_routed, routing);
    }
  };
  constexpr std::size_t kAtOnce = std::size_t{16} << 20;  // bytes that a rank sends at a time
  bool more = true;
  while (more) {
    const std::vector<std::byte> mine =
        scored != nullptr ? scored->next(kAtOnce) : std::vector<std::byte>();
    mpi.collect(mine, write);
    const std::byte left{!mine.empty()};
    const std::vector<std::byte> all = mpi.all_values(left);
    more = std::ranges::any_of(all, [](std::byte b) { return b != std::byte{}; });
  }
  if (file) file->commit();
  return counts;
}

void print_end(const std::string& path, std::size_t responses, const Counts& counts,
               double seconds) {
  const auto tokens = static_cast<double>(counts.tokens);
  say("{}: {}, {} in {:.1f} s: {:.1f} tokens/s, {:.1f} rows/s with prompts", path,
      counted(responses, "response"), counted(counts.tokens, "token"), seconds, tokens / seconds,
      static_cast<double>(counts.rows) / seconds);
  if (counts.differ == 0 && counts.sampling_differ == 0) {
    say("all log-probabilities equal the run's in every bit");
  } else {
    say("of {} tokens, logprob differs from the run's in {} and sampling_logprob in {}; the "
        "difference of logprob (run minus now) is {:.6f} on average, and at most {:.6f} in size",
        counts.tokens, counts.differ, counts.sampling_differ, counts.difference / tokens,
        counts.largest);
  }
}

}  // namespace

ExitCode score(const fabric::MpiEnvironment& mpi, const ScoreArguments& arguments) {
  const SteadyClock clock;
  const int rank = mpi.rank();
  io::StoredRun run;
  together(mpi, [&] { run = io::open_finished_run(arguments.directory); });
  io::RunConfig config = read_config(mpi, arguments.run, io::Purpose::given);
  config.sampling.keep_routing = arguments.keeps_routing;
  const Machine machine = find_machine(mpi, config.engine);
  const Inputs inputs = read_given(mpi, std::move(config), run, arguments.replays_routing);
  const Plan plan = plan_given(mpi, inputs, machine);
  together(mpi, [&] { take_own_sampling(inputs, run); });
  std::string path;
  io::RunManifest manifest;
  together(mpi, [&] {
    require_experts(inputs.target.config, arguments, run);
    path = output_path(inputs, arguments);
    if (rank != 0) return;
    manifest = manifest_of(inputs, machine.backend);
    print_start(inputs, machine, plan, mpi.size(), manifest, run.manifest);
  });
  const std::unique_ptr<Compute> compute = make_compute(mpi, inputs, machine, plan);
  std::vector<Trajectory> share;
  std::optional<io::Spool> scored;
  std::optional<io::StoredRouting> replayed;
  GivenPictures pictures(run);
  together(mpi, [&] {
    share = share_of(plan, rank, run);
    pictures.check(share);
    if (plan.layout.placement.role(rank) == Role::verifier) scored.emplace(arguments.directory);
    if (arguments.replays_routing && compute->executor) replayed.emplace(run);
  });

  const double began = clock.now();
  Outcome outcome;
  {
    const Communicator control = Communicator::duplicate();
    FaultDesk faults(mpi, control.get());
    const auto watch = [&] {
      if (rank == 0) faults.watch();
    };
    try {
      if (compute->executor) {
        const policy::Placement& placement = plan.layout.placement;
        const int tp = placement.groups[placement.group(rank)].tp;
        outcome = score_share(inputs, plan, *compute->executor, group_of(*compute, tp), run, share,
                              replayed ? &*replayed : nullptr, pictures,
                              scored ? &*scored : nullptr, watch);
      }
    } catch (...) {
      faults.report(current_fault(), [] {});
    }
    mpi.barrier(watch);
  }
  const double seconds = clock.now() - began;
  together(mpi, [&] {
    if (outcome.stopped)
      throw Error(ExitCode::try_again,
                  "stopped before the end, so no scores are written: run the same command again");
  });
  const Counts counts =
      write_scores(mpi, run, path, manifest, outcome, scored ? &*scored : nullptr);
  if (rank == 0) print_end(path, run.finished.size(), counts, seconds);
  return ExitCode::done;
}

}  // namespace paceline::app
