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
constexpr std::string_view header = "add_generation_prompt";
constexpr std::string_view go_on = "continue_final_message";
constexpr std::string_view tools = "tools";
constexpr std::array<std::string_view, 5> honoured = {thinking, date, header, go_on, tools};

/// Template arguments that are never rendered, each with its value that requests nothing.
struct Idle {
  std::string_view key;
  std::string_view value;
};
constexpr std::array<Idle, 1> idle = {{{"chat_template", "null"}}};

const Idle* find_idle(std::string_view key) {
  const auto* const found = std::ranges::find(idle, key, &Idle::key);
  return found == idle.end() ? nullptr : found;
}

bool is_honoured(std::string_view key) {
  return std::ranges::find(honoured, key) != honoured.end();
}

/// Whether a member requests anything of the template.
bool asks(const Member& member) {
  if (member.raw == "null") return false;
  if (const Idle* i = find_idle(member.key)) return member.raw != i->value;
  return is_honoured(member.key) || member.key == kwargs;
}

class FieldReader {
 public:
  explicit FieldReader(const ChatTemplate& chat) : chat_(chat) {}

  void read(const Member& member) {
    if (!asks(member)) return;
    if (member.key == kwargs) {
      read_kwargs(member);
      return;
    }
    if (member.key == date) {
      const Json value = parse(member);
      if (!value.is_string()) refuse(member, "expected text, found " + describe(value));
      take(member, date_, value.get<std::string>());
    } else if (member.key == tools) {
      const Json value = parse(member);
      const bool objects = value.is_array() && std::ranges::all_of(value, [](const Json& tool) {
                             return tool.is_object();
                           });
      if (!objects) refuse(member, "expected a list of objects, found " + describe(value));
      take(member, tools_, value.empty() ? std::string() : compact(member.raw));
    } else if (is_honoured(member.key)) {
      const Json value = parse(member);
      if (!value.is_boolean()) refuse(member, "expected true or false, found " + describe(value));
      take(member,
           member.key == thinking ? thinking_
           : member.key == header ? header_
                                  : go_on_,
           value.get<bool>());
      if (header_.value_or(false) && go_on_.value_or(false)) {
        refuse(member, "add_generation_prompt and continue_final_message exclude each other");
      }
    } else {
      refuse(member, "cannot be honoured (expected " + std::string(find_idle(member.key)->value) +
                         " or nothing); python3 -m paceline_run.prompts --tokenizer DIR renders "
                         "prompts with it");
    }
  }

  [[nodiscard]] ChatFields fields(const ChatSettings& configured,
                                  std::span<const ChatMessage> messages) const {
    ChatFields fields;
    fields.options.enable_thinking = thinking_ ? thinking_ : configured.enable_thinking;
    fields.options.date = date_ ? date_ : configured.date;
    fields.options.tools = tools_.value_or("");
    const bool answer = !messages.empty() && messages.back().role == "assistant";
    const bool free = !go_on_ && !header_.value_or(false) && answer;  // the configuration decides
    fields.options.continue_final_message =
        go_on_.value_or(free && configured.continue_final_message.value_or(false));
    fields.options.add_generation_prompt =
        !fields.options.continue_final_message && header_.value_or(true);
    fields.closes_answer = free && !header_ && !configured.continue_final_message;
    return fields;
  }

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

  /// Records a value of the line, and checks that the template reads it.
  template <typename T>
  void take(const Member& member, std::optional<T>& said, T value) {
    if (said && *said != value) refuse(member, "is given twice on the line, and differently");
    said = std::move(value);
    if (chat_.family() == ChatFamily::none) return;  // render() explains the refusal
    ChatOptions alone;
    alone.enable_thinking = thinking_;
    alone.date = date_;
    alone.tools = tools_.value_or("");
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
                       (near.empty() ? "there are enable_thinking, date_string, "
                                       "add_generation_prompt, continue_final_message, tools"
                                     : "did you mean '" + std::string(near) + "'?"));
  }

  const ChatTemplate& chat_;
  // Values set by the line.
  std::optional<bool> thinking_, header_, go_on_;
  std::optional<std::string> date_, tools_;
};

}  // namespace

ChatFields read_chat_fields(const std::vector<Member>& members, const ChatTemplate& chat,
                            const ChatSettings& configured, std::span<const ChatMessage> messages) {
  FieldReader reader(chat);
  for (const Member& member : members) reader.read(member);
  return reader.fields(configured, messages);
}

std::size_t bytes_of_tools(const std::vector<Member>& members) {
  for (const Member& member : members) {
    if (member.key == tools && asks(member)) return compact(member.raw).size();
    if (member.key != kwargs || member.raw.front() != '{') continue;
    if (const std::size_t within = bytes_of_tools(split_object(member)); within > 0) return within;
  }
  return 0;
}

void refuse_chat_fields(const std::vector<Member>& members, const std::string& reason) {
  for (const Member& member : members) {
    const bool as_ever = (member.key == header && member.raw == "true") ||
                         (member.key == go_on && member.raw == "false");
    if (asks(member) && !as_ever) refuse(member, reason);
  }
}

}  // namespace paceline::io::text
