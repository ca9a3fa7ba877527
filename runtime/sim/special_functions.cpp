#include "runtime/sim/special_functions.hpp"

#include <cmath>
#include <initializer_list>
#include <numbers>

// <cmath> is used only for functions that IEEE 754 defines to the bit, or that are exact: sqrt,
// frexp, ldexp, floor, abs.

namespace paceline::sim {
namespace {

constexpr double kInverseRoot2Pi = 0.3989422804014326779;
constexpr double kTiny = 1e-16;

/// Logarithm of the gamma function, x > 0: Stirling's series (DLMF 5.11.1) for x >= 12, where the
/// error of five terms is 1e-15, and the recurrence for smaller x.
double log_gamma(double x) {
  double product = 1;
  while (x < 12) {
    product *= x;
    x += 1;
  }
  const double square = 1 / (x * x);
  const double series =
      (1.0 / 12 -
       square * (1.0 / 360 - square * (1.0 / 1260 - square * (1.0 / 1680 - square / 1188)))) /
      x;
  return (x - 0.5) * log_of(x) - x + 0.5 * log_of(2 * std::numbers::pi) + series - log_of(product);
}

/// The continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz's method. It
/// converges fast for x < (a + 1) / (a + b + 2), within some sqrt(max(a, b)) terms.
double beta_fraction(double x, double a, double b) {
  const auto apart = [](double value) { return std::abs(value) < 1e-300 ? 1e-300 : value; };
  double c = 1;
  double d = 1 / apart(1 - (a + b) * x / (a + 1));
  double fraction = d;
  for (int pair = 1; pair < 100000; ++pair) {
    const double m = pair;
    for (const double term : {m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
                              -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))}) {
      d = 1 / apart(1 + term * d);
      c = apart(1 + term / c);
      fraction *= d * c;
    }
    if (std::abs(d * c - 1) < kTiny) break;
  }
  return fraction;
}

}  // namespace

double log_of(double x) {
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);  // [0.5, 1)
  if (mantissa < std::numbers::sqrt2 / 2) {
    mantissa *= 2;
    --exponent;
  }
  // log m = 2 artanh s, where |s| < 0.172: the error of eleven terms is below 1e-17.
  const double s = (mantissa - 1) / (mantissa + 1);
  const double square = s * s;
  double sum = 0;
  for (int k = 21; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
  return exponent * std::numbers::ln2 + 2 * s * sum;
}

double exp_of(double x) {
  // ln 2 in two parts. The first has so few bits that its product with k is exact.
  constexpr double kHigh = 0x1.62e42feep-1;
  constexpr double kLow = 0x1.a39ef35793c76p-33;
  const double k = std::floor(x / std::numbers::ln2 + 0.5);
  const double rest = (x - k * kHigh) - k * kLow;  // |rest| < 0.35: fourteen terms err by 1e-18
  double sum = 1;
  for (int n = 14; n >= 1; --n) sum = 1 + sum * rest / n;
  return std::ldexp(sum, static_cast<int>(k));
}

// Marsaglia, "Evaluating the normal distribution", J. Stat. Software 11 (2004): the integral's
// series around 0, whose terms are all of one sign.
double normal_cdf(double z) {
  if (std::abs(z) > 9) return z < 0 ? 0 : 1;  // its error: 1e-19
  double sum = z;
  double term = z;
  for (double k = 3; std::abs(term) > kTiny * std::abs(sum); k += 2) {
    term *= z * z / k;
    sum += term;
  }
  return 0.5 + kInverseRoot2Pi * exp_of(-z * z / 2) * sum;
}

// Newton's method from the middle outwards. The function is concave there, so that no step goes too
// far. Steps end when they are as small as rounding errors.
double normal_quantile(double p) {
  const double upper = p < 0.5 ? 1 - p : p;
  double z = 0;
  for (int i = 0; i < 100; ++i) {
    const double step = (upper - normal_cdf(z)) / (kInverseRoot2Pi * exp_of(-z * z / 2));
    if (!(step > 1e-14)) break;
    z += step;
  }
  return p < 0.5 ? -z : z;
}

double beta_cdf(double x, double a, double b) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front = exp_of(std::fmax(
      -690.0, a * log_of(x) + b * log_of(1 - x) + log_gamma(a + b) - log_gamma(a) - log_gamma(b)));
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(x, a, b) / a;
  return 1 - front * beta_fraction(1 - x, b, a) / b;
}

}  // namespace paceline::sim
