// What sampling parameters may be, of a configuration and of a prompt's line.
#pragma once

#include "io/config/codecs.hpp"

namespace paceline::io {

inline constexpr Real<float> kTemperature{"0, or a number from 0.001 to 1000", [](float v) {
                                            return v == 0 || (v >= 0.001F && v <= 1000);
                                          }};
inline constexpr Real<float> kTopP{"a number above 0 and at most 1",
                                   [](float v) { return v > 0 && v <= 1; }};
inline constexpr Real<float> kMinP{"a number from 0 to below 1",
                                   [](float v) { return v >= 0 && v < 1; }};

}  // namespace paceline::io
