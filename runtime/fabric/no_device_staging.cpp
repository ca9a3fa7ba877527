// Device staging of builds without CUDA: none.
#include "runtime/fabric/device_staging.hpp"

namespace paceline::fabric {

std::unique_ptr<DeviceStaging> make_device_staging() { return nullptr; }

}  // namespace paceline::fabric
