// Signals that ask the program to stop, and signals of a failed file.
#pragma once

namespace paceline::app {

/// From this call on SIGUSR1 and SIGTERM set a flag; a second signal ends the process with 75.
/// Reading past the end of a mapped file that has shrunk, or off a failing disk (SIGBUS), prints
/// the file's name and ends the process with 74.
void watch_signals();
/// Sets the number of this rank: when a file fails many ranks, rank 0 speaks for all.
void know_rank(int rank);
/// Whether a signal to stop has come. Thread-safe.
[[nodiscard]] bool stop_signalled();

}  // namespace paceline::app
