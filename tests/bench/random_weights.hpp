// Random weights of any size without a checkpoint: speed does not depend on values, and tensors
// made when they are asked for need neither a disk nor a whole model in memory.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/model_config.hpp"
#include "runtime/core/thread_pool.hpp"
#include "runtime/core/weight_source.hpp"

namespace paceline::bench {

/// The layers that a draft model lacks, of a target that it is to agree with.
struct LaterLayers {
  int first = std::numeric_limits<int>::max();
  /// What they together add to the residual stream, relative to layers of unit gain.
  double scale = 1;
};

/// bf16 tensors of a configuration: layers of unit gain, as make_pair.py makes them. A value is a
/// function of its tensor's name, its index and its spread, so that models of one width agree in
/// the layers that they have in common.
///
/// Memory is of what was asked for since release_pages(), after which views other than of the
/// embedding, which a backend may read for good, are those of other tensors.
class RandomWeights final : public WeightSource {
 public:
  explicit RandomWeights(const ModelConfig& config, const LaterLayers& later = {});

  [[nodiscard]] const TensorView* find(std::string_view name) const override;
  [[nodiscard]] std::vector<std::string_view> names() const override;
  [[nodiscard]] std::string location(std::string_view name) const override;
  void release_pages() const override;

 private:
  using Values = std::unique_ptr<std::uint16_t[]>;  ///< bf16
  struct Tensor {
    TensorView view;  ///< no bytes: to be made
    std::size_t size = 0;
    float spread = 0;    ///< standard deviation
    bool ones = false;   ///< of a norm
    bool stays = false;  ///< past release_pages()
    Values values;
  };
  void make(const std::string& name, Tensor& tensor) const;

  mutable std::mutex mutex_;
  mutable ThreadPool pool_;
  mutable std::map<std::string, Tensor, std::less<>> tensors_;
  mutable std::multimap<std::size_t, Values> spare_;  ///< by size: layers repeat
};

}  // namespace paceline::bench
