#include "io/images/resample.hpp"

#include <algorithm>
#include <cmath>

namespace paceline::io {
namespace {

constexpr int kChannels = 3;

/// Keys' cubic kernel with a = -1/2.
double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

/// Weights along one side: output i is the sum of inputs first[i] ... with weights[i * most ...].
struct Weights {
  int most = 0;                            ///< most weights of one output
  int precision = 0;                       ///< fractional bits of the weights
  std::vector<std::int32_t> first, count;  ///< [outputs]
  std::vector<std::int16_t> weights;       ///< [outputs, most]
};

Weights weights_of(std::int32_t inputs, std::int32_t outputs) {
  const double scale = static_cast<double>(inputs) / outputs;
  const double support = 2 * std::max(scale, 1.0);
  const double inverse = scale >= 1 ? 1 / scale : 1;
  Weights all;
  all.most = static_cast<int>(std::ceil(support)) * 2 + 1;
  std::vector<double> exact(static_cast<std::size_t>(outputs) * all.most);
  double largest = 0;
  for (std::int32_t i = 0; i < outputs; ++i) {
    double* weights = exact.data() + static_cast<std::size_t>(i) * all.most;
    const double centre = scale * (i + 0.5);
    const auto first = std::max(static_cast<std::int64_t>(centre - support + 0.5), std::int64_t{0});
    const auto end =
        std::min(static_cast<std::int64_t>(centre + support + 0.5), std::int64_t{inputs});
    const auto count = std::clamp<std::int64_t>(end - first, 0, all.most);
    double sum = 0;
    for (std::int64_t k = 0; k < count; ++k) {
      weights[k] = cubic((static_cast<double>(k + first) - centre + 0.5) * inverse);
      sum += weights[k];
    }
    for (std::int64_t k = 0; k < count && sum != 0; ++k) {
      weights[k] /= sum;
      largest = std::max(largest, weights[k]);
    }
    all.first.push_back(static_cast<std::int32_t>(first));
    all.count.push_back(static_cast<std::int32_t>(count));
  }
  // As many fractional bits as the largest weight allows.
  while (all.precision < 22 &&
         static_cast<int>(0.5 + largest * (1 << (all.precision + 1))) < (1 << 15))
    ++all.precision;
  all.weights.resize(exact.size());
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double scaled = exact[i] * (1 << all.precision);
    all.weights[i] = static_cast<std::int16_t>(scaled + (scaled < 0 ? -0.5 : 0.5));
  }
  return all;
}

std::uint8_t rounded(std::int32_t sum, int precision) {
  return static_cast<std::uint8_t>(std::clamp(sum >> precision, 0, 255));
}

Picture along_rows(const Picture& in, std::int32_t width) {
  const Weights w = weights_of(in.width, width);
  Picture out{width, in.height,
              std::vector<std::uint8_t>(std::size_t{kChannels} * width * in.height)};
  for (std::int32_t y = 0; y < in.height; ++y) {
    const std::uint8_t* from = in.rgb.data() + std::size_t{kChannels} * y * in.width;
    std::uint8_t* to = out.rgb.data() + std::size_t{kChannels} * y * width;
    for (std::int32_t x = 0; x < width; ++x, to += kChannels) {
      const std::int16_t* weights = w.weights.data() + static_cast<std::size_t>(x) * w.most;
      const std::uint8_t* pixel = from + std::size_t{kChannels} * w.first[x];
      std::int32_t sums[kChannels];
      std::fill_n(sums, kChannels, 1 << (w.precision - 1));
      for (std::int32_t k = 0; k < w.count[x]; ++k) {
        for (int c = 0; c < kChannels; ++c) sums[c] += weights[k] * *pixel++;
      }
      for (int c = 0; c < kChannels; ++c) to[c] = rounded(sums[c], w.precision);
    }
  }
  return out;
}

Picture along_columns(const Picture& in, std::int32_t height) {
  const Weights w = weights_of(in.height, height);
  const std::size_t row = std::size_t{kChannels} * in.width;
  Picture out{in.width, height, std::vector<std::uint8_t>(row * height)};
  std::vector<std::int32_t> sums(row);
  for (std::int32_t y = 0; y < height; ++y) {
    const std::int16_t* weights = w.weights.data() + static_cast<std::size_t>(y) * w.most;
    std::fill(sums.begin(), sums.end(), 1 << (w.precision - 1));
    for (std::int32_t k = 0; k < w.count[y]; ++k) {
      const std::uint8_t* from = in.rgb.data() + row * (w.first[y] + k);
      for (std::size_t i = 0; i < row; ++i) sums[i] += weights[k] * from[i];
    }
    std::uint8_t* to = out.rgb.data() + row * y;
    for (std::size_t i = 0; i < row; ++i) to[i] = rounded(sums[i], w.precision);
  }
  return out;
}

}  // namespace

Picture resample(const Picture& picture, std::int32_t width, std::int32_t height) {
  if (picture.width == width)
    return picture.height == height ? picture : along_columns(picture, height);
  const Picture wide = along_rows(picture, width);
  return picture.height == height ? wide : along_columns(wide, height);
}

}  // namespace paceline::io
