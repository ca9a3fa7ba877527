// Every response of a simulated job, by its noise key, by which verifiers and drafters know a
// request.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "runtime/core/request.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/sim/workload.hpp"

namespace paceline::sim {

/// A response to generate.
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
  /// Noise keys are those of a run with this seed and weight version. `workload` must outlive this
  /// object.
  Responses(const Workload& workload, std::uint64_t seed, std::uint64_t weight_version);

  /// The response with this noise. Throws std::logic_error where there is none.
  [[nodiscard]] const Response& of(const NoiseKey& noise) const;
  /// The response of a request. Throws std::out_of_range where there is none.
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
  std::vector<std::vector<const Response*>> by_request_;  ///< [prompts][samples] into responses_
};

}  // namespace paceline::sim
