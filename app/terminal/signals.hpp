// Handles signals that ask the program to stop, and SIGBUS if a mapped file cannot be read.
#pragma once

namespace paceline::app {

/// Makes SIGUSR1 and SIGTERM set a flag from this call on. A second signal more than about two
/// seconds later ends the process with exit code 75. If a mapped file has shrunk or its disk fails,
/// the handler of SIGBUS prints the file's name, and ends the process with exit code 74.
void watch_signals();
/// Makes SIGUSR1 and SIGTERM end the process at once, for commands that have nothing to resume. If
/// one of these signals has already come, ends the process now, with exit code 75.
void end_at_signals();
/// Sets the rank of this process. Ranks above 0 wait for rank 0 to report a failed file first.
void know_rank(int rank);
/// Whether a signal to stop has come. Thread-safe.
[[nodiscard]] bool stop_signalled();

}  // namespace paceline::app
