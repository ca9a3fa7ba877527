// Signals that ask the program to stop.
#pragma once

namespace paceline::app {

/// From here on SIGUSR1 and SIGTERM set a flag; a second one ends the process at once with 75.
void watch_signals();
/// A signal has come. Thread-safe.
[[nodiscard]] bool stop_signalled();

}  // namespace paceline::app
