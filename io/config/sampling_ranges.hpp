// Ranges of sampling parameters, in a configuration and in a prompt's line.
#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/config/codecs.hpp"
#include "runtime/core/token_notes.hpp"

namespace paceline::io {

inline constexpr Real<float> kTemperature{"0, or a number from 0.001 to 1000", [](float v) {
                                            return v == 0 || (v >= 0.001F && v <= 1000);
                                          }};
inline constexpr Real<float> kTopP{"a number above 0 and at most 1",
                                   [](float v) { return v > 0 && v <= 1; }};
inline constexpr Real<float> kMinP{"a number from 0 to below 1",
                                   [](float v) { return v >= 0 && v < 1; }};
inline constexpr Real<float> kRepetition{"a number from 0.01 to 100",
                                         [](float v) { return v >= 0.01F && v <= 100; }};
/// Range of presence_penalty and frequency_penalty, as in OpenAI's API.
inline constexpr Real<float> kPenalty{"a number from -2 to 2",
                                      [](float v) { return v >= -2 && v <= 2; }};
inline constexpr Real<float> kBias{"a number from -100 to 100",
                                   [](float v) { return v >= -100 && v <= 100; }};

/// Biases of tokens, as {ID: NUMBER, ...}; sorted by id.
struct Biases {
  static constexpr std::string_view kType =
      "a map of token ids (whole numbers, at least 0) to numbers from -100 to 100";
  [[nodiscard]] static std::string type() { return std::string(kType); }
  [[nodiscard]] static std::vector<LogitBias> read(const YamlNode& node, const std::string&) {
    if (node.kind != YamlNode::Kind::map) throw BadValue(node, type());
    std::vector<LogitBias> biases;
    for (const YamlEntry& entry : node.entries) {
      const std::optional<TokenId> token = token_of(entry.key);
      if (!token) {
        YamlNode key;
        key.kind = YamlNode::Kind::scalar;
        key.line = entry.line;
        key.column = entry.column;
        key.scalar = entry.key;
        throw BadValue(key, type());
      }
      biases.push_back({*token, kBias.read(entry.value, "")});
    }
    sort(biases);
    return biases;
  }
  [[nodiscard]] static std::string write(const std::vector<LogitBias>& biases) {
    std::string text = "{";
    for (const LogitBias& bias : biases) {
      text += (text.size() > 1 ? ", " : "") + std::to_string(bias.token) + ": " +
              Real<float>::write(bias.bias);
    }
    return text + "}";
  }
  /// The id that a key spells; nullopt: none.
  [[nodiscard]] static std::optional<TokenId> token_of(std::string_view key) {
    const auto value = parse_integer(key);
    if (!value || *value < 0 || *value > std::numeric_limits<TokenId>::max()) return std::nullopt;
    return static_cast<TokenId>(*value);
  }
  static void sort(std::vector<LogitBias>& biases) {
    std::ranges::sort(biases, {}, &LogitBias::token);
  }
};

}  // namespace paceline::io
