#include "runtime/model/families/families.hpp"

#include <array>

namespace paceline::model {

const Families& families() {
  static constexpr std::array<const Family*, 7> models{&llama,    &mistral,   &qwen2,   &qwen3,
                                                       &qwen2_vl, &qwen3_moe, &deepseek};
  static constexpr Families all{models, describe_eagle3};
  return all;
}

}  // namespace paceline::model
