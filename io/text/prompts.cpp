#include "io/text/prompts.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <unordered_map>
#include <utility>

#include "io/text/chat_fields.hpp"
#include "io/text/files.hpp"
#include "io/text/json_line.hpp"
#include "io/text/picture_fields.hpp"
#include "io/text/request_fields.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

using text::Json;
using text::LineError;
using text::Member;
using text::parse;
using text::refuse;

constexpr std::array<std::string_view, 5> prompt_keys = {"prompt", "messages", "prompt_tokens",
                                                         "input_ids", "tokens"};

bool is_ids_key(std::string_view key) { return key != "prompt" && key != "messages"; }
bool is_prompt_key(std::string_view key) {
  return std::ranges::find(prompt_keys, key) != prompt_keys.end();
}

/// The text of a string, or other JSON in its compact spelling.
std::string text_of(const Json& value, std::string_view raw) {
  return value.is_string() ? value.get<std::string>() : text::compact(raw);
}

/// Text "; did you mean 'x'?" or, if no name is near, the line's fields.
std::string suggest(std::string_view field, const std::vector<Member>& members) {
  constexpr std::size_t kShown = 8;  // names
  std::vector<std::string_view> names;
  for (const Member& member : members)
    if (member.key.size() <= 64) names.push_back(member.key);
  const std::string_view near = nearest_name(field.substr(0, 64), names);
  if (!near.empty()) return "; did you mean '" + std::string(near) + "'?";
  if (names.empty()) return "";
  std::string text = "; the line has ";
  for (std::size_t i = 0; i < names.size() && i < kShown; ++i)
    text += (i > 0 ? ", '" : "'") + std::string(names[i]) + "'";
  return text + (names.size() > kShown ? ", ..." : "");
}

/// The absolute folder of a file.
std::string folder_of(const std::string& path) {
  return std::filesystem::absolute(path).parent_path().string();
}

/// Reads the lines of one file in order, and then their pictures.
class PromptReader {
 public:
  PromptReader(const std::string& name, const Tokenizer* tokenizer, const ChatTemplate* chat,
               const PromptOptions& options)
      : name_(name),
        tokenizer_(tokenizer),
        chat_(chat),
        options_(options),
        named_(options.keys.named()),
        folder_(folder_of(name)) {
    vocab_ = options.vocab_size > 0 ? options.vocab_size
             : tokenizer != nullptr ? tokenizer->vocab_size()
                                    : 0;
  }

  PromptSet run(std::string_view text) {
    if (tokenizer_ != nullptr && options_.vocab_size > 0) {
      tokenizer_->require_fits(options_.vocab_size);
    }
    require_template_reads();
    if (const std::string other = text::other_format(text, name_); !other.empty())
      throw DataError(name_ + ": " + other);
    if (text.starts_with(text::byte_order_mark)) text.remove_prefix(text::byte_order_mark.size());
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      ++line_number_;
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      at_line([&] { read_line(line); });
    }
    place_pictures();
    for (ReadPrompt& read : read_) {
      line_number_ = read.line;
      at_line([&] { keep(std::move(read)); });
    }
    if (seen_.empty()) throw DataError(name_ + ": there are no prompts");
    if (configured() && !rendered_ && !set_.estimated) {
      throw UsageError("prompts.chat: " + name_ +
                       " holds no messages to render; leave enable_thinking, date and "
                       "continue_final_message to auto");
    }
    if (set_.prompts.empty())
      throw DataError(name_ + ": every prompt is over-long and was skipped");
    return std::move(set_);
  }

 private:
  [[nodiscard]] bool configured() const {
    return options_.chat.enable_thinking || options_.chat.date ||
           options_.chat.continue_final_message;
  }

  /// Checks the configuration's options first, so that an error in them does not look like one of
  /// the first line.
  void require_template_reads() const {
    if (chat_ == nullptr || chat_->family() == ChatFamily::none) return;
    try {
      ChatOptions asked;
      asked.enable_thinking = options_.chat.enable_thinking;
      asked.date = options_.chat.date;
      chat_->require_reads(asked);
    } catch (const DataError& e) {
      throw UsageError(std::string("prompts.chat: ") + e.what());
    }
  }

  /// The key for which a member stands: the key that names this field, or the member's own name.
  [[nodiscard]] std::string_view key_of(const Member& member) const {
    for (const auto& [key, field] : named_) {
      if (member.key == field) return key;
    }
    for (const auto& [key, field] : named_) {
      if (member.key == key)
        refuse(member, "is beside '" + std::string(field) + "', which prompts.keys." +
                           std::string(key) + " names; expected one of them");
    }
    return member.key;
  }

  void require_named(const std::vector<Member>& members) const {
    for (const auto& [key, field] : named_) {
      const auto has = [&field = field](const Member& member) { return member.key == field; };
      if (std::ranges::none_of(members, has))
        throw LineError{0, "no '" + std::string(field) + "' (prompts.keys." + std::string(key) +
                               ")" + suggest(field, members)};
    }
  }

  /// The member that holds the prompt.
  struct Source {
    const Member* member = nullptr;
    std::string_view key;  ///< key for which it stands
  };

  /// Whether the source is a text that is to be a user's message.
  [[nodiscard]] bool says(const Source& source) const {
    return options_.keys.messages && source.key == "messages" && source.member->raw.front() == '"';
  }

  /// Runs an action on the current line, and adds the line's place to its errors.
  template <typename Action>
  void at_line(const Action& action) const {
    try {
      action();
    } catch (const LineError& e) {
      throw DataError(name_ + ":" + std::to_string(line_number_) + ":" +
                      std::to_string(e.offset + 1) + ": " + e.message);
    }
  }

  /// A line's prompt before its pictures are read.
  struct ReadPrompt {
    Prompt prompt;
    std::size_t line = 0;
    std::size_t uid_offset = 0;
    Member source;  ///< the member that holds the prompt
    Member images;  ///< the member to name in errors about pictures
    bool closed = false;
    std::vector<PictureFile> files;
  };

  void read_line(std::string_view line) {
    const std::vector<Member> members = text::split_object(line);
    require_named(members);
    Source source;
    Source origin;        // text from which the source's token ids were made
    bool second = false;  // `origin` is set
    Prompt prompt;
    text::RequestReader request(options_.request, vocab_, tokenizer_ != nullptr);
    std::size_t uid_offset = 0;
    bool has_truth = false;
    text::PictureFields pictures(folder_);
    std::string extra;
    const auto take_truth = [&](const Member& member, std::string truth) {
      if (truth.find('\0') != std::string::npos) refuse(member, "holds a NUL character");
      if (has_truth && truth != prompt.ground_truth) {
        refuse(member, "a second ground truth that differs from the first");
      }
      prompt.ground_truth = std::move(truth);
      has_truth = true;
    };
    for (const Member& member : members) {
      const std::string_view key = key_of(member);
      if (is_prompt_key(key)) {
        // If ids were made of a text or messages on the same line, the ids are the prompt.
        const Source found = {&member, key};
        const bool made = source.key == "prompt_tokens" && !is_ids_key(key);
        const bool makes =
            key == "prompt_tokens" && source.member != nullptr && !is_ids_key(source.key);
        if (second || (source.member != nullptr && !made && !makes)) {
          refuse(member, "a second prompt beside '" + source.member->key + "'; expected one");
        }
        second = source.member != nullptr;
        const Source earlier = source;
        (made ? origin : source) = found;
        if (makes) origin = earlier;
        if (says(found)) {
          add_extra(extra, key, R"([{"role":"user","content":)" + std::string(member.raw) + "}]");
        } else if (!is_ids_key(key)) {
          add_extra(extra, key, text::compact(member.raw));
        }
      } else if (key == "uid") {
        if (member.raw == "null") continue;
        uid_offset = member.offset;
        prompt.uid = read_uid(member);
      } else if (key == "ground_truth") {
        if (member.raw != "null") take_truth(member, text_of(parse(member), member.raw));
      } else if (key == "images" && options_.pictures) {
        pictures.read_column(member);
      } else {
        if (key == "reward_model") {
          if (auto truth = nested_truth(member)) take_truth(member, *std::move(truth));
        }
        request.read(member, key);
        add_extra(extra, key, text::compact(member.raw));
      }
    }
    prompt.sampling = request.sampling();
    prompt.samples = request.samples();
    note(request);
    if (source.member == nullptr) {
      throw LineError{0,
                      "no prompt: expected one of 'prompt', 'messages', 'prompt_tokens', "
                      "'input_ids', 'tokens', or what prompts.keys names"};
    }
    closed_ = false;
    prompt.tokens = read_prompt(source, origin, members, pictures);
    if (prompt.tokens.empty()) refuse(*source.member, "the prompt is empty");
    std::vector<PictureFile> files = pictures.finish();
    if (!files.empty()) add_extra(extra, "images", text::to_json(files));
    prompt.extra_json = extra.empty() ? "{}" : extra + "}";
    read_.push_back({std::move(prompt), line_number_, uid_offset, *source.member,
                     pictures.named(*source.member), closed_, std::move(files)});
  }

  /// Reads all pictures, and places their rows.
  void place_pictures() {
    if (!options_.pictures) return;
    std::vector<PictureFile> files;
    for (ReadPrompt& read : read_)
      for (PictureFile& file : read.files) files.push_back(std::move(file));
    std::vector<text::SeenPicture> seen = text::look_at(files, options_.pictures->processor);
    std::size_t at = 0;
    for (ReadPrompt& read : read_) {
      line_number_ = read.line;
      for (std::size_t i = 0; i < read.files.size(); ++i, ++at) {
        read.files[i] = std::move(files[at]);
        at_line([&] { refuse_damage(read.images, i, seen[at].damage); });
        read.prompt.pictures.push_back({seen[at].hash, seen[at].grid, 0});
      }
      at_line([&] { place(read); });
    }
  }

  static void refuse_damage(const Member& images, std::size_t index,
                            const std::exception_ptr& damage) {
    if (damage == nullptr) return;
    try {
      std::rethrow_exception(damage);
    } catch (const DataError& error) {
      refuse(images, "picture " + std::to_string(index + 1) + ": " + error.what());
    }
  }

  void place(ReadPrompt& read) {
    std::vector<PromptPicture>& pictures = read.prompt.pictures;
    std::vector<TokenId>& tokens = read.prompt.tokens;
    if (estimates()) {  // only the number of tokens counts
      const std::int64_t merge = options_.pictures->processor.merge;
      for (const PromptPicture& picture : pictures)
        tokens.insert(tokens.end(), picture.grid.patches() / (merge * merge), 0);
      pictures.clear();
      read.files.clear();
      return;
    }
    try {
      text::place_pictures(tokens, pictures, *options_.pictures);
    } catch (const DataError& error) {
      refuse(read.source, error.what());
    }
  }

  void note(const text::RequestReader& request) {
    set_.fields.honoured.insert(request.honoured().begin(), request.honoured().end());
    set_.fields.differing.insert(request.differing().begin(), request.differing().end());
    for (const std::string& field : request.ignored()) {
      RequestFields::Ignored& ignored = set_.fields.ignored[field];
      if (++ignored.lines == 1) ignored.first = line_number_;
    }
  }

  static void add_extra(std::string& extra, std::string_view key, const std::string& value) {
    extra += extra.empty() ? "{" : ",";
    extra += Json(key).dump() + ":" + value;
  }

  static std::string read_uid(const Member& member) {
    const Json value = parse(member);
    if (value.is_number_integer()) return std::string(member.raw);
    if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
      refuse(member, "expected text or an integer, found " + text::describe(value));
    }
    auto uid = value.get<std::string>();
    if (uid.find('\0') != std::string::npos) refuse(member, "holds a NUL character");
    return uid;
  }

  /// Reads verl's reward_model.ground_truth.
  static std::optional<std::string> nested_truth(const Member& member) {
    if (member.raw.front() != '{') return std::nullopt;
    for (const Member& inner : text::split_object(member)) {
      if (inner.key == "ground_truth" && inner.raw != "null") {
        return text_of(parse(inner), inner.raw);
      }
    }
    return std::nullopt;
  }

  /// Whether the model takes pictures; then <image> is not text.
  [[nodiscard]] bool has_places() const { return options_.pictures.has_value(); }

  std::vector<TokenId> read_prompt(const Source& of, const Source& origin,
                                   const std::vector<Member>& members,
                                   text::PictureFields& pictures) {
    const Member& source = *of.member;
    const Json value = parse(source);
    if (is_ids_key(of.key)) {
      if (has_places())
        pictures.take_all(origin.member == nullptr ? Json() : parse(*origin.member), source);
      return read_ids(source, value);
    }
    if (of.key == "prompt" && value.is_string()) {
      text::refuse_chat_fields(members,
                               "cannot be honoured: the prompt is text, which is encoded as it is; "
                               "give it as messages");
      const std::string plain =
          has_places() ? pictures.text_of(value, source, "", false) : value.get<std::string>();
      if (plain.empty()) return {};
      if (estimates()) return estimated_tokens(plain.size());
      const Auto<bool>& special = options_.add_special_tokens;
      return within_vocabulary(
          source, tokenizer_for(source).encode(plain, {.add_special_tokens = special.value_or(true),
                                                       .unless_there = !special}));
    }
    const std::vector<ChatMessage> messages =
        says(of) ? std::vector<ChatMessage>{{"user", content_of(value, source, "", pictures)}}
                 : read_messages(of, value, pictures);
    if (estimates()) {
      constexpr std::size_t kMarkup = 16;  // bytes of a message's header and end
      std::size_t bytes = text::bytes_of_tools(members);
      for (const ChatMessage& message : messages) bytes += message.content.size() + kMarkup;
      return estimated_tokens(bytes);
    }
    const Tokenizer& tokenizer = tokenizer_for(source);
    if (chat_ == nullptr) refuse(source, "there is no chat template");
    const text::ChatFields fields =
        text::read_chat_fields(members, *chat_, options_.chat, messages);
    rendered_ = true;
    closed_ = fields.closes_answer;
    try {
      return within_vocabulary(source, tokenizer.encode(chat_->render(messages, fields.options)));
    } catch (const DataError& e) {
      refuse(source, e.what());
    }
  }

  /// Checks ids against the model, for a tokenizer may have added tokens that the model lacks
  /// (Tokenizer::require_fits).
  [[nodiscard]] std::vector<TokenId> within_vocabulary(const Member& source,
                                                       std::vector<TokenId> tokens) const {
    const auto outside = std::ranges::find_if(tokens, [&](TokenId id) { return id >= vocab_; });
    if (outside == tokens.end()) return tokens;
    refuse(source, "its text has token '" +
                       tokenizer_->decode(std::span(outside, outside + 1), false) + "' (id " +
                       std::to_string(*outside) +
                       "), which is outside the model's vocabulary (0 to " +
                       std::to_string(vocab_ - 1) + ")");
  }

  [[nodiscard]] bool estimates() const { return options_.estimate && tokenizer_ == nullptr; }

  std::vector<TokenId> estimated_tokens(std::size_t bytes) {
    set_.estimated = true;
    return std::vector<TokenId>((bytes + 3) / 4, 0);
  }

  const Tokenizer& tokenizer_for(const Member& source) {
    if (tokenizer_ == nullptr) {
      refuse(source, "text needs a tokenizer, and " + options_.no_tokenizer +
                         "; give token ids (prompt_tokens)");
    }
    set_.encoded = true;
    return *tokenizer_;
  }

  std::string content_of(const Json& content, const Member& source, const std::string& which,
                         text::PictureFields& pictures) const {
    if (content.is_string() && !has_places()) return content.get<std::string>();
    const bool reads_parts =
        has_places() && (estimates() || (chat_ != nullptr && chat_->reads_pictures()));
    if (!content.is_string() && !reads_parts) {
      refuse(source, which + "'content': expected text, found " + text::describe(content) +
                         (content.is_array() ? "; of parts are the contents of models that read "
                                               "pictures, by their own chat templates"
                                             : ""));
    }
    return pictures.text_of(content, source, which, reads_parts);
  }

  std::vector<ChatMessage> read_messages(const Source& of, const Json& value,
                                         text::PictureFields& pictures) const {
    const Member& source = *of.member;
    if (!value.is_array()) {
      const bool text = of.key == "prompt" || options_.keys.messages;
      refuse(source, (text ? "expected text or a list of messages, found "
                           : "expected a list of messages, found ") +
                         text::describe(value));
    }
    if (value.empty()) refuse(source, "the prompt is empty: no messages");
    std::vector<ChatMessage> messages;
    for (std::size_t i = 0; i < value.size(); ++i) {
      const Json& message = value[i];
      const std::string which = "message " + std::to_string(i + 1) + ": ";
      if (!message.is_object()) {
        refuse(source, which + "expected {\"role\": ..., \"content\": ...}, found " +
                           text::describe(message) +
                           (message.is_number() ? "; token ids go under 'prompt_tokens'" : ""));
      }
      for (const char* key : {"role", "content"}) {
        if (!message.contains(key)) refuse(source, which + "expected a '" + key + "'");
      }
      const Json& role = message["role"];
      if (!role.is_string())
        refuse(source, which + "'role': expected text, found " + text::describe(role));
      for (const auto& [key, member] : message.items()) {
        if (key != "role" && key != "content" && !member.is_null()) {
          refuse(source, which + "'" + key + "' is not rendered; supported: role, content");
        }
      }
      messages.push_back(
          {role.get<std::string>(), content_of(message["content"], source, which, pictures)});
    }
    return messages;
  }

  std::vector<TokenId> read_ids(const Member& source, const Json& value) const {
    if (!value.is_array()) {
      refuse(source, "expected a list of token ids, found " + text::describe(value));
    }
    const std::int64_t end = vocab_ > 0 ? vocab_ : std::int64_t{1} << 31;
    std::vector<TokenId> ids;
    ids.reserve(value.size());
    for (std::size_t i = 0; i < value.size(); ++i) {
      const Json& id = value[i];
      const std::string which = "token " + std::to_string(i + 1) + ": ";
      // The parser calls -0 an integer, but 0 a natural number.
      const bool minus_zero = id.is_number_integer() && !id.is_number_unsigned() && id == 0;
      if (!id.is_number_integer() || minus_zero) {
        refuse(source,
               which + "expected a token id, found " + (minus_zero ? "-0" : text::describe(id)));
      }
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= static_cast<std::uint64_t>(end)) {
        refuse(source, which + "id " + id.dump() + " is outside the vocabulary (0 to " +
                           std::to_string(end - 1) + ")");
      }
      ids.push_back(id.get<TokenId>());
    }
    return ids;
  }

  /// Names a prompt. Without a uid its tokens give the name, so that it gets the same responses
  /// wherever its line is in the file.
  void name(Prompt& prompt, std::size_t offset) {
    const bool given = !prompt.uid.empty();
    if (!given) {
      prompt.uid = content_uid(prompt.tokens, prompt.pictures);
      const std::uint32_t times = ++equal_[prompt.uid];
      if (times > 1) prompt.uid += "-" + std::to_string(times);
    }
    const auto [first, fresh] = seen_.try_emplace(prompt.uid, Named{line_number_, given});
    if (fresh) return;
    const std::string line = std::to_string(first->second.line);
    const std::string uid = "uid '" + prompt.uid + "' ";
    if (given && first->second.given)
      throw LineError{offset, uid + "was on line " + line + " already; uids are unique"};
    throw LineError{offset, uid + (given ? "is made of the prompt of line " + line +
                                               ", which has none; give that line a uid"
                                         : "would be made of this prompt, and line " + line +
                                               " gives it; give this line a uid")};
  }

  /// Throws if the prompt has tokens for pictures or films outside of its own pictures.
  void require_no_places(const Prompt& prompt, const Member& source) const {
    for (const TokenId id : options_.placeholders) {
      if (options_.pictures && id == options_.pictures->token) continue;  // placed already
      if (std::ranges::find(prompt.tokens, id) == prompt.tokens.end()) continue;
      refuse(source,
             "token " + std::to_string(id) + " stands for a picture or a film, and " +
                 (options_.pictures ? "films are not supported" : options_.request.no_media));
    }
  }

  /// Text ", 300 of them its pictures' rows"; empty: the prompt has no pictures.
  [[nodiscard]] std::string of_pictures(const Prompt& prompt) const {
    if (prompt.pictures.empty()) return "";
    return ", " + std::to_string(std::ranges::count(prompt.tokens, options_.pictures->token)) +
           " of them its pictures' rows";
  }

  /// Keeps a prompt, unless its length or its uid is refused.
  void keep(ReadPrompt read) {
    Prompt& prompt = read.prompt;
    const Member& source = read.source;
    require_no_places(prompt, source);
    const std::int32_t context = options_.request.context;
    // Longest response of the line itself; 0: there is none, or it does not count here.
    const std::int32_t own = context > 0 ? prompt.sampling.max_tokens.value_or(0) : 0;
    const auto limit =
        static_cast<std::size_t>(std::max(own > 0 ? context - own : options_.max_tokens, 0));
    const std::size_t n = prompt.tokens.size();
    const bool over = limit > 0 && n > limit;
    if (over && options_.overlong == Overlong::error) {
      refuse(source, (prompt.uid.empty() ? "the prompt" : "prompt '" + prompt.uid + "'") + " has " +
                         std::to_string(n) + " tokens" + of_pictures(prompt) + ", the limit is " +
                         std::to_string(limit) +
                         (own > 0 ? " beside its max_tokens of " + std::to_string(own) : "") +
                         " (prompts.overlong: skip | truncate would allow it)");
    }
    if (over && options_.overlong == Overlong::truncate) {
      if (!prompt.pictures.empty()) {
        refuse(source, "has " + std::to_string(n) + " tokens, the limit is " +
                           std::to_string(limit) +
                           ", and a prompt with pictures is not truncated (prompts.overlong: skip "
                           "would leave it out)");
      }
      prompt.tokens.erase(prompt.tokens.begin(),
                          prompt.tokens.end() - static_cast<std::ptrdiff_t>(limit));
    }
    name(prompt, prompt.uid.empty() ? source.offset : read.uid_offset);
    if (over) {
      const bool skip = options_.overlong == Overlong::skip;
      (skip ? set_.skipped : set_.truncated).push_back(prompt.uid);
      if (skip) return;
    }
    if (read.closed) set_.closed.push_back(prompt.uid);
    if (!read.files.empty()) set_.pictures.resize(set_.prompts.size());
    if (!read.files.empty() || !set_.pictures.empty())
      set_.pictures.push_back(std::move(read.files));
    set_.prompts.push_back(std::move(prompt));
    set_.lines.push_back(line_number_);
  }

  const std::string& name_;
  const Tokenizer* tokenizer_;
  const ChatTemplate* chat_;
  const PromptOptions& options_;
  const std::vector<PromptKeys::Named> named_;
  const std::string folder_;  ///< folder at which relative paths of pictures begin
  std::int32_t vocab_ = 0;    ///< 0: unknown
  std::size_t line_number_ = 0;
  bool rendered_ = false;  ///< some messages were rendered
  bool closed_ = false;    ///< this line's last message, the assistant's, was closed by default
  struct Named {
    std::size_t line = 0;
    bool given = false;  ///< the line itself gives the uid
  };
  std::unordered_map<std::string, Named> seen_;           ///< by uid
  std::unordered_map<std::string, std::uint32_t> equal_;  ///< number of lines by content_uid
  std::vector<ReadPrompt> read_;                          ///< in the order of lines
  PromptSet set_;
};

}  // namespace

PromptSet read_prompts(const std::string& path, const Tokenizer* tokenizer,
                       const ChatTemplate* chat, const PromptOptions& options) {
  return parse_prompts(text::read_file(path), path, tokenizer, chat, options);
}

PromptSet parse_prompts(std::string_view text, const std::string& name, const Tokenizer* tokenizer,
                        const ChatTemplate* chat, const PromptOptions& options) {
  return PromptReader(name, tokenizer, chat, options).run(text);
}

}  // namespace paceline::io
