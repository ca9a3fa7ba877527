// Dynamic sampling of a run (prompts.enough): which prompts count, while it runs and in its file.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "app/assembly/inputs.hpp"
#include "io/run/final_file.hpp"
#include "io/run/left_over.hpp"
#include "io/run/run_directory.hpp"
#include "runtime/policy/schedule/dynamic_sampling.hpp"

namespace paceline::app {

/// Prompts by their indexes, in the order in which they begin: of the file, or by prompts.shuffle.
[[nodiscard]] std::vector<std::uint32_t> prompt_order(const Inputs& inputs);

/// Null where all prompts count. It has the rewards that earlier attempts found.
[[nodiscard]] std::unique_ptr<policy::DynamicSampling> make_sampling(
    const Inputs& inputs, const io::ResumeState& earlier);

/// The prompts that the final file keeps; null where all prompts count. Once the file is written it
/// refuses, with DataError, a prompt that counts for want of a reward as reward.required has it.
[[nodiscard]] io::ChoosePrompts choose_prompts(const Inputs& inputs);

/// What the run of prompts.begun left unfinished of this one's prompts; the manifest says so then.
/// Throws as io::read_left_over().
[[nodiscard]] io::BegunResponses begun_responses(const Inputs& inputs, io::RunManifest& manifest);

/// Adds them to what earlier attempts left, which may be further on or finished.
void go_on_with(const io::BegunResponses& begun, io::ResumeState& earlier);

/// The line of a plan, or nothing.
[[nodiscard]] std::string sampling_text(const Inputs& inputs);
/// Prints which prompts a finished run kept, and warns where they are fewer than wanted.
void print_choice(const io::KeptPrompts& choice);

}  // namespace paceline::app
