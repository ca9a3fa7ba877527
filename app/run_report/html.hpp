// A report as one HTML file of tables and pictures, without scripts or links to other files.
#pragma once

#include <string>
#include <vector>

#include "app/run_report/text.hpp"

namespace paceline::app {

[[nodiscard]] std::string html_of(const std::vector<NamedRun>& runs);

}  // namespace paceline::app
