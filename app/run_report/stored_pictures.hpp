// Prompts with pictures of a stored run, for a report in HTML.
#pragma once

#include "app/run_report/pictured.hpp"
#include "io/run/stored_run.hpp"

namespace paceline::app {

/// The first 12 prompts that show pictures, with their first two responses, finished or begun.
/// Picture files of at most 64 KiB are embedded unchanged, up to 1 MiB in all, if browsers show
/// them: JPEG, PNG and WebP. A picture whose file is gone or was replaced is only named. Throws
/// IoError if responses cannot be read.
[[nodiscard]] PicturedPrompts pictured_prompts(const io::StoredRun& run);

}  // namespace paceline::app
