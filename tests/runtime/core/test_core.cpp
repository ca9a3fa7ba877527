#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <string_view>

#include "runtime/core/counted.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/model_config.hpp"
#include "runtime/core/philox.hpp"
#include "runtime/core/quantile.hpp"
#include "runtime/core/request.hpp"
#include "runtime/core/role.hpp"
#include "runtime/core/stored_floats.hpp"
#include "runtime/core/wire.hpp"

namespace paceline {
namespace {

// Each role has a name, and no name has no role.
static_assert(name_of(Role::spare) == std::string_view("spare"));
static_assert(name_of(static_cast<Role>(static_cast<int>(Role::spare) + 1)) ==
              std::string_view("unknown"));

// The known answers published with Random123.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(NoiseKey, EveryPartOfTheIdentityMatters) {
  const NoiseKey key = noise_key(1, 0, "a", 0);
  EXPECT_EQ(key, noise_key(1, 0, "a", 0));
  EXPECT_NE(key, noise_key(2, 0, "a", 0));
  EXPECT_NE(key, noise_key(1, 1, "a", 0));
  EXPECT_NE(key, noise_key(1, 0, "b", 0));
  EXPECT_NE(key, noise_key(1, 0, "a", 1));
}

TEST(NearestName, FindsTypingErrorsAndNothingElse) {
  constexpr std::array<std::string_view, 3> names{"max_tokens", "min_tokens", "temperature"};
  EXPECT_EQ(nearest_name("max_token", names), "max_tokens");
  EXPECT_EQ(nearest_name("temprature", names), "temperature");
  EXPECT_EQ(nearest_name("zzzzzzzz", names), "");
}

TEST(Quantile, OfFewAndMany) {
  EXPECT_EQ(quantile({}, 0.5), 0);
  EXPECT_EQ(quantile({7}, 0.25), 7);
  EXPECT_EQ(quantile({4, 1, 3, 2}, 0.5), 3);
  EXPECT_EQ(quantile({5, 4, 1, 3, 2}, 0.5), 3);
  EXPECT_EQ(quantile({8, 7, 6, 5, 4, 3, 2, 1}, 0.25), 3);
}

TEST(Duration, AsPeopleReadIt) {
  EXPECT_EQ(duration_text(0.4), "0s");
  EXPECT_EQ(duration_text(59.4), "59s");
  EXPECT_EQ(duration_text(59.6), "1m00s");
  EXPECT_EQ(duration_text(3 * 60 + 7), "3m07s");
  EXPECT_EQ(duration_text(2 * 3600 + 5 * 60 + 59), "2h05m");
}

Trajectory sample_trajectory() {
  return {
      {3, 1}, {5, 6}, {-0.5F, -1.0F}, {-0.25F, -1.0F}, {}, {}, {}, {}, {}, FinishReason::stop_id,
      0,      7};
}

std::string digest_of(const std::string& uid, const std::vector<TokenId>& prompt,
                      const Trajectory& t) {
  TrajectoryDigest digest;
  digest.add(uid, prompt, t);
  return digest.hex();
}

TEST(Digest, ChangesWithEveryPartButThePromptsPlaceInTheFile) {
  const Trajectory base = sample_trajectory();
  const std::string reference = digest_of("u", {1, 2}, base);
  EXPECT_EQ(reference.size(), 32U);
  Trajectory t = base;
  t.id.prompt = 9;
  EXPECT_EQ(digest_of("u", {1, 2}, t), reference);
  EXPECT_NE(digest_of("v", {1, 2}, base), reference);
  EXPECT_NE(digest_of("u", {1, 2, 5}, base), reference);
  const auto changed = [&](auto change) {
    Trajectory other = base;
    change(other);
    return digest_of("u", {1, 2}, other);
  };
  EXPECT_NE(changed([](Trajectory& o) { o.id.sample = 0; }), reference);
  EXPECT_NE(changed([](Trajectory& o) { o.tokens[1] = 7; }), reference);
  EXPECT_NE(changed([](Trajectory& o) { o.logprob[0] = -0.5000001F; }), reference);
  EXPECT_NE(changed([](Trajectory& o) { o.sampling_logprob[0] = -0.2500001F; }), reference);
  EXPECT_NE(changed([](Trajectory& o) { o.finish_reason = FinishReason::length; }), reference);
  EXPECT_NE(changed([](Trajectory& o) { o.weight_version = 8; }), reference);
}

TEST(ModelConfig, SegmentsArePowersOfTwoTheHeadsAllow) {
  ModelConfig config;
  config.intermediate = 4864;
  config.kv_heads = 2;
  EXPECT_EQ(config.segments(), 2);
  config.kv_heads = 8;
  EXPECT_EQ(config.segments(), 8);
  config.kv_heads = 12;
  EXPECT_EQ(config.segments(), 4);
  config.kv_heads = 1;
  EXPECT_EQ(config.segments(), 1);
  config.kv_heads = 8;
  config.intermediate = 12;  // not even two bf16 pairs a segment at 8
  EXPECT_EQ(config.segments(), 2);
  config.layers = 2;
  config.experts = ExpertConfig{.routed = 12, .chosen = 2, .width = 7, .dense_layers = {}};
  EXPECT_EQ(config.segments(), 4);
  config.experts->shared_width = 20;
  EXPECT_EQ(config.segments(), 2);
  config.experts = ExpertConfig{.routed = 16, .chosen = 2, .width = 7, .dense_layers = {0}};
  EXPECT_EQ(config.segments(), 2);
}

// Normal, subnormal, infinite and NaN, of both signs.
TEST(Float16, EveryValueIsExact) {
  for (int bits = 0; bits < 1 << 16; ++bits) {
    const int exponent = bits >> 10 & 31;
    const int fraction = bits & 1023;
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    const float found = f16_to_float(static_cast<std::uint16_t>(bits));
    if (exponent == 31 && fraction != 0) {
      EXPECT_TRUE(std::isnan(found)) << bits;
      continue;
    }
    const double expected = exponent == 31  ? INFINITY
                            : exponent == 0 ? std::ldexp(fraction, -24)
                                            : std::ldexp(1024 + fraction, exponent - 25);
    EXPECT_EQ(found, sign * expected) << bits;
    EXPECT_EQ(std::signbit(found), sign < 0) << bits;
  }
}

double e4m3(int code) {
  const int exponent = code >> 3 & 15;
  const int mantissa = code & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

TEST(Float8, EveryCodeIsExact) {
  for (int code = 0; code < 256; ++code) {
    const float found = f8_to_float(static_cast<std::uint8_t>(code));
    EXPECT_EQ(std::signbit(found), code >= 0x80) << code;
    if ((code & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(found)) << code;
    } else {
      EXPECT_EQ(found, e4m3(code)) << code;
    }
  }
  EXPECT_EQ(f8_to_float(0x7E), 448);
  EXPECT_EQ(f8_to_float(0x01), 0x1p-9F);
}

// To the nearest of bf16's 8 bits, ties to even: products of normal size have their last bit 7
// below the first.
TEST(Float8, ProductsAreRoundedOnce) {
  constexpr std::array scales{1.0F,          0.0003F,      0x1.010101p-11F, 3.14159274F, 0x1.08p0F,
                              0x1.FFFFFEp0F, 0x1.01p-100F, -2.5F,           0.0F};
  for (const float scale : scales) {
    for (int code = 0; code < 256; ++code) {
      if ((code & 0x7F) == 0x7F) continue;
      const auto product = static_cast<float>(e4m3(code) * static_cast<double>(scale));
      int exponent = 0;
      const double fraction = std::frexp(static_cast<double>(product), &exponent);
      const double expected = std::ldexp(std::nearbyint(fraction * 256), exponent - 8);
      const float found = f8_weight(static_cast<std::uint8_t>(code), scale);
      EXPECT_EQ(found, expected) << code << " x " << scale;
      EXPECT_EQ(std::signbit(found), std::signbit(product)) << code << " x " << scale;
    }
  }
  EXPECT_EQ(f8_weight(0x38, 0x1.01p0F), 1.0F) << "a tie to even";
  EXPECT_EQ(f8_weight(0x38, 0x1.03p0F), 0x1.04p0F) << "a tie to even";
  EXPECT_EQ(f8_weight(0x7E, 0x1p119F), 0x1.Cp127F) << "the largest product";
  EXPECT_EQ(f8_weight(0xFE, 0x1p120F), -INFINITY);
  EXPECT_TRUE(std::isnan(f8_weight(0x7F, 1)));
  EXPECT_TRUE(std::isnan(f8_weight(0x38, std::bit_cast<float>(0x7FFFFFFFU))));
  EXPECT_TRUE(std::isnan(f8_weight(0x00, INFINITY)));
}

TEST(Wire, RefusesAShortMessage) {
  WireWriter writer;
  writer.put(std::vector<int>{1, 2, 3});
  std::vector<std::byte> bytes = writer.take();
  bytes.pop_back();
  std::vector<int> values;
  WireReader reader(bytes);
  EXPECT_THROW(reader.get(values), std::logic_error);
}

}  // namespace
}  // namespace paceline
