// Signals that ask the program to stop, and those that say a file has failed.
#pragma once

namespace paceline::app {

/// From here on SIGUSR1 and SIGTERM set a flag; a second one ends the process at once with 75.
/// Reading past the end of a mapped file that has shrunk, or off a failing disk (SIGBUS), prints
/// the file's name and ends the process with 74.
void watch_signals();
/// Which rank this is: of many whose file failed, rank 0 speaks.
void know_rank(int rank);
/// A signal has come. Thread-safe.
[[nodiscard]] bool stop_signalled();

}  // namespace paceline::app
