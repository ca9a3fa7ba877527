// The file that keeps, from one rollout to the next, how often drafts were accepted: YAML next to
// the cost profile. A run reads it at its start and adds to it at its end.
#pragma once

#include <string>

#include "runtime/core/draft_history.hpp"

namespace paceline::io {

/// Path of the history that belongs to a profile: "costs.drafts.yaml" for "costs.yaml".
[[nodiscard]] std::string draft_history_path(const std::string& profile);

/// Reads a history. Throws UsageError("file:line:column: ...") on text that is none, naming the
/// key, what was expected and what was found; IoError if the file cannot be read. Thread-safe.
[[nodiscard]] DraftHistory read_draft_history(const std::string& path);
/// Reads a history from text; `name` is the file's in messages.
[[nodiscard]] DraftHistory parse_draft_history(const std::string& text, const std::string& name);

/// Text that reads back to the same history, except that counts are rounded to whole tokens.
[[nodiscard]] std::string draft_history_text(const DraftHistory& history);
/// Replaces the whole file, or leaves it unchanged. Throws IoError.
void write_draft_history(const std::string& path, const DraftHistory& history);

}  // namespace paceline::io
