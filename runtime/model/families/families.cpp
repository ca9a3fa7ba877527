#include "runtime/model/families/families.hpp"

#include <array>

namespace paceline::model {

const Families& families() {
  static constexpr std::array<const Family*, 9> models{
      &llama, &mistral, &mixtral, &qwen2, &qwen2_moe, &qwen3, &qwen3_moe, &qwen2_vl, &deepseek};
  static constexpr Families all{models, describe_eagle3};
  return all;
}

}  // namespace paceline::model
