#include "app/commands/version.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hdf5.h>
#include <mpi.h>
#include <ucp/api/ucp.h>

#include <map>

#include "kernels/backend.hpp"
#include "kernels/gpus.hpp"
#include "runtime/fabric/mpi_environment.hpp"
#include "version_data.hpp"

namespace paceline::app {
namespace {

std::string hdf5_library() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

/// The GPUs that this process sees, such as "2 x NVIDIA H200 (sm_90)", or why it sees none.
std::string gpus() {
  const kernels::GpuList list = kernels::visible_gpus();
  if (list.gpus.empty()) return "no GPU: " + list.why_none;
  std::map<std::string, int> count;
  for (const kernels::GpuInfo& gpu : list.gpus) ++count[fmt::format("{} ({})", gpu.name, gpu.isa)];
  std::string text;
  for (const auto& [kind, n] : count)
    text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", n, kind);
  return text;
}

}  // namespace

std::string version() { return fmt::format("{} ({})", PACELINE_VERSION, PACELINE_COMMIT); }

std::string build_report() {
  return fmt::format(
      "paceline {}\n"
      "backend cpu   {} (this machine's instruction sets, the best first)\n"
      "backend cuda  {}\n"
      "compiler      {}\n"
      "MPI           {}, built with Open MPI {}.{}.{}\n"
      "UCX           {}, built with {}.{}\n"
      "HDF5          {}, built with {}.{}.{}",
      version(), fmt::join(kernels::supported_cpu_isas(), ", "), gpus(), __VERSION__,
      fabric::MpiEnvironment::library(), OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION,
      OMPI_RELEASE_VERSION, ucp_get_version_string(), UCP_API_MAJOR, UCP_API_MINOR, hdf5_library(),
      H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE);
}

}  // namespace paceline::app
