// Dynamic sampling (prompts.enough): only prompts whose responses' rewards differ count, and the
// run ends when it has enough of them.
#pragma once

#include <memory>
#include <string>

#include "app/assembly/inputs.hpp"
#include "io/run/final_file.hpp"
#include "io/run/left_over.hpp"
#include "io/run/run_directory.hpp"
#include "runtime/policy/schedule/dynamic_sampling.hpp"

namespace paceline::app {

/// Indices of prompts in the order in which they begin, a random one if prompts.shuffle is set.
[[nodiscard]] std::vector<std::uint32_t> prompt_order(const Inputs& inputs);

/// Makes the policy and reports the rewards of earlier attempts to it; null: all prompts count.
[[nodiscard]] std::unique_ptr<policy::DynamicSampling> make_sampling(
    const Inputs& inputs, const io::ResumeState& earlier);

/// Returns the function that chooses the prompts of the final file; null: all prompts count. The
/// function throws DataError if a prompt lacks a reward that reward.required asks for.
[[nodiscard]] io::ChoosePrompts choose_prompts(const Inputs& inputs);

/// Reads the unfinished responses that another run (prompts.begun) left for this run's prompts, and
/// writes their fingerprint to the manifest; empty: there are none. Throws as io::read_left_over().
[[nodiscard]] io::BegunResponses begun_responses(const Inputs& inputs, io::RunManifest& manifest);

/// Adds `begun` to `earlier`, the state that earlier attempts of this run left. Omits a response
/// that an attempt has finished, or of which an attempt has at least as many tokens.
void go_on_with(const io::BegunResponses& begun, io::ResumeState& earlier);

/// The plan's line about dynamic sampling; empty: all prompts count.
[[nodiscard]] std::string sampling_text(const Inputs& inputs);
/// Prints how many prompts a finished run kept, and warns if prompts.enough wants more.
void print_choice(const io::KeptPrompts& choice);

}  // namespace paceline::app
