// Where the CUDA backend or cuBLAS's headers were not there at building.
#include "runtime/core/error.hpp"
#include "tests/bench/machine.hpp"

namespace paceline::bench {

Machine measure_device() { throw UsageError("this program was built without CUDA or cuBLAS"); }

}  // namespace paceline::bench
