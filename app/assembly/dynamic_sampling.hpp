// Dynamic sampling (prompts.enough). A prompt counts only if the rewards of its responses are not
// all equal. The run ends when enough prompts count, or no prompt is left.
#pragma once

#include <memory>
#include <string>

#include "app/assembly/inputs.hpp"
#include "io/run/final_file.hpp"
#include "io/run/left_over.hpp"
#include "io/run/run_directory.hpp"
#include "runtime/policy/schedule/dynamic_sampling.hpp"

namespace paceline::app {

/// Indices of prompts in the order in which they begin. prompts.shuffle makes the order random.
[[nodiscard]] std::vector<std::uint32_t> prompt_order(const Inputs& inputs);

/// Makes the policy and reports to it the rewards in `earlier`, and NaN for finished responses that
/// will never get a reward. Returns null if prompts.enough is not set.
[[nodiscard]] std::unique_ptr<policy::DynamicSampling> make_sampling(
    const Inputs& inputs, const io::ResumeState& earlier);

/// Returns the function that chooses the prompts of the final file; null: prompts.enough is not
/// set. The function throws DataError if reward.required forbids dropping prompts without rewards.
[[nodiscard]] io::ChoosePrompts choose_prompts(const Inputs& inputs);

/// Reads the unfinished responses to this run's prompts from an earlier run (prompts.begun), and
/// writes a fingerprint of these responses to the manifest. Returns no responses if prompts.begun
/// is not set or the earlier run left none. Throws as io::read_left_over() does.
[[nodiscard]] io::BegunResponses begun_responses(const Inputs& inputs, io::RunManifest& manifest);

/// Adds `begun` to `earlier`, the state in which this run starts or resumes. Omits a response that
/// is finished in `earlier`. If both have a part of a response, keeps the longer part.
void go_on_with(const io::BegunResponses& begun, io::ResumeState& earlier);

/// The plan's line about dynamic sampling; empty: prompts.enough is not set.
[[nodiscard]] std::string sampling_text(const Inputs& inputs);
/// Prints how many prompts a finished run kept, and warns if prompts.enough wants more.
void print_choice(const io::KeptPrompts& choice);

}  // namespace paceline::app
