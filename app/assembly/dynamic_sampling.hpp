// Dynamic sampling of a run (prompts.enough): which prompts count, during the run and in its file.
#pragma once

#include <memory>
#include <string>

#include "app/assembly/inputs.hpp"
#include "io/run/final_file.hpp"
#include "io/run/left_over.hpp"
#include "io/run/run_directory.hpp"
#include "runtime/policy/schedule/dynamic_sampling.hpp"

namespace paceline::app {

/// Indices of prompts in the order in which they begin: the file's, or random (prompts.shuffle).
[[nodiscard]] std::vector<std::uint32_t> prompt_order(const Inputs& inputs);

/// Makes the policy, with the rewards that earlier attempts found; null: all prompts count.
[[nodiscard]] std::unique_ptr<policy::DynamicSampling> make_sampling(
    const Inputs& inputs, const io::ResumeState& earlier);

/// The function that chooses the prompts of the final file; null: all prompts count. It throws
/// DataError if a prompt is without a reward that reward.required asks for.
[[nodiscard]] io::ChoosePrompts choose_prompts(const Inputs& inputs);

/// Reads the unfinished responses to this run's prompts that the run of prompts.begun left, and
/// notes them in the manifest. Empty if prompts.begun is not set. Throws as io::read_left_over().
[[nodiscard]] io::BegunResponses begun_responses(const Inputs& inputs, io::RunManifest& manifest);

/// Adds `begun` to `earlier`, except responses that earlier attempts finished or made as long.
void go_on_with(const io::BegunResponses& begun, io::ResumeState& earlier);

/// The plan's line about dynamic sampling, or nothing.
[[nodiscard]] std::string sampling_text(const Inputs& inputs);
/// Prints how many prompts a finished run kept, and warns if they are fewer than wanted.
void print_choice(const io::KeptPrompts& choice);

}  // namespace paceline::app
