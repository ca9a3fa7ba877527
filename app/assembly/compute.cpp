#include "app/assembly/compute.hpp"

#include <fmt/format.h>

#include <utility>

#include "app/assembly/communicator.hpp"
#include "app/assembly/drafters.hpp"
#include "app/assembly/job.hpp"
#include "app/assembly/make_drafters.hpp"
#include "app/terminal/terminal.hpp"
#include "io/images/picture.hpp"
#include "io/images/processor.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/pictures.hpp"

namespace paceline::app {
namespace {

/// Cuts prompts' pictures into the patches that the model's vision tower reads.
class PatchReader final : public PictureReader {
 public:
  explicit PatchReader(const ImageProcessorConfig& processor) : processor_(processor) {}

  [[nodiscard]] std::vector<float> patches(std::span<const std::byte> file, const PictureGrid& grid,
                                           const std::string& name) const override {
    const io::ProcessedPicture picture =
        io::process(processor_, io::decode_picture(file, name), name);
    if (picture.grid != grid) {
      throw DataError(
          fmt::format("{}: expected {} x {} patches, as when the run read its prompts, "
                      "found {} x {}",
                      name, grid.rows, grid.columns, picture.grid.rows, picture.grid.columns));
    }
    return io::patches_of(processor_, picture);
  }

 private:
  ImageProcessorConfig processor_;
};

/// The reader of the run's pictures; null: no prompt has pictures.
std::shared_ptr<const PictureReader> make_picture_reader(const Inputs& inputs) {
  if (inputs.sizes.largest_picture == 0) return nullptr;
  return std::make_shared<PatchReader>(*inputs.picture_processor);
}

}  // namespace

engine::ExecutorLimits executor_limits(const Inputs& inputs, const Plan& plan) {
  const io::EngineSection& settings = inputs.config.engine;
  engine::ExecutorLimits limits{.max_batch = settings.max_batch,
                                .max_draft = draft_tokens(inputs.config.speculation),
                                .prefill_chunk = settings.prefill_chunk,
                                .kv_block = settings.kv_block,
                                .kv_blocks = plan.memory.kv.blocks,
                                .most_kv_blocks = plan.memory.kv.blocks + plan.memory.kv_gain,
                                .max_position = inputs.sizes.longest_sequence,
                                .keep_routing = inputs.config.sampling.keep_routing,
                                .gives_routing = inputs.gives_routing,
                                .features = read_layers(inputs, plan),
                                .weights = inputs.config.model.path};
  if (inputs.config.speculation.record_stops() > 0) {
    const std::int32_t questions =
        speculation::StopRecorder::most_questions(stop_recording(inputs.config.speculation));
    limits.max_draft += (questions + settings.max_batch - 1) / settings.max_batch;
  }
  // `paceline score` needs logits at all rows of the given responses. Rows of a prefill chunk have
  // none, so all rows of its steps count as decode rows.
  if (inputs.given) limits.max_batch = std::exchange(limits.prefill_chunk, 0);
  return limits;
}

std::unique_ptr<Compute> make_compute(const fabric::MpiEnvironment& mpi, const Inputs& inputs,
                                      const Machine& machine, const Plan& plan) {
  const int rank = mpi.rank();
  const policy::Placement& placement = plan.layout.placement;
  const bool shuffles = inputs.config.test.shuffles(io::Shuffle::roles);
  const int own = placement.group(rank);
  auto compute = std::make_unique<Compute>();
  compute->threads = machine.threads;
  together(mpi, [&] {
    if (plan.best_of_n.roles_change || placement.role(rank) != Role::spare)
      compute->backend = make_backend(machine.backend, machine.threads);
  });
  std::vector<int> degrees = placement.degrees();
  for (const auto& [tp, costs] : plan.tail_groups.costs) degrees.push_back(tp);
  for (const int tp : degrees) {
    if (tp == 1) continue;
    const bool whole = (rank / tp + 1) * tp <= mpi.size();
    const bool member =
        (whole && (shuffles || (own >= 0 && placement.groups[own].tp == tp))) ||
        (plan.tail_groups.costs.contains(tp) && joins(machine, placement, rank, tp));
    const Communicator members = Communicator::split(member ? rank / tp : -1, rank);
    // make_group() waits for the group's other ranks, so no earlier line of the lambda may throw.
    together(mpi, [&] {
      if (!member) return;
      fabric::MadeGroup& made = compute->groups[tp];
      // The rank ends the job if it waits for its device longer than limits.stall.
      made = fabric::make_group(
          members.get(), *compute->backend,
          {inputs.config.limits.stall, [&mpi](const std::string& why) {
             abort_job(mpi, {ExitCode::internal, why + "; run again with --resume to continue"});
           }});
      if (rank == 0 && !made.explanation.empty()) say("  {}", made.explanation);
    });
  }
  compute->weights = std::make_unique<WeightStore>(mpi, inputs, plan, compute->backend.get());
  together(mpi, [&] { take_place(*compute, inputs, plan, placement, rank); });
  return compute;
}

TensorParallelGroup& group_of(Compute& compute, int tp) {
  if (tp == 1) return compute.alone;
  return *compute.groups.at(tp).group;
}

void take_place(Compute& compute, const Inputs& inputs, const Plan& plan,
                const policy::Placement& placement, int rank) {
  compute.executor.reset();  // frees memory that the next executor may need
  compute.drafters.clear();
  compute.weights->drop_parts();
  const Role role = placement.role(rank);
  if (role == Role::verifier || role == Role::verifier_member) {
    const auto [leader, tp] = placement.groups[placement.group(rank)];
    compute.executor = std::make_unique<engine::Executor>(
        *compute.backend, compute.weights->get({{}, tp, rank - leader}), group_of(compute, tp),
        inputs.config.sampling, inputs.ends.stops, executor_limits(inputs, plan),
        engine::PicturePorts{compute.weights->get_tower(), make_picture_reader(inputs)});
  }
  if (role != Role::verifier && role != Role::drafter) return;
  if (!compute.draft_threads) compute.draft_threads = std::make_unique<ThreadPool>(compute.threads);
  // A head without embeddings of its own needs the target's whole embedding table. Ranks that
  // have no executor, or whose executor has only a part of the table, load the table here.
  std::shared_ptr<const kernels::Embedding> embedding;
  if (compute.executor) embedding = compute.executor->embedding();
  if (embedding == nullptr && has_head(plan, role) && !has_own_embeddings(plan)) {
    embedding = compute.weights->timed([&] {
      return model::load_embedding(*compute.backend, inputs.target.config, *inputs.target.weights);
    });
  }
  for (const std::int32_t d : own_drafters(plan, role, placement.drafter(rank)))
    compute.drafters[d] = make_drafter(inputs, plan, *compute.backend, *compute.weights,
                                       compute.alone, *compute.draft_threads, embedding, d);
}

}  // namespace paceline::app
