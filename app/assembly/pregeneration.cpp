#include "app/assembly/pregeneration.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <iterator>
#include <optional>
#include <utility>

#include "app/assembly/coordination.hpp"
#include "app/assembly/manifest.hpp"
#include "app/terminal/terminal.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/sampling.hpp"

namespace paceline::app {
namespace {

void warn_of(const std::string& text) { say("warning: speculation.pregenerate: {}", text); }

/// Whether this step can generate texts for the next step, and the next step can draft from them.
bool is_of_use(const io::RunConfig& next, const io::RunConfig& now) {
  // A batch records sampling masks (sampling.keep_masks) for all of its requests or for none. A
  // mask has room for only this step's top_k ids.
  const bool masks_fit = next.sampling.keep_masks == now.sampling.keep_masks &&
                         (!now.sampling.keep_masks || next.sampling.top_k <= now.sampling.top_k);
  return next.speculation.history == io::SpeculationSection::kBeside && !next.converses() &&
         masks_fit;
}

/// Reads the inputs that the next step's requests need, with the present step's model. Leaves the
/// prompts empty if pregeneration is of no use, or if the prompts are not in a regular file.
Inputs read_next(const RunArguments& arguments, const Inputs& now) {
  Inputs next;
  next.config = read_config(arguments, io::Purpose::run);
  // Prompts in a pipe are not read, because reading could block and delay the present step's end.
  if (!is_of_use(next.config, now.config) ||
      !std::filesystem::is_regular_file(next.config.prompts.path))
    return next;
  next.target.config = now.target.config;
  next.target.compute = now.target.compute;
  next.picture_processor = now.picture_processor;
  next.media_refusal = now.media_refusal;
  next.text = now.text;
  next.ends.stops = stop_set(now.target.config, next.config.sampling, now.text.tokenizer.get());
  read_prompts(next, false);
  return next;
}

/// Fills in the settings that a prompt's line leaves open, from the next step's configuration. The
/// batch would otherwise use the present step's configuration.
void complete(RequestSampling& own, const Inputs& next) {
  const SamplingParams& sampling = next.config.sampling;
  if (!own.max_tokens) own.max_tokens = sampling.max_tokens;
  if (!own.draw) own.draw = sampling.draw();
  if (!own.logit_bias) own.logit_bias = sampling.logit_bias;
  if (!own.stops) {
    own.stops = StopSet{next.ends.stops, {}};
    if (next.text.tokenizer != nullptr) own.stops->strings = sampling.stop_strings;
  }
}

/// Opens or makes the directory for pregenerated texts. Deletes it first if its texts were made
/// under another manifest. Throws IoError if it holds another manifest's finished run, or no run.
std::unique_ptr<io::RunDirectory> open_directory(const std::string& path,
                                                 const io::RunManifest& manifest,
                                                 std::span<const Prompt> prompts) {
  if (std::filesystem::exists(path) &&
      io::first_difference(io::read_manifest(path), manifest).has_value() &&
      !io::remove_texts(path))
    throw IoError(path + ": expected texts for the next step's drafts, found another run");
  return std::make_unique<io::RunDirectory>(path, manifest, prompts, true);
}

/// Removes responses to prompts with pictures. Limits a prompt and its response together to the
/// length of the present step's longest sequence, where the rotary table ends. Removes responses
/// that have reached this limit.
void keep_possible(const Inputs& now, std::vector<Prompt>& prompts, std::vector<Trajectory>& work) {
  const std::int32_t longest = now.sizes.longest_sequence;
  const auto room = [&](const Prompt& prompt) {
    return longest - static_cast<std::int32_t>(prompt.tokens.size());
  };
  std::erase_if(work, [&](const Trajectory& response) {
    const Prompt& prompt = prompts[response.id.prompt];
    return !prompt.pictures.empty() || room(prompt) <= std::ssize(response.tokens);
  });
  for (Prompt& prompt : prompts)
    prompt.sampling.max_tokens = std::min(*prompt.sampling.max_tokens, std::max(room(prompt), 1));
}

}  // namespace

UpcomingStep::UpcomingStep(const ResidentStep& step, const Inputs& now,
                           const io::RunManifest& manifest, std::function<void()> wake)
    : step_(step), now_(now), manifest_(manifest), wake_(std::move(wake)) {}

UpcomingStep::~UpcomingStep() = default;

std::vector<Admission> UpcomingStep::take(std::size_t most) {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable())
    thread_ = std::jthread([this](const std::stop_token& stop) { search(stop); });
  std::vector<Admission> taken;
  std::optional<std::uint32_t> last;
  while (!waiting_.empty() && taken.size() < most) {
    Trajectory& trajectory = waiting_.front();
    const RequestId id = trajectory.id;
    const Prompt& prompt = prompts_[id.prompt];
    const NoiseKey noise = noise_key(prompt.sampling.seed.value_or(seed_),
                                     trajectory.weight_version, prompt.uid, id.sample);
    Admission& request = taken.emplace_back(Admission{
        .trajectory = std::move(trajectory), .noise = noise, .sampling = prompt.sampling});
    if (last != id.prompt) request.prompt = prompt.tokens;
    last = id.prompt;
    waiting_.pop_front();
  }
  return taken;
}

void UpcomingStep::search(const std::stop_token& stop) {
  constexpr std::chrono::milliseconds kPause(500);
  try {
    const io::StepFolder folder(step_.folder);
    while (!stop.stop_requested()) {
      if (const std::optional<io::StepRequest> next = folder.upcoming(step_.name)) {
        read(*next);
        return;
      }
      std::unique_lock lock(mutex_);
      (void)stopped_.wait_for(lock, stop, kPause, [] { return false; });
    }
  } catch (const std::exception& error) {
    warn_of(error.what());
  }
}

void UpcomingStep::read(const io::StepRequest& request) {
  RunArguments arguments = step_.job;
  arguments.overrides.push_back("@" + request.request);
  arguments.output = request.part;
  Inputs next = read_next(arguments, now_);
  if (next.prompts.prompts.empty()) return;
  io::RunManifest manifest = manifest_;
  manifest.config_text = next.config.text;
  describe_requests(next, manifest);
  // The next step drafts from tokens alone, so the shards keep no other data of the responses.
  manifest.sampling.keep_masks = false;
  manifest.sampling.keep_routing = false;
  manifest.sampling.logprobs = 0;
  manifest.choice.reset();
  manifest.routing = {};
  manifest.begun.clear();
  std::unique_ptr<io::RunDirectory> directory =
      open_directory(request.ahead, manifest, next.prompts.prompts);
  io::ResumeState earlier = directory->read_state();
  for (const std::string& warning : earlier.warnings) warn_of(warning);
  std::vector<Trajectory> work = work_list(next, earlier.finished, earlier.partial);
  for (Prompt& prompt : next.prompts.prompts) complete(prompt.sampling, next);
  keep_possible(now_, next.prompts.prompts, work);
  say("groups without requests begin responses of the next step ({}), which drafts from them later",
      request.name);
  {
    const std::lock_guard lock(mutex_);
    prompts_ = std::move(next.prompts.prompts);
    seed_ = next.config.sampling.seed;
    std::ranges::move(work, std::back_inserter(waiting_));
    run_ = {request.ahead, directory->attempt()};
    directory_ = std::move(directory);
  }
  wake_();
}

PregeneratedShard::PregeneratedShard(const PregeneratedRun& run, int rank, const Clock& clock,
                                     double flush_seconds, Warn warn)
    : clock_(clock), flush_seconds_(flush_seconds), flushed_(clock.now()), warn_(std::move(warn)) {
  attempt([&] {
    writer_ = std::make_unique<io::ShardWriter>(run.directory, run.attempt,
                                                static_cast<std::uint32_t>(rank));
  });
}

PregeneratedShard::~PregeneratedShard() {
  attempt([this] {
    if (writer_) writer_->close();
  });
}

void PregeneratedShard::append(const Trajectory& text) {
  attempt([&] {
    if (writer_) writer_->append(text);
  });
  if (clock_.now() - flushed_ >= flush_seconds_) flush();
}

void PregeneratedShard::flush() {
  flushed_ = clock_.now();
  attempt([this] {
    if (writer_) writer_->flush();
  });
}

void PregeneratedShard::attempt(const std::function<void()>& write) {
  try {
    write();
  } catch (const Error& error) {
    writer_.reset();
    warn_(std::string("speculation.pregenerate: ") + error.what());
  }
}

}  // namespace paceline::app
