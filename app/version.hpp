// What this program is.
#pragma once

#include <string>

namespace paceline::app {

[[nodiscard]] std::string version();       ///< "0.1.0 (commit)"
[[nodiscard]] std::string build_report();  ///< version, compiler, libraries: the lines of --version

}  // namespace paceline::app
