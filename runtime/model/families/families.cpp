#include "runtime/model/families/families.hpp"

#include <array>

namespace paceline::model {

const Families& families() {
  static constexpr std::array<const Family*, 10> models{
      &llama, &mistral,   &mixtral,  &qwen2,      &qwen2_moe,
      &qwen3, &qwen3_moe, &qwen2_vl, &qwen2_5_vl, &deepseek};
  static constexpr Families all{models, describe_eagle3, describe_dflash};
  return all;
}

HeadDescription describe_head(const HeadConfig& config) {
  if (const auto* eagle = std::get_if<Eagle3Config>(&config)) return describe_eagle3(*eagle);
  if (const auto* dflash = std::get_if<DFlashConfig>(&config)) return describe_dflash(*dflash);
  const auto& mtp = std::get<MtpConfig>(config);
  return mtp.layer.family->describe_next_token(mtp);
}

}  // namespace paceline::model
