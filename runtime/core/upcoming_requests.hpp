// Requests of the next step, which idle verifier groups begin. app implements the interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/core/admission.hpp"

namespace paceline {

/// The run directory that keeps what is pregenerated.
struct PregeneratedRun {
  std::string directory;
  std::uint32_t attempt = 0;  ///< RunDirectory::attempt()
};

/// Requests of the next step, with that step's prompt indices, noise and sampling. Used by one
/// thread.
class UpcomingRequests {
 public:
  virtual ~UpcomingRequests() = default;
  /// Takes at most `most` requests; none while none are known. Siblings follow one another, and
  /// only the first of them in the result has the prompt. The first call begins the search for the
  /// next step's requests. Does not wait for it.
  [[nodiscard]] virtual std::vector<Admission> take(std::size_t most) = 0;
  /// Valid once take() has returned requests.
  [[nodiscard]] virtual const PregeneratedRun& run() const = 0;
};

}  // namespace paceline
