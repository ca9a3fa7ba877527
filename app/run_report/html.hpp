// A report as one HTML file: tables and pictures, without scripts or anything from elsewhere.
#pragma once

#include <string>
#include <vector>

#include "app/run_report/text.hpp"

namespace paceline::app {

[[nodiscard]] std::string html_of(const std::vector<NamedRun>& runs);

}  // namespace paceline::app
