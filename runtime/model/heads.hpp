// The kinds of heads, each in a file of its own. Private to this folder.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/model/feature_head.hpp"

namespace paceline::model {

// Make a head of one kind. The weights in `parts` must be of this kind.
[[nodiscard]] std::unique_ptr<FeatureHead> make_eagle3_head(HeadParts parts);
[[nodiscard]] std::unique_ptr<FeatureHead> make_dflash_head(HeadParts parts);
[[nodiscard]] std::unique_ptr<FeatureHead> make_mtp_head(const HeadParts& parts);

// Bytes of a row of the buffers that only this kind of head has.
[[nodiscard]] std::uint64_t own_row_bytes(const Eagle3Config& config, DType compute);
[[nodiscard]] std::uint64_t own_row_bytes(const DFlashConfig& config, DType compute);
[[nodiscard]] std::uint64_t own_row_bytes(const MtpConfig& config, DType compute);

}  // namespace paceline::model
