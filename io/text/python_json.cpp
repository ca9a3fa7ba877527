#include "io/text/python_json.hpp"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "runtime/core/error.hpp"

namespace paceline::io::text {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// As repr() of a float: the fewest digits that read back, with an exponent below 1e-4 and from
/// 1e16 on.
std::string float_text(double value) {
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string text(buffer, end);
  const std::size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  if (exponent < -4 || exponent >= 16) return text;  // two digits of exponent at least, as Python's
  const auto fixed =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr;
  text.assign(buffer, fixed);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

class Writer {
 public:
  explicit Writer(const PythonJsonStyle& style)
      : style_(style),
        comma_(style.indent > 0 || style.compact ? "," : ", "),
        colon_(style.compact ? ":" : ": ") {}

  std::string write(const OrderedJson& value) {
    put(value, 0);
    return std::move(out_);
  }

 private:
  void put(const OrderedJson& value, int level) {
    if (value.is_object()) {
      put_all(value, '{', '}', level, [&](const auto& item) {
        out_ += OrderedJson(item.key()).dump();
        out_ += colon_;
        put(item.value(), level + 1);
      });
    } else if (value.is_array()) {
      put_all(value, '[', ']', level, [&](const auto& item) { put(item.value(), level + 1); });
    } else if (value.is_number_float()) {
      out_ += float_text(value.get<double>());
    } else {
      out_ += value.dump();
    }
  }

  void put_all(const OrderedJson& value, char open, char close, int level, const auto& one) {
    out_ += open;
    bool first = true;
    for (const auto& item : value.items()) {
      if (!first) out_ += comma_;
      first = false;
      break_line(level + 1);
      one(item);
    }
    if (!value.empty()) break_line(level);
    out_ += close;
  }

  void break_line(int level) {
    if (style_.indent > 0) out_ += "\n" + std::string(style_.indent * level, ' ');
  }

  PythonJsonStyle style_;
  std::string comma_;
  std::string colon_;
  std::string out_;
};

/// Refuses numbers that a double cannot tell from others, which Python would write exactly.
void require_numbers(const OrderedJson& value) {
  if (value.is_structured()) {
    for (const auto& item : value) require_numbers(item);
  } else if (value.is_number_float()) {
    const auto number = value.get<double>();
    constexpr double kWhole = 9223372036854775808.0;  // 2^63: a whole number below it is no double
    if (!std::isfinite(number) || (std::abs(number) >= kWhole && std::trunc(number) == number))
      throw DataError("a number that is too large: " + value.dump());
  }
}

}  // namespace

std::string python_json(const OrderedJson& value, const PythonJsonStyle& style) {
  require_numbers(value);
  return Writer(style).write(value);
}

}  // namespace paceline::io::text
