// The version of this program.
#pragma once

#include <string>

namespace paceline::app {

[[nodiscard]] std::string version();  ///< "0.1.0 (commit)"
/// The text of --version: the version, and the backends, compiler and libraries. May be called
/// before or after MPI_Init.
[[nodiscard]] std::string build_report();

}  // namespace paceline::app
