// A run's prompts that contain pictures, with some responses, for a report in HTML.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace paceline::io {
struct StoredRun;
}

namespace paceline::app {

struct ReportedPicture {
  std::string name;      ///< file name or other source, and size in patches
  std::string data_uri;  ///< the embedded picture; empty: `absence` says why it is not shown
  std::string absence;
};

struct ReportedResponse {
  std::uint32_t sample = 0;
  std::uint32_t tokens = 0;
  float reward = std::numeric_limits<float>::quiet_NaN();  ///< NaN: it has no reward
  std::string text;
};

struct PicturedPrompt {
  std::uint64_t index = 0;
  std::string uid;
  std::string question;
  std::string ground_truth;
  std::vector<ReportedPicture> pictures;
  std::vector<ReportedResponse> responses;  ///< the first responses to the prompt
  std::uint64_t others = 0;                 ///< number of further responses to it, not shown
};

/// A run's first prompts with pictures.
struct PicturedPrompts {
  std::vector<PicturedPrompt> prompts;
  std::uint64_t others = 0;  ///< number of further prompts with pictures, not shown
};

/// Reads a stored run's first 12 prompts with pictures, and the first two responses to each,
/// finished or not. Embeds JPEG, PNG and WebP files of at most 64 KiB each, up to 1 MiB in all. For
/// other pictures, sets `absence`. Throws IoError if responses cannot be read.
[[nodiscard]] PicturedPrompts pictured_prompts(const io::StoredRun& run);

/// The report's section about these prompts, in HTML; empty: there are none.
[[nodiscard]] std::string html_of(const PicturedPrompts& pictured);

}  // namespace paceline::app
