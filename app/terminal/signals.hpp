// Handles signals that ask the program to stop, and SIGBUS if a mapped file cannot be read.
#pragma once

namespace paceline::app {

/// From this call on, the first SIGUSR1 or SIGTERM sets a flag. A further one, about two seconds or
/// more after the first, ends the process with exit code 75. If the bytes of a mapped file cannot
/// be read, the handler of SIGBUS prints the file's name, and ends the process with exit code 74.
/// Also ignores SIGPIPE and SIGXFSZ, so that failing writes return an error.
void watch_signals();
/// Makes SIGUSR1 and SIGTERM end the process at once, for commands that have nothing to resume. If
/// one of these signals came before this call, ends the process now, with exit code 75.
void end_at_signals();
/// Sets the rank of this process. Ranks above 0 let rank 0 report an unreadable mapped file first.
void know_rank(int rank);
/// Whether a signal to stop has come. Thread-safe.
[[nodiscard]] bool stop_signalled();

}  // namespace paceline::app
