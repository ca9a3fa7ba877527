// Makes a run's manifest, the record in the output directory that identifies the run.
#pragma once

#include "app/assembly/inputs.hpp"
#include "app/assembly/machine.hpp"
#include "io/run/manifest.hpp"

namespace paceline::app {

/// The layers with experts, and how many experts such a layer has and a token uses; empty: none.
[[nodiscard]] io::RoutingShape routing_shape(const ModelConfig& config);

/// Makes the manifest, without `begun`. Reads weights for the model's fingerprint. Call on rank 0.
[[nodiscard]] io::RunManifest manifest_of(const Inputs& inputs, const BackendChoice& backend);

/// Sets the manifest's fields about prompts, sampling, conversations, dynamic sampling and the
/// weight version. Reads no weights.
void describe_requests(const Inputs& inputs, io::RunManifest& manifest);

}  // namespace paceline::app
