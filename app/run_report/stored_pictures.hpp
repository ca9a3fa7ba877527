// Prompts with pictures of a stored run, for a report in HTML.
#pragma once

#include "app/run_report/pictured.hpp"
#include "io/run/stored_run.hpp"

namespace paceline::app {

/// The first 12 prompts that show pictures, with their first two responses, finished or begun. A
/// picture's file is embedded as it is up to 64 KiB, and up to 1 MiB of them in all; a browser
/// shows JPEG, PNG and WebP. One that is gone or another one by now is named. Throws IoError where
/// responses cannot be read.
[[nodiscard]] PicturedPrompts pictured_prompts(const io::StoredRun& run);

}  // namespace paceline::app
