// Functions of distributions, in IEEE arithmetic alone, which is the same on every machine: the C
// library's logarithm, for one, differs in its last bit between processors with and without fused
// multiply-add. Errors are below 1e-12, relative for logarithm and exponential and absolute for the
// rest, unless said otherwise. Thread-safe.
#pragma once

namespace paceline::sim {

[[nodiscard]] double log_of(double x);  ///< natural; x > 0
[[nodiscard]] double exp_of(double x);  ///< |x| < 700
/// P(a standard normal variable is below z).
[[nodiscard]] double normal_cdf(double z);
/// The inverse; 0 < p < 1. Error: 1e-12 to five standard deviations, 1e-6 to six.
[[nodiscard]] double normal_quantile(double p);
/// P(a Beta(a, b) variable is below x); a and b positive, 0 <= x <= 1.
[[nodiscard]] double beta_cdf(double x, double a, double b);

}  // namespace paceline::sim
