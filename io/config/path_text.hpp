// Paths as a configuration's author writes them, with the home directory and environment variables
// that a shell would expand.
#pragma once

#include <string>
#include <string_view>

namespace paceline::io {

struct ExpandedPath {
  std::string path;
  std::string fault;  ///< why it cannot be expanded; empty: it can
};

/// Expands a path. A leading `~`, alone or before a slash, is the home directory; $NAME and ${NAME}
/// are values of environment variables; $$ is a dollar sign. Any other dollar sign stays.
[[nodiscard]] ExpandedPath expand_path(std::string_view text);

/// Text that expand_path() turns into this path.
[[nodiscard]] std::string path_text(std::string_view path);

}  // namespace paceline::io
