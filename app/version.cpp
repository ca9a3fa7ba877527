#include "app/version.hpp"

#include <fmt/format.h>
#include <hdf5.h>
#include <mpi.h>

#include "version_data.hpp"

namespace paceline::app {

std::string version() { return fmt::format("{} ({})", PACELINE_VERSION, PACELINE_COMMIT); }

std::string build_report() {
  return fmt::format(
      "paceline {}\ncompiler {}\nMPI standard {}.{}, built with Open MPI {}.{}.{}\nHDF5 {}.{}.{}",
      version(), __VERSION__, MPI_VERSION, MPI_SUBVERSION, OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION,
      OMPI_RELEASE_VERSION, H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE);
}

}  // namespace paceline::app
