#include "runtime/fabric/make_group.hpp"
#include "runtime/fabric/mpi_group.hpp"
#include "runtime/fabric/shared_group.hpp"

namespace paceline::fabric {

std::unique_ptr<TensorParallelGroup> make_host_group(MPI_Comm comm) {
  if (auto group = SharedGroup::make(comm)) return group;
  return std::make_unique<MpiGroup>(comm);
}

}  // namespace paceline::fabric
