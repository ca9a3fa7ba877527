// Every response of a simulated job, found by its noise, as a verifier and a drafter know a
// request.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "runtime/core/request.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/sim/workload.hpp"

namespace paceline::sim {

/// A response that is to be generated.
struct Response {
  RequestId id;
  NoiseKey noise;
  const ModelledRequest* request = nullptr;
  const Prompt* prompt = nullptr;
  RequestDrafts drafts;
};

/// The responses of a workload. Thread-safe.
class Responses {
 public:
  /// The noise is a run's with this seed and weight version. `workload` outlives this.
  Responses(const Workload& workload, std::uint64_t seed, std::uint64_t weight_version);

  /// The response with that noise. Throws std::logic_error where there is none.
  [[nodiscard]] const Response& of(const NoiseKey& noise) const;
  /// Likewise by its request.
  [[nodiscard]] const Response& of(RequestId id) const;
  /// The token at an index of the response.
  [[nodiscard]] TokenId token(const Response& response, std::int32_t index) const;
  [[nodiscard]] std::int32_t vocab() const { return vocab_; }

 private:
  struct Hash {
    std::size_t operator()(const NoiseKey& noise) const { return noise.key ^ noise.stream; }
  };
  std::int32_t vocab_;
  std::unordered_map<NoiseKey, Response, Hash> responses_;
  std::vector<std::vector<const Response*>> by_request_;  ///< [prompts][samples] the same
};

}  // namespace paceline::sim
