// Findings that need a checkpoint's weights: rank 0 reads the weights and tells all ranks.
#pragma once

#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::app {

struct Inputs;

/// Looks for output heads that are stored although config.json ties them to the embeddings, in the
/// model and in draft models. A stored head whose values differ is used, as in transformers 5.
/// Finds whether a draft head's embeddings equal the model's; if so, one table serves both. Adds
/// warnings about the checkpoints to Inputs::warnings. Collective; throws JobEnded.
void settle_checkpoints(const fabric::MpiEnvironment& mpi, Inputs& inputs);

}  // namespace paceline::app
