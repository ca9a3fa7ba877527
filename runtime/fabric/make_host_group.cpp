// Group of a backend, in builds without CUDA.
#include "runtime/fabric/make_group.hpp"
#include "runtime/fabric/mpi_group.hpp"

namespace paceline::fabric {

MadeGroup make_group(MPI_Comm comm, kernels::Backend&, const GroupWatch&) {
  return {std::make_unique<MpiGroup>(comm), ""};
}

}  // namespace paceline::fabric
