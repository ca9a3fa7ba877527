#include "app/assembly/machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "app/assembly/job.hpp"
#include "kernels/gpus.hpp"
#include "runtime/core/counted.hpp"
#include "runtime/core/error.hpp"

namespace paceline::app {
namespace {

/// GPU architectures for which tests/gpu/RESULTS.md has results. If `engine.backend` is `auto`, no
/// other GPUs are used. Results and this list must be extended together.
constexpr std::array<std::string_view, 1> kMeasuredDevices{"sm_90"};

bool is_measured(std::string_view isa) {
  return std::ranges::find(kMeasuredDevices, isa) != kMeasuredDevices.end();
}

/// Facts about a rank's GPU, sent to all ranks. Longer texts are cut to the sizes of their fields.
struct GpuFacts {
  std::int32_t gpus = 0;  ///< GPUs that the rank sees; 0: it can use none
  char isa[16] = {};
  char name[64] = {};
  char why_none[192] = {};
  std::uint64_t free = 0;   ///< bytes
  std::uint64_t place = 0;  ///< kernels::GpuInfo::place
};

template <std::size_t n>
void put(char (&to)[n], const std::string& text) {
  std::copy_n(text.begin(), std::min(text.size(), n - 1), to);
}

GpuFacts look(int device, const kernels::GpuList& list) {
  GpuFacts facts;
  facts.gpus = static_cast<std::int32_t>(list.gpus.size());
  put(facts.why_none, list.why_none);
  if (device < 0) return facts;
  const kernels::GpuInfo& gpu = list.gpus[device];
  put(facts.isa, gpu.isa);
  put(facts.name, gpu.name);
  facts.place = gpu.place;
  if (!gpu.why_unusable.empty()) {
    facts.gpus = 0;
    put(facts.why_none, gpu.name + " cannot be used: " + gpu.why_unusable);
    return facts;
  }
  try {
    facts.free = kernels::free_gpu_memory(device);
  } catch (const Error& error) {  // a GPU that does not work counts as no GPU
    facts.gpus = 0;
    put(facts.why_none, error.what());
  }
  return facts;
}

// Returns `setting` or, if it is auto, the best instruction set that all ranks have. All ranks use
// the same set, because the bits of results depend on it.
std::string common_isa(const fabric::MpiEnvironment& mpi, const std::string& setting) {
  if (setting != "auto") return setting;
  const std::vector<std::string> known{"amx_bf16", "avx512_bf16", "avx512", "avx2", "portable"};
  const std::string best = kernels::supported_cpu_isas().front();
  const auto mine = static_cast<int>(std::ranges::find(known, best) - known.begin());
  return known.at(mpi.max_of(mine).value);
}

BackendChoice choose_cpu(const fabric::MpiEnvironment& mpi, const io::EngineSection& engine,
                         std::span<const fabric::RankFacts> facts) {
  BackendChoice choice;
  choice.name = "cpu";
  choice.isa = common_isa(mpi, engine.isa);
  choice.memory = std::ranges::min(facts, {}, &fabric::RankFacts::own_memory).own_memory();
  return choice;
}

// Chooses the CPU although there are GPUs, which `devices` describes. The CUDA backend was never
// measured on such GPUs, so `auto` cannot know whether the backend is correct and fast there.
BackendChoice choose_cpu_beside(const std::string& devices, const fabric::MpiEnvironment& mpi,
                                const io::EngineSection& engine,
                                std::span<const fabric::RankFacts> facts) {
  BackendChoice choice = choose_cpu(mpi, engine, facts);
  choice.explanation = fmt::format(
      "computes on the CPU and leaves {} idle, because the CUDA backend was not measured on such "
      "GPUs yet (to try it: engine.backend: cuda)",
      devices);
  return choice;
}

// Chooses a planned machine's GPUs. If this machine has GPUs (`here`), the same kind is assumed.
BackendChoice choose_planned(const PlannedMachine& machine, const kernels::GpuList& here,
                             int ranks_per_node) {
  std::uint64_t memory = machine.gpu_memory.value_or(0);
  if (memory == 0) {
    if (here.gpus.empty()) {
      throw UsageError(
          fmt::format("--gpus: expected --gpu-memory with the memory of each GPU, because this "
                      "machine has no GPU to look at: {}",
                      here.why_none));
    }
    memory = kernels::free_gpu_memory(0);
  }
  const int gpus = machine.gpus.value_or(ranks_per_node);
  const int sharers = (ranks_per_node + gpus - 1) / gpus;
  BackendChoice choice;
  choice.name = "cuda";
  choice.isa = here.gpus.empty() ? "planned GPUs of unknown architecture" : here.gpus[0].isa;
  choice.device = 0;
  if (!here.gpus.empty()) choice.device_name = here.gpus[0].name;
  choice.memory = plannable_gpu_memory(memory / sharers);
  if (sharers > 1) {
    choice.explanation = fmt::format("warning: {} share {} on each node",
                                     counted(ranks_per_node, "rank"), counted(gpus, "GPU"));
  } else if (ranks_per_node < gpus) {
    choice.explanation =
        fmt::format("warning: {} on each node leave {} idle", counted(ranks_per_node, "rank"),
                    counted(gpus - ranks_per_node, "GPU"));
  }
  return choice;
}

// Chooses the backend for a planned machine whose GPUs are stated. If the command line states them,
// they are used even if never measured. If only Slurm states them, the rules of a real job decide.
BackendChoice choose_elsewhere(const fabric::MpiEnvironment& mpi, const io::EngineSection& engine,
                               std::span<const fabric::RankFacts> facts,
                               const PlannedMachine& machine) {
  const char* option = machine.gpus ? "--gpus" : "--gpu-memory";
  if (machine.gpus == 0 && machine.gpu_memory)
    throw UsageError("--gpu-memory: expected --gpus of 1 or more beside it, found 0");
  if (engine.backend == "cpu" && machine.gpus_stated) {
    throw UsageError(fmt::format(
        "{}: engine.backend is cpu, which leaves GPUs idle; leave the option out, or set "
        "engine.backend: cuda",
        option));
  }
  if (engine.backend == "cuda" && machine.gpus == 0)
    throw UsageError("engine.backend: cuda, but the nodes planned for have no GPUs (--gpus 0)");
  if (engine.backend == "cpu" || machine.gpus == 0) return choose_cpu(mpi, engine, facts);
  const kernels::GpuList here = kernels::visible_gpus();
  const bool measured = !here.gpus.empty() && is_measured(here.gpus[0].isa);
  if (engine.backend == "auto" && !measured && !machine.gpus_stated)
    return choose_cpu_beside("the planned GPUs", mpi, engine, facts);
  BackendChoice choice = choose_planned(machine, here, facts[0].local_ranks);
  if (engine.backend == "auto" && !measured) {
    choice.explanation += fmt::format(
        "{}warning: planned for the GPUs of {}, but engine.backend: auto computes on the CPU "
        "unless the CUDA backend was measured on such GPUs; set engine.backend: cuda for the run",
        choice.explanation.empty() ? "" : "\n  ", option);
  }
  return choice;
}

}  // namespace

std::uint64_t plannable_gpu_memory(std::uint64_t free) {
  constexpr std::uint64_t kReserve = std::uint64_t{768} << 20;
  return free - free / 16 - std::min(kReserve, free / 4);
}

BackendChoice choose_backend(const fabric::MpiEnvironment& mpi, const io::EngineSection& engine,
                             std::span<const fabric::RankFacts> facts,
                             const PlannedMachine* planned) {
  if (planned != nullptr && (planned->gpus || planned->gpu_memory))
    return choose_elsewhere(mpi, engine, facts, *planned);
  if (engine.backend == "cpu") return choose_cpu(mpi, engine, facts);
  const kernels::GpuList list = kernels::visible_gpus();
  const int gpus = static_cast<int>(list.gpus.size());
  const int device = gpus == 0 ? -1 : facts[mpi.rank()].local_rank % gpus;
  const GpuFacts mine = look(device, list);
  const std::vector<GpuFacts> all = mpi.all_values(mine);

  const auto without = std::ranges::find(all, 0, &GpuFacts::gpus);
  if (without != all.end()) {
    const auto rank = static_cast<int>(without - all.begin());
    const bool some =
        std::ranges::any_of(all, [](const GpuFacts& other) { return other.gpus > 0; });
    const std::string where = fmt::format("rank {} on {}", rank, facts[rank].host);
    if (engine.backend == "cuda") {
      throw UsageError(fmt::format("engine.backend: cuda, but {} has no GPU that it can use: {}",
                                   where, without->why_none));
    }
    BackendChoice choice = choose_cpu(mpi, engine, facts);
    choice.explanation =
        some
            ? fmt::format(
                  "warning: computes on the CPU and leaves GPUs idle, because {} can use none: {}",
                  where, without->why_none)
            : fmt::format("computes on the CPU, because no GPU can be used: {}", without->why_none);
    return choice;
  }
  const auto unmeasured =
      std::ranges::find_if(all, [](const GpuFacts& rank) { return !is_measured(rank.isa); });
  if (engine.backend == "auto" && unmeasured != all.end())
    return choose_cpu_beside(fmt::format("{} ({})", unmeasured->name, unmeasured->isa), mpi, engine,
                             facts);
  BackendChoice choice;
  choice.name = "cuda";
  choice.isa = all[0].isa;
  choice.device = device;
  choice.device_name = all[0].name;
  choice.memory = UINT64_MAX;
  for (int rank = 0; rank < mpi.size(); ++rank) {
    if (choice.isa != all[rank].isa) {
      throw UsageError(fmt::format(
          "engine.backend: rank {} on {} has a GPU of {}, but rank 0 has one of {}, so results "
          "would depend on the rank; use nodes with the same GPUs, or set engine.backend: cpu",
          rank, facts[rank].host, all[rank].isa, choice.isa));
    }
    int sharers = 0;  // ranks on the same device
    for (int other = 0; other < mpi.size() && planned == nullptr; ++other) {
      const bool same =
          facts[other].node == facts[rank].node && all[other].place == all[rank].place;
      sharers += same ? 1 : 0;
    }
    if (planned != nullptr) sharers = (facts[0].local_ranks + gpus - 1) / gpus;
    choice.memory = std::min(choice.memory, plannable_gpu_memory(all[rank].free / sharers));
  }
  return choice;
}

std::unique_ptr<kernels::Backend> make_backend(const BackendChoice& choice, int threads) {
  if (choice.on_device()) return kernels::make_cuda_backend(choice.device);
  return kernels::make_cpu_backend(threads, choice.isa);
}

Machine find_machine(const fabric::MpiEnvironment& mpi, const io::EngineSection& engine,
                     const PlannedMachine* planned) {
  Machine machine;
  machine.elsewhere = planned != nullptr;
  machine.ranks = mpi.gather_facts();
  together(mpi, [&] {
    if (planned != nullptr) machine.ranks = facts_of(*planned, machine.ranks[0]);
    const fabric::RankFacts& me = machine.ranks[mpi.rank()];
    machine.threads = engine.threads.value_or(std::max(1, me.cores / me.sharers));
    machine.backend = choose_backend(mpi, engine, machine.ranks, planned);
  });
  return machine;
}

}  // namespace paceline::app
