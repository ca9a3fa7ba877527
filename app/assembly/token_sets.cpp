#include "app/assembly/token_sets.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "app/assembly/inputs.hpp"
#include "io/text/printable.hpp"
#include "runtime/core/error.hpp"

namespace paceline::app {
namespace {

void sort_once(std::vector<TokenId>& ids) {
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

void require_tokens(const char* key, const std::vector<TokenId>& ids, const ModelConfig& model) {
  for (const TokenId id : ids) {
    if (id >= 0 && id < model.vocab) continue;
    throw UsageError(
        fmt::format("{}: {} is not a token of this model (0 to {})", key, id, model.vocab - 1));
  }
}

bool has(const std::vector<TokenId>& ids, TokenId id) {
  return std::ranges::find(ids, id) != ids.end();
}

/// Text that names a token for the user, e.g. "<|im_end|> (511)".
std::string token_name(TokenId id, const io::Tokenizer* tokenizer) {
  constexpr std::size_t kLongest = 40;
  if (tokenizer == nullptr || !tokenizer->has_token(id)) return fmt::format("token {}", id);
  return fmt::format("{} ({})", io::printable_start(tokenizer->bytes_of(id), kLongest), id);
}

/// Joins words as "a, b or c".
std::string alternatives(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  return text;
}

}  // namespace

std::vector<TokenId> stop_set(const ModelConfig& model, const SamplingParams& sampling,
                              const io::Tokenizer* tokenizer) {
  require_tokens("sampling.stop_ids", sampling.stop_ids, model);
  std::vector<TokenId> stops = sampling.stop_ids;
  if (!sampling.ignore_eos) stops.insert(stops.end(), model.eos.begin(), model.eos.end());
  // If a stop string is the text of a special token, the token's id ends responses too, so that the
  // id can be banned until a response has min_tokens tokens. If a response spells the text by
  // several other tokens, the stop-string matcher ends the response.
  for (const std::string& text : sampling.stop_strings) {
    if (tokenizer == nullptr) break;
    const std::optional<TokenId> id = tokenizer->token_to_id(text);
    // An id past the model's vocabulary is never sampled, so it is left out.
    if (id && *id < model.vocab && tokenizer->is_special(*id)) stops.push_back(*id);
  }
  sort_once(stops);
  return stops;
}

std::vector<TokenId> masked_tokens(const ModelConfig& model, const SamplingParams& sampling,
                                   const io::Tokenizer* tokenizer,
                                   const std::vector<TokenId>& stops) {
  require_tokens("sampling.banned_ids", sampling.banned_ids, model);
  require_tokens("sampling.allowed_ids", sampling.allowed_ids, model);
  std::vector<TokenId> biased;
  for (const LogitBias& bias : sampling.logit_bias) biased.push_back(bias.token);
  require_tokens("sampling.logit_bias", biased, model);
  std::vector<TokenId> masked = sampling.banned_ids;
  if (const std::set<TokenId> allowed(sampling.allowed_ids.begin(), sampling.allowed_ids.end());
      !allowed.empty()) {
    for (TokenId id = 0; id < model.vocab; ++id) {
      if (!allowed.contains(id)) masked.push_back(id);
    }
  }
  if (sampling.mask_unused) {
    const auto mask = [&](TokenId id) {
      if (!has(stops, id) && !has(model.eos, id)) masked.push_back(id);
    };
    for (TokenId id = 0; tokenizer != nullptr && id < model.vocab; ++id) {
      if (!tokenizer->has_token(id)) mask(id);
    }
    for (const TokenId id : model.placeholders) mask(id);
  }
  sort_once(masked);
  if (std::ssize(masked) == model.vocab) {
    throw UsageError(fmt::format("sampling.{}: none of the model's {} tokens is left to sample",
                                 sampling.allowed_ids.empty() ? "banned_ids" : "allowed_ids",
                                 model.vocab));
  }
  return masked;
}

std::string ranges_text(const std::vector<TokenId>& ids) {
  std::string text;
  for (std::size_t first = 0; first < ids.size();) {
    std::size_t last = first;
    while (last + 1 < ids.size() && ids[last + 1] == ids[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ids[first]);
    if (last > first) text += fmt::format("-{}", ids[last]);
    first = last + 1;
  }
  return text;
}

TurnEnd turn_end(const io::ChatTemplate& chat, const io::Tokenizer* tokenizer,
                 std::span<const Prompt> prompts) {
  if (chat.family() == io::ChatFamily::none || tokenizer == nullptr) return {};
  const std::string answer = "answer";
  std::string text;
  try {
    const std::vector<io::ChatMessage> messages{{"user", "question"}, {"assistant", answer}};
    io::ChatOptions options;
    options.add_generation_prompt = false;
    text = chat.render(messages, options);
  } catch (const DataError&) {  // the template refuses this conversation
    return {};
  }
  text.erase(0, text.rfind(answer) + answer.size());
  TurnEnd end;
  end.tokens = tokenizer->encode(text);
  if (end.tokens.empty()) return {};
  if (tokenizer->is_special(end.tokens.front())) {
    end.tokens.resize(1);
    end.text = tokenizer->bytes_of(end.tokens.front());
  } else {
    end.text = text.substr(0, text.find('\n'));
    end.tokens = tokenizer->encode(end.text);
  }
  if (end.text.empty()) return {};
  end.in_prompts = std::ranges::any_of(prompts, [&](const Prompt& prompt) {
    return std::search(prompt.tokens.begin(), prompt.tokens.end(), end.tokens.begin(),
                       end.tokens.end()) != prompt.tokens.end();
  });
  return end;
}

namespace {

/// The setting that ends responses where the chat template ends turns.
std::string setting_for(const TurnEnd& end) {
  return end.tokens.size() == 1
             ? fmt::format("sampling.stop_ids: [{}]", end.tokens.front())
             : fmt::format("sampling.stop_strings: ['{}']", io::printable(end.text));
}

bool ends_with(const Inputs& inputs, const TurnEnd& end) {
  if (end.tokens.size() == 1 && has(inputs.ends.stops, end.tokens.front())) return true;
  const std::vector<std::string>& strings = inputs.config.sampling.stop_strings;
  return std::ranges::any_of(
      strings, [&](const std::string& text) { return end.text.find(text) != std::string::npos; });
}

std::string end_warnings(const Inputs& inputs) {
  const SamplingParams& sampling = inputs.config.sampling;
  if (sampling.ignore_eos) return "";  // the user wants no end tokens
  const TurnEnd& turn = inputs.ends.turn;
  const std::string& path = inputs.config.model.path;
  if (inputs.ends.stops.empty() && sampling.stop_strings.empty()) {
    return fmt::format(
        "  warning: only sampling.max_tokens ends a response: {} names no end token "
        "(eos_token_id); set {}\n",
        path, turn.text.empty() ? "sampling.stop_ids or sampling.stop_strings" : setting_for(turn));
  }
  std::string text;
  const bool all_banned = std::ranges::all_of(inputs.ends.stops, [&](TokenId id) {
    return std::ranges::binary_search(sampling.masked, id);
  });
  if (all_banned && !inputs.ends.stops.empty()) {
    text += fmt::format(
        "  warning: no token can end a response: sampling.{} every token that ends responses\n",
        sampling.allowed_ids.empty() ? "banned_ids bans" : "banned_ids and allowed_ids ban");
  }
  if (turn.in_prompts && !ends_with(inputs, turn)) {
    text += fmt::format(
        "  warning: turns of the prompts end with {}, but responses do not end there; set {}\n",
        io::printable(turn.text), setting_for(turn));
  }
  if (inputs.ends.earlier_eos && *inputs.ends.earlier_eos != inputs.target.config.eos) {
    const bool generation =
        std::filesystem::exists(std::filesystem::path(path) / "generation_config.json");
    text += fmt::format(
        "  warning: the model's end tokens are [{}]; in the previous step they were [{}]{}; to "
        "stop at the earlier ones too, set sampling.stop_ids: [{}]\n",
        fmt::join(inputs.target.config.eos, ", "), fmt::join(*inputs.ends.earlier_eos, ", "),
        generation ? "" : fmt::format(": {} has no generation_config.json", path),
        fmt::join(*inputs.ends.earlier_eos, ", "));
  }
  return text;
}

}  // namespace

std::string token_text(const Inputs& inputs) {
  constexpr std::size_t kLongest = 60;
  const SamplingParams& sampling = inputs.config.sampling;
  std::string text;
  if (!inputs.given) {
    std::vector<std::string> ends;
    for (const TokenId id : inputs.ends.stops)
      ends.push_back(token_name(id, inputs.text.tokenizer.get()));
    for (const std::string& string : sampling.stop_strings)
      ends.push_back("\"" + io::printable_start(string, kLongest) + "\"");
    ends.push_back(fmt::format("{} tokens", sampling.max_tokens));
    text = fmt::format("  responses end with {}\n", alternatives(ends));
  }
  if (!sampling.masked.empty()) {
    text += fmt::format(
        "  {} of the vocabulary cannot be sampled: {} (sampling.unused_ids, "
        "sampling.banned_ids{})\n",
        sampling.masked.size() == 1 ? "1 token" : fmt::format("{} tokens", sampling.masked.size()),
        io::printable_start(ranges_text(sampling.masked), kLongest),
        sampling.allowed_ids.empty() ? "" : ", sampling.allowed_ids");
  }
  return inputs.given ? text : text + end_warnings(inputs);
}

}  // namespace paceline::app
