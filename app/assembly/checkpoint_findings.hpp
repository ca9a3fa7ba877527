// Findings that take reading a checkpoint's weights: rank 0 reads, all ranks go by its findings.
#pragma once

#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::app {

struct Inputs;

/// Looks for output heads that are stored although config.json ties them to the embeddings, in the
/// model and in draft models: a stored head of other values is used, as in transformers 5. Finds
/// whether a head's embeddings equal the model's, which then serve both. Adds to
/// Inputs::warnings what the user should know of the checkpoints. Collective; throws JobEnded.
void settle_checkpoints(const fabric::MpiEnvironment& mpi, Inputs& inputs);

}  // namespace paceline::app
