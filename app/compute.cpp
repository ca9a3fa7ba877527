#include "app/compute.hpp"

#include <algorithm>

#include "app/job.hpp"
#include "app/terminal.hpp"

namespace paceline::app {

engine::ExecutorLimits executor_limits(const Setup& setup) {
  const io::EngineSection& settings = setup.config.engine;
  return {.max_batch = settings.max_batch,
          .max_draft = draft_tokens(setup.config.speculation),
          .prefill_chunk = settings.prefill_chunk,
          .kv_block = settings.kv_block,
          .kv_blocks = setup.kv.blocks,
          .max_position = setup.longest_sequence};
}

std::unique_ptr<Compute> make_compute(const fabric::MpiEnvironment& mpi, const Setup& setup,
                                      const Communicator& members) {
  const Role role = setup.layout.role[mpi.rank()];
  auto compute = std::make_unique<Compute>();
  together(mpi, [&] {
    if (role != Role::spare) compute->backend = make_backend(setup.backend, setup.threads);
  });
  const bool steps = role == Role::verifier || role == Role::verifier_member;
  // By itself, for it waits for the group's other ranks.
  together(mpi, [&] {
    if (!steps || setup.layout.tp == 1) return;
    compute->made = fabric::make_group(members.get(), *compute->backend);
    if (mpi.rank() == 0 && !compute->made.explanation.empty())
      say("  {}", compute->made.explanation);
  });
  together(mpi, [&] {
    if (steps) {
      compute->executor = std::make_unique<engine::Executor>(
          *compute->backend, setup.model, *setup.weights, *compute->made.group, setup.compute,
          setup.config.sampling, setup.stops, executor_limits(setup));
    }
    if (role != Role::verifier && role != Role::drafter) return;
    compute->draft_threads = std::make_unique<ThreadPool>(setup.threads);
    const bool models = role == Role::drafter || setup.layout.drafters == 0;
    compute->drafters =
        make_drafters(setup, *compute->backend, compute->alone, *compute->draft_threads, models);
  });
  return compute;
}

}  // namespace paceline::app
