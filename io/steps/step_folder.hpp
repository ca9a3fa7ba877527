// The folder by which a trainer asks a resident job for one step after another
// (`paceline rollout --watch DIR`):
//
//   DIR/NAME.yaml    a request: the keys of the configuration that this step has of its own. By
//                    rename, so that it is there whole or not at all
//   DIR/NAME.part/   the output directory of a step that is under way, or was when its job ended
//   DIR/NAME/        the same when the step is complete, by rename
//   DIR/NAME.error   why a request was refused, by rename
//   DIR/stop         a file of any content: the job ends when no request is left
//
// Requests are met in the order of their names, in which numbers count as numbers: step-9 comes
// before step-10. What is removed from DIR is forgotten: without its .error a request is tried
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

/// Used by one rank, one thread. Calls throw IoError where the folder cannot be read or written.
class StepFolder {
 public:
  /// Throws UsageError where there is no such folder.
  explicit StepFolder(std::string path);

  /// The first request that is neither met nor refused; none: there is none now.
  [[nodiscard]] std::optional<StepRequest> next() const;
  /// Whether there are to be no more.
  [[nodiscard]] bool closed() const;

  /// The step is complete.
  void meet(const StepRequest& step) const;
  /// It cannot be met. `why`: for the trainer. What was written of it goes, unless an earlier job
  /// had begun it (`begun`): there may be responses in it.
  void refuse(const StepRequest& step, const std::string& why, bool begun) const;

 private:
  std::string path_;
};

/// Whether a name comes before another.
[[nodiscard]] bool step_before(const std::string& a, const std::string& b);

}  // namespace paceline::io
