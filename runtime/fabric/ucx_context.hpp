// UCX's context of this process.
#pragma once

#include <ucp/api/ucp.h>

#include <string>

namespace paceline::fabric {

/// The context from which workers are made, one for each process. Different threads may use its
/// workers.
class UcxContext {
 public:
  /// `ranks`: number of peers to prepare for. `detect_failures`: connections detect that their peer
  /// has gone. The user's settings, in UCX_* variables, override ours. Throws UsageError where they
  /// leave no way to communicate.
  UcxContext(int ranks, bool detect_failures);
  ~UcxContext();
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;

  [[nodiscard]] ucp_context_h get() const { return context_; }
  [[nodiscard]] bool detects_failures() const { return detect_failures_; }
  /// Whether UCX itself reads and writes CUDA memory.
  [[nodiscard]] bool reaches_cuda_memory() const { return cuda_; }

 private:
  ucp_context_h context_ = nullptr;
  bool detect_failures_;
  bool cuda_ = false;
};

/// Throws Error (internal), with `what` and UCX's own words, unless `status` is UCS_OK.
void check_ucx(ucs_status_t status, const std::string& what);

}  // namespace paceline::fabric
