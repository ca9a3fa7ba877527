// The folder through which a trainer asks a resident job for steps (`paceline rollout --watch
// DIR`):
//
//   DIR/NAME.yaml    a request: the configuration keys that this step sets itself. It appears by
//                    rename, whole or not at all
//   DIR/NAME.part/   the output directory of a step under way, also after its job has ended
//   DIR/NAME/        the same when the step is complete, by rename
//   DIR/NAME.error   why a request was refused, by rename
//   DIR/stop         a file of any content: the job ends when no request is left
//
// Requests are met in the order of their names, in which numbers count as numbers: step-9 comes
// before step-10. Files removed from DIR are forgotten: without its .error a request is tried
// again.
#pragma once

#include <optional>
#include <string>

namespace paceline::io {

struct StepRequest {
  std::string name;     ///< without .yaml
  std::string request;  ///< path of the file
  std::string part;     ///< path of the directory to write
};

/// Requests of a folder. Used by one rank, one thread. Calls throw IoError where the folder cannot
/// be read or written.
class StepFolder {
 public:
  /// Throws UsageError where the folder does not exist.
  explicit StepFolder(std::string path);

  /// The first request that is neither met nor refused; nullopt: none at present.
  [[nodiscard]] std::optional<StepRequest> next() const;
  /// Whether no more requests are to come.
  [[nodiscard]] bool closed() const;

  /// Completes the step.
  void meet(const StepRequest& step) const;
  /// Refuses the step. `why`: for the trainer. Removes the output written so far, unless an earlier
  /// job had begun it (`begun`): it may hold responses.
  void refuse(const StepRequest& step, const std::string& why, bool begun) const;

 private:
  std::string path_;
};

/// Whether step name a comes before b.
[[nodiscard]] bool step_before(const std::string& a, const std::string& b);

}  // namespace paceline::io
