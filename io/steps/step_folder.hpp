// The folder through which a trainer asks a resident job for steps (`paceline rollout --watch
// DIR`):
//
//   DIR/NAME.yaml      a request: the configuration keys that this step sets for itself. It must
//                      appear by rename
//   DIR/NAME.upcoming  the keys of a request that are known before it comes
//   DIR/NAME.part/     the output directory of a step in progress, also after its job has ended
//   DIR/NAME/          the same directory, renamed when the step is complete
//   DIR/NAME.ahead/    texts for the step's drafts, generated during the step before: a run
//                      directory that is never finished
//   DIR/NAME.error     why a request was refused; appears by rename
//   DIR/stop           a file with any content: the job ends when no request is left
//
// NAME.upcoming and NAME.ahead are removed when the step is complete or refused.
//
// Requests are served in the order of their names. Numbers in names count as numbers: step-9 comes
// before step-10. Files removed from DIR are forgotten: if its .error is removed, a request is
// tried again.
#pragma once

#include <optional>
#include <string>

namespace paceline::io {

struct StepRequest {
  std::string name;     ///< without .yaml
  std::string request;  ///< path of the file
  std::string part;     ///< path of the directory to write
  std::string ahead;    ///< path of the directory with texts for its drafts
};

/// The requests of a folder. Used by one thread of one rank. Calls throw IoError if the folder
/// cannot be read or written.
class StepFolder {
 public:
  /// Throws UsageError if the folder does not exist.
  explicit StepFolder(std::string path);

  /// The first request that is neither complete nor refused; nullopt: none at present.
  [[nodiscard]] std::optional<StepRequest> next() const;
  /// The first request after step `now`. Where there is none, the first announced one: `request` is
  /// the path of NAME.upcoming.
  [[nodiscard]] std::optional<StepRequest> upcoming(const std::string& now) const;
  /// Whether no more requests will come.
  [[nodiscard]] bool closed() const;

  /// Throws UsageError if something other than a directory has the place of the step's output.
  void require_place(const StepRequest& step) const;
  /// Completes the step.
  void meet(const StepRequest& step) const;
  /// Refuses the step. `why`: for the trainer. Removes the step's output, unless an earlier job
  /// began it (`begun`): then it may hold responses.
  void refuse(const StepRequest& step, const std::string& why, bool begun) const;

 private:
  /// The first request with this ending, except step `but`.
  [[nodiscard]] std::optional<StepRequest> first(const std::string& but,
                                                 const std::string& ending) const;
  void remove_announced(const StepRequest& step) const;

  std::string path_;
};

/// Ending of the directory with texts for a step's drafts.
inline constexpr const char* kAhead = ".ahead";

/// Removes a directory with texts for a step's drafts. A finished run, or something else by this
/// name, stays: returns false.
bool remove_texts(const std::string& directory);

/// Whether step name a comes before b.
[[nodiscard]] bool step_before(const std::string& a, const std::string& b);

}  // namespace paceline::io
