#include "io/text/chat_fields.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "runtime/core/error.hpp"

namespace paceline::io::text {
namespace {

constexpr std::string_view kwargs = "chat_template_kwargs";
constexpr std::string_view thinking = "enable_thinking";
constexpr std::string_view date = "date_string";
constexpr std::array<std::string_view, 2> honoured = {thinking, date};

/// Arguments of a template that are never rendered, each with the value that asks for nothing.
struct Idle {
  std::string_view key;
  std::string_view value;
};
constexpr std::array<Idle, 4> idle = {{{"tools", "null"},
                                       {"chat_template", "null"},
                                       {"add_generation_prompt", "true"},
                                       {"continue_final_message", "false"}}};

const Idle* find_idle(std::string_view key) {
  const auto* const found =
      std::find_if(idle.begin(), idle.end(), [&](const Idle& i) { return i.key == key; });
  return found == idle.end() ? nullptr : found;
}

bool is_honoured(std::string_view key) {
  return std::find(honoured.begin(), honoured.end(), key) != honoured.end();
}

/// Whether a member asks the template for something.
bool asks(const Member& member) {
  if (member.raw == "null") return false;
  if (const Idle* i = find_idle(member.key)) return member.raw != i->value;
  return is_honoured(member.key) || member.key == kwargs;
}

class FieldReader {
 public:
  FieldReader(const ChatTemplate& chat, const ChatOptions& base) : chat_(chat), options_(base) {}

  void read(const Member& member) {
    if (!asks(member)) return;
    if (member.key == kwargs) {
      read_kwargs(member);
      return;
    }
    if (member.key == thinking) {
      const Json value = parse(member);
      if (!value.is_boolean()) refuse(member, "expected true or false, found " + describe(value));
      take(member, thinking_, value.get<bool>(), options_.enable_thinking);
    } else if (member.key == date) {
      const Json value = parse(member);
      if (!value.is_string()) refuse(member, "expected text, found " + describe(value));
      take(member, date_, value.get<std::string>(), options_.date);
    } else {
      refuse(member, "cannot be honoured (expected " + std::string(find_idle(member.key)->value) +
                         " or nothing); give the prompt as token ids (prompt_tokens), rendered by "
                         "the model's own tools");
    }
  }

  [[nodiscard]] const ChatOptions& options() const { return options_; }

 private:
  void read_kwargs(const Member& member) {
    if (member.raw.front() != '{')
      refuse(member, "expected an object, found " + describe(parse(member)));
    for (const Member& inner : split_object(member)) {
      const bool known = is_honoured(inner.key) || find_idle(inner.key) != nullptr;
      if (!known && inner.raw != "null") refuse_unknown(inner);
      if (known) read(inner);
    }
  }

  /// Remembers what the line says, and that the template reads it.
  template <typename T>
  void take(const Member& member, std::optional<T>& said, T value, std::optional<T>& option) {
    if (said && *said != value) refuse(member, "is given twice on the line, and differently");
    said = option = std::move(value);
    if (chat_.family() == ChatFamily::none) return;  // rendering says why not
    ChatOptions alone;
    alone.enable_thinking = thinking_;
    alone.date = date_;
    try {
      chat_.require_reads(alone);
    } catch (const DataError& e) {
      refuse(member, e.what());
    }
  }

  [[noreturn]] static void refuse_unknown(const Member& member) {
    const std::string_view near =
        nearest_name(std::string_view(member.key).substr(0, 64), honoured);
    refuse(member, "is not an option that is honoured; " +
                       (near.empty() ? "there are enable_thinking, date_string"
                                     : "did you mean '" + std::string(near) + "'?"));
  }

  const ChatTemplate& chat_;
  ChatOptions options_;
  std::optional<bool> thinking_;     ///< said by the line
  std::optional<std::string> date_;  ///< said by the line
};

}  // namespace

ChatOptions read_chat_fields(const std::vector<Member>& members, const ChatTemplate& chat,
                             const ChatOptions& base) {
  FieldReader reader(chat, base);
  for (const Member& member : members) reader.read(member);
  return reader.options();
}

void refuse_chat_fields(const std::vector<Member>& members, const std::string& reason) {
  for (const Member& member : members) {
    if (asks(member)) refuse(member, reason);
  }
}

}  // namespace paceline::io::text
