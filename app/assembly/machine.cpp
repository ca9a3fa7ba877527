#include "app/assembly/machine.hpp"

#include <algorithm>

#include "app/assembly/job.hpp"

namespace paceline::app {

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
