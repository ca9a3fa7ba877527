// Group of a backend, in builds without CUDA.
#include "runtime/fabric/make_group.hpp"

namespace paceline::fabric {

MadeGroup make_group(MPI_Comm comm, kernels::Backend&, const GroupWatch&) {
  return {make_host_group(comm), ""};
}

}  // namespace paceline::fabric
