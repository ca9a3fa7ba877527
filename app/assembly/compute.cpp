#include "app/assembly/compute.hpp"

#include <algorithm>
#include <utility>

#include "app/assembly/communicator.hpp"
#include "app/assembly/drafters.hpp"
#include "app/assembly/job.hpp"
#include "app/assembly/make_drafters.hpp"
#include "app/terminal/terminal.hpp"

namespace paceline::app {

engine::ExecutorLimits executor_limits(const Setup& setup) {
  const io::EngineSection& settings = setup.config.engine;
  engine::ExecutorLimits limits{.max_batch = settings.max_batch,
                                .max_draft = draft_tokens(setup.config.speculation),
                                .prefill_chunk = settings.prefill_chunk,
                                .kv_block = settings.kv_block,
                                .kv_blocks = setup.kv.blocks,
                                .most_kv_blocks = setup.kv.blocks + setup.kv_gain,
                                .max_position = setup.longest_sequence,
                                .features = read_layers(setup),
                                .weights = setup.config.model.path};
  if (setup.config.speculation.record_stops() > 0) {
    const std::int32_t questions =
        speculation::StopRecorder::most_questions(stop_recording(setup.config.speculation));
    limits.max_draft += (questions + settings.max_batch - 1) / settings.max_batch;
  }
  // Every row of a chunk may belong to a response and need its logits.
  if (setup.given) limits.max_batch = std::exchange(limits.prefill_chunk, 0);
  return limits;
}

std::unique_ptr<Compute> make_compute(const fabric::MpiEnvironment& mpi, const Setup& setup) {
  const int rank = mpi.rank();
  const policy::Placement& placement = setup.layout.placement;
  const bool shuffles = setup.config.test.shuffles(io::Shuffle::roles);
  const int own = placement.group(rank);
  auto compute = std::make_unique<Compute>();
  together(mpi, [&] {
    if (roles_change(setup) || placement.role(rank) != Role::spare)
      compute->backend = make_backend(setup.backend, setup.threads);
  });
  for (const int tp : placement.degrees()) {
    if (tp == 1) continue;
    const bool whole = (rank / tp + 1) * tp <= mpi.size();
    const bool joins = whole && (shuffles || (own >= 0 && placement.groups[own].tp == tp));
    const Communicator members = Communicator::split(joins ? rank / tp : -1, rank);
    // A step of its own, for making a group waits for the group's other ranks.
    together(mpi, [&] {
      if (!joins) return;
      fabric::MadeGroup& made = compute->groups[tp];
      // A device that waits too long ends the job as a hanging rank does; rank 0 itself may wait.
      made = fabric::make_group(
          members.get(), *compute->backend,
          {setup.config.limits.stall, [&mpi](const std::string& why) {
             abort_job(mpi, {ExitCode::internal, why + "; run again with --resume to continue"});
           }});
      if (rank == 0 && !made.explanation.empty()) say("  {}", made.explanation);
    });
  }
  compute->weights = std::make_unique<WeightStore>(mpi, setup, compute->backend.get());
  together(mpi, [&] { take_place(*compute, setup, placement, rank); });
  return compute;
}

TensorParallelGroup& group_of(Compute& compute, int tp) {
  if (tp == 1) return compute.alone;
  return *compute.groups.at(tp).group;
}

void take_place(Compute& compute, const Setup& setup, const policy::Placement& placement,
                int rank) {
  compute.executor.reset();  // its memory may be needed for the next
  compute.drafters.clear();
  compute.weights->drop_parts();
  const Role role = placement.role(rank);
  if (role == Role::verifier || role == Role::verifier_member) {
    const auto [leader, tp] = placement.groups[placement.group(rank)];
    compute.executor = std::make_unique<engine::Executor>(
        *compute.backend, compute.weights->get({{}, tp, rank - leader}), group_of(compute, tp),
        setup.config.sampling, setup.stops, executor_limits(setup));
  }
  if (role != Role::verifier && role != Role::drafter) return;
  if (!compute.draft_threads) compute.draft_threads = std::make_unique<ThreadPool>(setup.threads);
  // A head embeds any token, but a group's rank may have only a part of the table.
  std::shared_ptr<const kernels::Embedding> embedding;
  if (compute.executor) embedding = compute.executor->embedding();
  if (embedding == nullptr && has_head(setup, role) && !has_own_embeddings(setup)) {
    embedding = compute.weights->timed(
        [&] { return model::load_embedding(*compute.backend, setup.model, *setup.weights); });
  }
  for (const std::int32_t d : own_drafters(setup, role, placement.drafter(rank)))
    compute.drafters[d] = make_drafter(setup, *compute.backend, *compute.weights, compute.alone,
                                       *compute.draft_threads, embedding, d);
}

}  // namespace paceline::app
