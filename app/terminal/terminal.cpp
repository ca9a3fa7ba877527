#include "app/terminal/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include "app/terminal/run_log.hpp"

namespace paceline::app {

void write_to_user(std::string_view text) noexcept {
  draw(text);
  keep_in_log(text);
}

void write_from_handler(std::string_view text) noexcept {
  draw(text);
  keep_in_open_log(text);
}

void draw(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

int terminal_columns() {
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace paceline::app
