#include "io/text/pattern.hpp"

#include <array>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <vector>

#include "io/text/unicode.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io::text {

const char* const gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

constexpr std::size_t longest_pattern = 4096;
/// Most steps of one match. Real patterns need few for each character; hostile ones exceed this.
constexpr std::uint32_t match_limit = 20'000'000;
constexpr std::size_t jit_stack_start = 32U << 10U;
constexpr std::size_t jit_stack_limit = 8U << 20U;

constexpr std::string_view categories[] = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N",  "Nd", "Nl", "No", "P", "Pc",
    "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp"};

/// Reads a pattern once, front to back, for syntax on which the two engines differ.
class SyntaxCheck {
 public:
  explicit SyntaxCheck(std::string_view pattern) : p_(pattern) {}

  std::string run() {
    if (p_.size() > longest_pattern) return "it is longer than 4096 bytes";
    while (at_ < p_.size() && problem_.empty()) {
      const char c = p_[at_];
      if (c == '\\') {
        escape();
      } else if (c == '[') {
        bracket();
      } else if (c == '(') {
        group();
      } else if (c == '{') {
        braces();
      } else if (c == '.' || c == '^' || c == '$') {
        refuse(1);
      } else if ((static_cast<unsigned char>(c) & 0x80U) != 0) {
        problem_ = "it holds a character outside ASCII";
      } else {
        ++at_;
      }
    }
    return problem_;
  }

 private:
  void refuse(std::size_t length) {
    problem_ = "'" + std::string(p_.substr(at_, length)) + "' at byte " + std::to_string(at_) +
               " is not among the supported syntax";
  }
  [[nodiscard]] char peek(std::size_t ahead) const {
    return at_ + ahead < p_.size() ? p_[at_ + ahead] : '\0';
  }

  void escape() {
    const char c = peek(1);
    if (c == 'p' || c == 'P') {
      const std::size_t close = p_.find('}', at_);
      if (peek(2) != '{' || close == std::string_view::npos) return refuse(3);
      const std::string_view name = p_.substr(at_ + 3, close - at_ - 3);
      if (std::ranges::find(categories, name) == std::end(categories)) {
        return refuse(close + 1 - at_);
      }
      at_ = close + 1;
      return;
    }
    const bool word = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    const bool shared = std::string_view("rntsSdD").find(c) != std::string_view::npos && c != '\0';
    if (c == '\0' || (static_cast<unsigned char>(c) & 0x80U) != 0 || (word && !shared)) {
      return refuse(2);
    }
    at_ += 2;
  }

  void bracket() {
    ++at_;
    if (peek(0) == '^') ++at_;
    if (peek(0) == ']') return refuse(1);  // a literal in one engine, an empty class in the other
    while (at_ < p_.size() && p_[at_] != ']' && problem_.empty()) {
      const char c = p_[at_];
      if (c == '\\') {
        escape();
      } else if (c == '[' || (c == '&' && peek(1) == '&')) {
        refuse(2);  // only Oniguruma has nested classes and intersections
      } else if ((static_cast<unsigned char>(c) & 0x80U) != 0) {
        problem_ = "it holds a character outside ASCII";
      } else {
        ++at_;
      }
    }
    ++at_;  // the compiler reports an absent ']'
  }

  void group() {
    ++at_;
    if (peek(0) == '*') return refuse(1);  // only PCRE2 has (*VERB)
    if (peek(0) != '?') return;
    if (peek(1) == ':' || peek(1) == '=' || peek(1) == '!') {
      at_ += 2;
    } else if (peek(1) == 'i' && peek(2) == ':') {
      at_ += 3;
    } else {
      refuse(2);
    }
  }

  /// Checks {n}, {n,} or {n,m}. No '+' may follow, which is possessive in one engine and a
  /// repetition in the other.
  void braces() {
    const std::size_t close = p_.find('}', at_);
    if (close == std::string_view::npos) return refuse(1);
    const std::string_view inside = p_.substr(at_ + 1, close - at_ - 1);
    const bool digits =
        std::ranges::all_of(inside, [](char c) { return (c >= '0' && c <= '9') || c == ','; });
    if (inside.empty() || inside[0] == ',' || !digits || std::ranges::count(inside, ',') > 1 ||
        (close + 1 < p_.size() && p_[close + 1] == '+')) {
      return refuse(close + 1 - at_);
    }
    at_ = close + 1;
  }

  std::string_view p_;
  std::size_t at_ = 0;
  std::string problem_;
};

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

}  // namespace

std::string unsupported_syntax(std::string_view pattern) { return SyntaxCheck(pattern).run(); }

/// Memory for matching, kept between matches, because making it costs more than a short match.
struct Workspace {
  pcre2_match_data* data;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;

  explicit Workspace(const pcre2_code* code)
      : data(pcre2_match_data_create_from_pattern(code, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(jit_stack_start, jit_stack_limit, nullptr)) {
    if (data == nullptr || context == nullptr) throw std::bad_alloc();
    pcre2_set_match_limit(context, match_limit);
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Workspace() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
};

struct Pattern::Compiled {
  std::unique_ptr<pcre2_code, void (*)(pcre2_code*)> code{nullptr, pcre2_code_free};
  std::mutex mutex;                              ///< guards idle
  std::vector<std::unique_ptr<Workspace>> idle;  ///< workspaces not in use by any thread

  std::unique_ptr<Workspace> take() {
    const std::lock_guard lock(mutex);
    if (idle.empty()) return std::make_unique<Workspace>(code.get());
    std::unique_ptr<Workspace> workspace = std::move(idle.back());
    idle.pop_back();
    return workspace;
  }
  void give(std::unique_ptr<Workspace> workspace) {
    const std::lock_guard lock(mutex);
    idle.push_back(std::move(workspace));
  }
};

Pattern::Pattern(std::string_view pattern, const std::string& where, Syntax syntax)
    : compiled_(std::make_unique<Compiled>()), where_(where) {
  const std::string refuse = where + ": the pattern cannot be used: ";
  const std::string problem = syntax == Syntax::own ? "" : unsupported_syntax(pattern);
  if (!problem.empty()) {
    throw DataError(
        refuse + problem +
        " (supported: ASCII literals, classes, \\s \\d \\p{category}, groups, (?i:...), "
        "lookahead, alternation, quantifiers)");
  }
  int error = 0;
  PCRE2_SIZE offset = 0;
  compiled_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                      PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
  if (compiled_->code == nullptr) {
    throw DataError(refuse + message_of(error) + " at byte " + std::to_string(offset));
  }
  std::uint32_t matches_empty = 0;
  pcre2_pattern_info(compiled_->code.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) throw DataError(refuse + "it matches the empty string");
  // Without JIT (a PCRE2 built without it) matching is slower, with the same results.
  pcre2_jit_compile(compiled_->code.get(), PCRE2_JIT_COMPLETE);
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

void Pattern::split(std::string_view text,
                    const std::function<void(std::string_view)>& piece) const {
  const std::string replaced = with_stand_ins(text);
  const std::string_view subject = replaced.empty() ? text : std::string_view(replaced);
  std::unique_ptr<Workspace> workspace = compiled_->take();
  const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(workspace->data);
  std::size_t done = 0;
  while (done < text.size()) {
    const int found =
        pcre2_match(compiled_->code.get(), reinterpret_cast<PCRE2_SPTR>(subject.data()),
                    subject.size(), done, PCRE2_NO_UTF_CHECK, workspace->data, workspace->context);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      throw DataError(where_ + ": the pattern could not be matched against a text of " +
                      std::to_string(text.size()) + " bytes: " + message_of(found));
    }
    if (offsets[0] > done) piece(text.substr(done, offsets[0] - done));
    piece(text.substr(offsets[0], offsets[1] - offsets[0]));
    done = offsets[1];  // progress: the constructor refused patterns that match nothing
  }
  if (done < text.size()) piece(text.substr(done));
  compiled_->give(std::move(workspace));
}

}  // namespace paceline::io::text
