// What only reading weights says of checkpoints: rank 0 reads, and all ranks go by what it finds.
#pragma once

#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::app {

struct Setup;

/// Finds heads that are stored beside embeddings which config.json ties, of the model and of draft
/// models: those of other values are used, as transformers 5 does. Finds whether an EAGLE-3 head's
/// embeddings are the model's, which it then embeds by. Fills setup.warnings in with what the user
/// should know of the checkpoints. Collective; throws JobEnded.
void settle_checkpoints(const fabric::MpiEnvironment& mpi, Setup& setup);

}  // namespace paceline::app
