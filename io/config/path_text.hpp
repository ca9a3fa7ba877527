// Paths as a configuration's author writes them: with the home directory and variables of the
// environment, which a shell would have put in.
#pragma once

#include <string>
#include <string_view>

namespace paceline::io {

struct ExpandedPath {
  std::string path;
  std::string fault;  ///< why it could not be; empty: it could
};

/// `~` alone or before a slash, at the front, is the home directory; $NAME and ${NAME} are what the
/// environment has; $$ is a dollar sign. Any other dollar sign is itself.
[[nodiscard]] ExpandedPath expand_path(std::string_view text);

/// Text that expand_path() makes this path of.
[[nodiscard]] std::string path_text(std::string_view path);

}  // namespace paceline::io
