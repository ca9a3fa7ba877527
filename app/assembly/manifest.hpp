// Makes the manifest of a run, which identifies the run in the output directory.
#pragma once

#include "app/assembly/inputs.hpp"
#include "app/assembly/machine.hpp"
#include "io/run/manifest.hpp"

namespace paceline::app {

/// Which layers have experts, how many such a layer has, and how many a token uses; empty: none.
[[nodiscard]] io::RoutingShape routing_shape(const ModelConfig& config);

/// Makes the manifest. Reads weights for the model's fingerprint. Call on rank 0.
[[nodiscard]] io::RunManifest manifest_of(const Inputs& inputs, const BackendChoice& backend);

/// Sets the manifest's fields about prompts, sampling, conversations, dynamic sampling and the
/// weight version. Reads no weights.
void describe_requests(const Inputs& inputs, io::RunManifest& manifest);

}  // namespace paceline::app
