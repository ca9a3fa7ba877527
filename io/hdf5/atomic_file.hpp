// Files that appear as a whole or not at all: written under a temporary name, synced, then renamed.
// Writes never follow a symbolic link: temporaries are created anew, and renaming replaces links.
#pragma once

#include <string>

namespace paceline::io {

/// A temporary name for `path` in the same folder. It is hidden, so that no reader picks it up. Use
/// it only for files that one process at a time creates.
[[nodiscard]] std::string temporary_name(const std::string& path);
/// Whether `filename`, without a folder, is a temporary name for `name`.
[[nodiscard]] bool is_temporary_of(const std::string& filename, const std::string& name);

/// Syncs the temporary file of `path`, renames it into place and syncs the folder. With
/// `exclusive`, an existing file stays, and false is returned. Throws IoError.
bool commit_temporary(const std::string& path, bool exclusive = false);

/// Removes the temporary file of `path`, if there is one.
void discard_temporary(const std::string& path) noexcept;

/// Writes `text` to `path` through a temporary name that no other process uses. With `exclusive`,
/// only one of several simultaneous writers succeeds, and the file has its text. Throws IoError.
bool write_whole(const std::string& path, const std::string& text, bool exclusive = false);

/// Reads the whole file. Throws IoError.
[[nodiscard]] std::string read_whole(const std::string& path);

/// Text for an errno value, as "PATH: No space left on device".
[[nodiscard]] std::string describe_errno(const std::string& path, int error);

}  // namespace paceline::io
