#include "app/terminal.hpp"

#include <unistd.h>

namespace paceline::app {

void write_to_user(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace paceline::app
