// Signals that ask the program to stop, and the signal of a failed mapped file.
#pragma once

namespace paceline::app {

/// Makes SIGUSR1 and SIGTERM set a flag from this call on; a second signal, at least two seconds
/// later, ends the process with 75. SIGBUS means that a mapped file has shrunk, or that its disk
/// fails: the handler prints the file's name and ends the process with 74.
void watch_signals();
/// Gives SIGUSR1 and SIGTERM their usual effect again: they end the process. For commands that have
/// nothing to resume. Ends the process with 75 if one of them has come already.
void end_at_signals();
/// Sets the number of this rank. When a file fails on many ranks, rank 0 speaks for all.
void know_rank(int rank);
/// Whether a signal to stop has come. Thread-safe.
[[nodiscard]] bool stop_signalled();

}  // namespace paceline::app
