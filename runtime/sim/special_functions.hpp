// Functions of distributions, computed with basic IEEE operations only, whose results are the same
// on every machine. (The C library's logarithm, for example, differs in its last bit between
// processors with and without fused multiply-add.) Unless stated otherwise, errors are below 1e-12:
// relative errors of logarithm and exponential, absolute errors of the others. Thread-safe.
#pragma once

namespace paceline::sim {

[[nodiscard]] double log_of(double x);  ///< natural logarithm; x > 0
[[nodiscard]] double exp_of(double x);  ///< |x| < 700
/// P(a standard normal variable is below z).
[[nodiscard]] double normal_cdf(double z);
/// Inverse of normal_cdf(); 0 < p < 1. Error: 1e-12 within five standard deviations, 1e-6 within
/// six.
[[nodiscard]] double normal_quantile(double p);
/// P(a Beta(a, b) variable is below x); a and b positive, 0 <= x <= 1.
[[nodiscard]] double beta_cdf(double x, double a, double b);

}  // namespace paceline::sim
