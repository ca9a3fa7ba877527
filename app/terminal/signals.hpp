// Signals that ask the program to stop, and the signal of a failed mapped file.
#pragma once

namespace paceline::app {

/// Makes SIGUSR1 and SIGTERM set a flag from this call on. A second signal more than about two
/// seconds later ends the process with exit code 75. If a mapped file has shrunk or its disk fails,
/// the handler of SIGBUS prints the file's name, and ends the process with exit code 74.
void watch_signals();
/// Lets SIGUSR1 and SIGTERM end the process again, for commands that have nothing to resume. If one
/// of them has come already, ends the process now, with exit code 75.
void end_at_signals();
/// Sets the number of this rank. When a file fails on many ranks, only rank 0 reports it.
void know_rank(int rank);
/// Whether a signal to stop has come. Thread-safe.
[[nodiscard]] bool stop_signalled();

}  // namespace paceline::app
