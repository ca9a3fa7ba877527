// The file that keeps how often drafts were accepted from one rollout to the next: beside the cost
// profile, as YAML. A run reads it at its start and adds to it at its end.
#pragma once

#include <string>

#include "runtime/core/draft_history.hpp"

namespace paceline::io {

/// Where the history of runs with this profile is: "costs.yaml" has "costs.drafts.yaml".
[[nodiscard]] std::string draft_history_path(const std::string& profile);

/// Throws UsageError("file:line:column: ...") on what is no history, naming the key, what was
/// expected and what was found; IoError when the file cannot be read. Thread-safe.
[[nodiscard]] DraftHistory read_draft_history(const std::string& path);
/// The same from text; `name` stands for the file in messages.
[[nodiscard]] DraftHistory parse_draft_history(const std::string& text, const std::string& name);

/// Text that reads back to the same history, but for counts rounded to whole tokens.
[[nodiscard]] std::string draft_history_text(const DraftHistory& history);
/// Replaces the file as a whole or not at all. Throws IoError.
void write_draft_history(const std::string& path, const DraftHistory& history);

}  // namespace paceline::io
