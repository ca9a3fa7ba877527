// The manifest of a run: it identifies the run in the output directory.
#pragma once

#include "app/assembly/inputs.hpp"
#include "app/assembly/machine.hpp"
#include "io/run/manifest.hpp"

namespace paceline::app {

/// Layers and experts of a model's routing; empty: the model has no experts.
[[nodiscard]] io::RoutingShape routing_shape(const ModelConfig& config);

/// Makes the manifest. Reads all weights once. Call on rank 0.
[[nodiscard]] io::RunManifest manifest_of(const Inputs& inputs, const BackendChoice& backend);

/// Sets the manifest's fields about prompts, sampling, conversations, the choice of prompts and the
/// weight version. Reads no weights.
void describe_requests(const Inputs& inputs, io::RunManifest& manifest);

}  // namespace paceline::app
