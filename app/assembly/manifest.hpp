// The manifest of a run, which identifies it in its output directory.
#pragma once

#include "app/assembly/backend_choice.hpp"
#include "app/assembly/inputs.hpp"
#include "io/run/manifest.hpp"

namespace paceline::app {

/// Where experts of tokens are, of a model that has any.
[[nodiscard]] io::RoutingShape routing_shape(const ModelConfig& config);

/// On rank 0. Reads all weights once.
[[nodiscard]] io::RunManifest manifest_of(const Inputs& inputs, const BackendChoice& backend);

}  // namespace paceline::app
