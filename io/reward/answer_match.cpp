#include "io/reward/answer_match.hpp"

#include <array>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cmath>
#include <new>

#include "io/reward/decimal.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

constexpr std::string_view kMark = "####";
constexpr std::string_view kBoxed = "\\boxed";

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

std::string_view part(std::string_view text, const FoundDecimal& found) {
  return text.substr(found.begin, found.end - found.begin);
}

std::optional<std::string_view> last_number_in(std::string_view text) {
  if (const std::size_t mark = text.rfind(kMark); mark != std::string_view::npos) {
    const auto found = find_decimal(text, mark + kMark.size());
    if (!found) return std::nullopt;
    return part(text, *found);
  }
  std::optional<std::string_view> last;
  for (auto found = find_decimal(text); found; found = find_decimal(text, found->end))
    last = part(text, *found);
  return last;
}

/// An unclosed box, from a response that was cut short, is no answer.
std::optional<std::string_view> boxed_in(std::string_view text) {
  const std::size_t mark = text.rfind(kBoxed);
  if (mark == std::string_view::npos) return std::nullopt;
  const std::size_t open = text.find_first_not_of(" \t\n", mark + kBoxed.size());
  if (open == std::string_view::npos || text[open] != '{') return std::nullopt;
  int depth = 0;
  for (std::size_t at = open; at < text.size(); ++at) {
    if (text[at] == '\\') {
      ++at;  // \{ and \} are literal braces
    } else if (text[at] == '{') {
      ++depth;
    } else if (text[at] == '}' && --depth == 0) {
      return text.substr(open + 1, at - open - 1);
    }
  }
  return std::nullopt;
}

std::string without_spaces(std::string_view text) {
  std::string kept(text);
  std::erase_if(kept, [](char c) { return trimmed({&c, 1}).empty(); });
  return kept;
}

}  // namespace

class AnswerMatch::Pattern {
 public:
  explicit Pattern(const std::string& pattern) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                              PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
    if (code_ == nullptr) {
      throw UsageError("reward.pattern: '" + pattern + "': " + message_of(error) + " at byte " +
                       std::to_string(offset));
    }
  }

  [[nodiscard]] std::optional<std::string_view> last_in(std::string_view text) const {
    const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> match(
        pcre2_match_data_create_from_pattern(code_.get(), nullptr), pcre2_match_data_free);
    if (match == nullptr) throw std::bad_alloc();
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(match.get());
    std::optional<std::string_view> last;
    std::size_t from = 0;
    while (from <= text.size()) {
      const int groups = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                     text.size(), from, PCRE2_NO_UTF_CHECK, match.get(), nullptr);
      if (groups == PCRE2_ERROR_NOMATCH) break;
      if (groups < 0)
        throw DataError("reward.pattern gives up on a response: " + message_of(groups));
      const bool grouped = groups > 1 && offsets[2] != PCRE2_UNSET;
      const std::size_t begin = offsets[grouped ? 2 : 0];
      const std::size_t end = offsets[grouped ? 3 : 1];
      last = text.substr(begin, end - begin);
      from = offsets[1];
      if (offsets[1] == offsets[0]) from = next_character(text, from);
    }
    return last;
  }

 private:
  static std::size_t next_character(std::string_view text, std::size_t at) {
    ++at;
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) ++at;
    return at;
  }

  std::unique_ptr<pcre2_code, void (*)(pcre2_code*)> code_{nullptr, pcre2_code_free};
};

AnswerMatch::AnswerMatch(const RewardSection& settings, AnswerRule rule)
    : rule_(rule), tolerance_(settings.tolerance) {
  if (rule_ == AnswerRule::regex) pattern_ = std::make_unique<Pattern>(settings.pattern.value());
}

AnswerMatch::~AnswerMatch() = default;

std::optional<std::string_view> AnswerMatch::answer_in(std::string_view text) const {
  switch (rule_) {
    case AnswerRule::exact:
    case AnswerRule::numeric:
      return text;
    case AnswerRule::last_number:
      return last_number_in(text);
    case AnswerRule::boxed:
      return boxed_in(text);
    case AnswerRule::regex:
      return pattern_->last_in(text);
  }
  return std::nullopt;
}

/// The answer in a text that also explains it; otherwise the text.
std::string_view AnswerMatch::truth_in(std::string_view text) const {
  if (rule_ == AnswerRule::last_number && text.find(kMark) != std::string_view::npos)
    return last_number_in(text).value_or(text);
  if (rule_ == AnswerRule::boxed) return boxed_in(text).value_or(text);
  return text;
}

std::string AnswerMatch::unusable(std::string_view truth) const {
  const std::string_view answer = trimmed(truth_in(truth));
  if (answer.empty()) return "it is empty";
  const bool of_numbers = rule_ == AnswerRule::numeric || rule_ == AnswerRule::last_number;
  if (of_numbers && !whole_decimal(answer)) return "it is no number";
  return "";
}

bool AnswerMatch::matches(std::string_view response, std::string_view truth) const {
  const std::optional<std::string_view> answer = answer_in(response);
  return answer && equal(*answer, truth_in(truth));
}

bool AnswerMatch::equal(std::string_view answer, std::string_view truth) const {
  if (rule_ == AnswerRule::exact) return trimmed(answer) == trimmed(truth);
  const auto a = whole_decimal(answer);
  const auto b = whole_decimal(truth);
  if (a && b) {
    if (*a == *b) return true;
    return tolerance_ > 0 &&
           std::abs(a->value() - b->value()) <= tolerance_ * std::max(1.0, std::abs(b->value()));
  }
  if (rule_ == AnswerRule::numeric || rule_ == AnswerRule::last_number) return false;
  return without_spaces(answer) == without_spaces(truth);
}

}  // namespace paceline::io
