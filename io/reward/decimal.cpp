#include "io/reward/decimal.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace paceline::io {
namespace {

constexpr std::string_view kSpaces = " \t\r\n\f\v";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::size_t digits_at(std::string_view text, std::size_t at) {
  std::size_t count = 0;
  while (at + count < text.size() && is_digit(text[at + count])) ++count;
  return count;
}

/// Reads a number that begins at a given place.
class Reading {
 public:
  Reading(std::string_view text, std::size_t at) : text_(text), at_(at) {}

  std::optional<FoundDecimal> read() {
    FoundDecimal found;
    found.begin = at_;
    found.number.negative = sign();
    std::string digits = whole_part();
    auto exponent = static_cast<std::int64_t>(digits.size());
    digits += fraction();
    if (digits.empty()) return std::nullopt;
    exponent += power();
    found.end = at_;
    const std::size_t zeros = std::min(digits.find_first_not_of('0'), digits.size());
    digits.erase(0, zeros);
    digits.erase(digits.find_last_not_of('0') + 1);
    if (digits.empty()) {
      found.number.negative = false;
    } else {
      found.number.exponent = exponent - static_cast<std::int64_t>(zeros);
    }
    found.number.digits = std::move(digits);
    return found;
  }

 private:
  bool sign() {
    if (text_[at_] != '-' && text_[at_] != '+') return false;
    return text_[at_++] == '-';
  }

  std::string whole_part() {
    std::size_t count = digits_at(text_, at_);
    std::string digits(text_.substr(at_, count));
    at_ += count;
    if (count == 0 || count > 3) return digits;
    while (at_ < text_.size() && text_[at_] == ',' && digits_at(text_, at_ + 1) == 3) {
      digits += text_.substr(at_ + 1, 3);
      at_ += 4;
    }
    return digits;
  }

  std::string_view fraction() {
    if (at_ >= text_.size() || text_[at_] != '.') return {};
    const std::size_t count = digits_at(text_, at_ + 1);
    if (count == 0) return {};
    const std::string_view digits = text_.substr(at_ + 1, count);
    at_ += 1 + count;
    return digits;
  }

  /// "e5", unless it begins a word.
  std::int64_t power() {
    std::size_t at = at_;
    if (at >= text_.size() || (text_[at] != 'e' && text_[at] != 'E')) return 0;
    ++at;
    const bool negative = at < text_.size() && text_[at] == '-';
    if (at < text_.size() && (text_[at] == '-' || text_[at] == '+')) ++at;
    constexpr std::size_t kMost = 9;  // digits; useful numbers have no larger power of ten
    const std::size_t count = digits_at(text_, at);
    if (count == 0 || count > kMost) return 0;
    if (at + count < text_.size() && is_letter(text_[at + count])) return 0;
    std::int64_t value = 0;
    std::from_chars(text_.data() + at, text_.data() + at + count, value);
    at_ = at + count;
    return negative ? -value : value;
  }

  std::string_view text_;
  std::size_t at_;
};

/// Whether a number may begin with the sign or point at this place.
bool may_begin_before_digits(std::string_view text, std::size_t at) {
  if (at == 0) return true;
  const char before = text[at - 1];
  if (is_digit(before)) return false;
  return text[at] == '.' || !(is_letter(before) || before == ')' || before == ']' || before == '}');
}

}  // namespace

double Decimal::value() const {
  const std::string text =
      (negative ? "-0." : "0.") + (digits.empty() ? "0" : digits) + "e" + std::to_string(exponent);
  return std::strtod(text.c_str(), nullptr);
}

std::optional<FoundDecimal> find_decimal(std::string_view text, std::size_t from) {
  for (std::size_t at = from; at < text.size(); ++at) {
    const char c = text[at];
    if (!is_digit(c)) {
      if (c != '-' && c != '+' && c != '.') continue;
      if (!may_begin_before_digits(text, at)) continue;
    }
    if (auto found = Reading(text, at).read()) return found;
  }
  return std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

std::optional<Decimal> whole_decimal(std::string_view text) {
  text = trimmed(text);
  for (const std::string_view dollar : {"\\$", "$"}) {
    if (text.starts_with(dollar)) {
      text.remove_prefix(dollar.size());
      break;
    }
  }
  for (const std::string_view end : {"\\%", "%", "."}) {
    if (text.ends_with(end)) {
      text.remove_suffix(end.size());
      break;
    }
  }
  text = trimmed(text);
  const auto found = find_decimal(text);
  if (!found || found->begin != 0 || found->end != text.size()) return std::nullopt;
  return found->number;
}

}  // namespace paceline::io
