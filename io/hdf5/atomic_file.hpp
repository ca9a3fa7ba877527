// Files that appear whole or not at all: written under a temporary name, synced, then renamed.
// Nothing is written through a symbolic link: temporaries are created anew, renaming replaces
// links.
#pragma once

#include <string>

namespace paceline::io {

/// `path` with a temporary name in the same folder: hidden, so that no reader picks it up. For
/// files that only one process at a time creates.
[[nodiscard]] std::string temporary_name(const std::string& path);
/// Whether this is the name, without its folder, of a temporary file for `name`.
[[nodiscard]] bool is_temporary_of(const std::string& filename, const std::string& name);

/// Syncs the temporary file of `path`, renames it into place and syncs the folder. With `exclusive`
/// a file that is already there stays and false is returned. Throws IoError.
bool commit_temporary(const std::string& path, bool exclusive = false);

/// Removes the temporary file of `path`, if any.
void discard_temporary(const std::string& path) noexcept;

/// Writes `text` to `path` in that way, by a temporary name that no other process takes: with
/// `exclusive`, of several that write at once one succeeds, and the file is what it wrote. Throws
/// IoError.
bool write_whole(const std::string& path, const std::string& text, bool exclusive = false);

/// The whole file. Throws IoError.
[[nodiscard]] std::string read_whole(const std::string& path);

/// "PATH: No space left on device" for the given errno value.
[[nodiscard]] std::string describe_errno(const std::string& path, int error);

}  // namespace paceline::io
