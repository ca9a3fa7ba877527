#include "io/text/request_fields.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "io/config/other_names.hpp"
#include "io/config/sampling_ranges.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace text {
namespace {

constexpr std::int32_t kMostTokens = 1 << 24;      // also the limit of sampling.max_tokens
constexpr std::uint32_t kMostSamples = 1'000'000;  // also the limit of prompts.samples

bool contains(const auto& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Fields with inputs that the model cannot take.
constexpr std::array<std::string_view, 8> media = {
    "images", "videos", "audios", "image", "video", "audio", "multi_modal_data", "mm_data"};

/// Fields for the tools of verl's agents.
constexpr std::array<std::string_view, 2> of_tools = {"tools_kwargs", "interaction_kwargs"};

constexpr std::string_view agent = "agent_name";
constexpr std::string_view plain_agent = "single_turn_agent";  // verl's name for what is done here

/// Whether a value is null or otherwise empty.
bool is_empty(const Json& value) {
  return value.is_null() || value == false ||
         ((value.is_array() || value.is_object()) && value.empty()) || value == "";
}

/// A number that decides how tokens are drawn: field name, range and member.
struct DrawNumber {
  std::string_view key;
  const Real<float>& range;
  float SamplingParams::*value;
};
constexpr std::array<DrawNumber, 6> draw_numbers = {{
    {"temperature", kTemperature, &SamplingParams::temperature},
    {"top_p", kTopP, &SamplingParams::top_p},
    {"min_p", kMinP, &SamplingParams::min_p},
    {"repetition_penalty", kRepetition, &SamplingParams::repetition_penalty},
    {"presence_penalty", kPenalty, &SamplingParams::presence_penalty},
    {"frequency_penalty", kPenalty, &SamplingParams::frequency_penalty},
}};

/// The run's value of a parameter that lines cannot set; nullopt: there is no such parameter.
std::optional<double> of_run(const RequestOptions& run, std::string_view key) {
  const SamplingParams& s = run.sampling;
  if (key == "min_tokens") return s.min_tokens;
  if (key == "logprobs") return s.logprobs;
  if (key == "ignore_eos") return s.ignore_eos ? 1 : 0;
  return std::nullopt;
}

/// Whether a line repeats the run's value, exactly or in single precision.
bool repeats(const Json& value, double run) {
  if (value.is_boolean()) return value.get<bool>() == (run != 0);
  if (!value.is_number()) return false;
  const auto said = value.get<double>();
  return said == run || static_cast<float>(said) == static_cast<float>(run);
}

std::string shown(const Json& value) { return value.is_number() ? value.dump() : describe(value); }

/// Text about the value, or its first item that fails `is_one`, if it is not a list whose items all
/// pass; empty: it is such a list.
std::string not_a_list_of(const Json& value, const auto& is_one) {
  if (!value.is_array()) return shown(value);
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (!is_one(value[i])) return shown(value[i]) + " (the " + std::to_string(i + 1) + ". of them)";
  }
  return "";
}

/// Reads a whole number. `why`: text after the bounds in an error.
std::int64_t whole_number(const Member& member, const Json& value, std::int64_t least,
                          std::int64_t most, const char* why = "") {
  const bool fits = value.is_number_unsigned()
                        ? std::cmp_greater_equal(value.get<std::uint64_t>(), least) &&
                              std::cmp_less_equal(value.get<std::uint64_t>(), most)
                        : value.is_number_integer() && value.get<std::int64_t>() >= least;
  if (!fits)
    refuse(member, "expected a whole number from " + std::to_string(least) + " to " +
                       std::to_string(most) + why + ", found " + shown(value));
  return value.get<std::int64_t>();
}

}  // namespace

RequestReader::RequestReader(const RequestOptions& options, std::int32_t vocab, bool has_text)
    : options_(options), vocab_(vocab), has_text_(has_text), own_(options.sampling) {}

void RequestReader::read(const Member& member, std::string_view key) {
  if (member.raw == "null") return;
  if (read_ends(member, key) || read_draw(member, key) || read_samples(member, key)) return;

  if (key == "extra_info") {
    if (member.raw.front() != '{') return;
    for (const Member& inner : split_object(member)) {
      if (contains(of_tools, inner.key) && !is_empty(parse(inner)))
        ignored_.push_back("extra_info." + inner.key);
    }
    return;
  }
  const std::string keep = "; as data it can be a part of extra_info";
  if (key == "banned_ids" || key == "allowed_ids") {
    if (is_empty(parse(member))) return;
    refuse(member, "cannot be a line's own: expected that of all lines (sampling." +
                       std::string(key) + ") or nothing" + keep);
  }
  if (const auto run = of_run(options_, key)) {
    if (!repeats(parse(member), *run)) {
      refuse(member, "cannot be a line's own: expected that of all lines (sampling." +
                         std::string(key) + ") or nothing" + keep);
    }
  } else if (contains(media, key)) {
    if (!is_empty(parse(member)))
      refuse(member, "cannot be honoured: " + options_.no_media + "; expected nothing");
  } else if (key == agent) {
    const Json value = parse(member);
    if (!is_empty(value) && value != plain_agent)
      refuse(member, "cannot be honoured: no agent runs, and no tool; expected '" +
                         std::string(plain_agent) + "' or nothing");
  } else if (contains(of_tools, key)) {
    if (!is_empty(parse(member))) ignored_.emplace_back(key);
  } else if (key == "sampling_params") {
    if (!is_empty(parse(member)))
      refuse(member,
             "cannot be honoured; expected max_tokens, temperature and so on beside the prompt" +
                 keep);
  } else if (const OtherName* other = find_other_name(key); other != nullptr && other->samples) {
    const Json value = parse(member);
    if (is_empty(value) || (other->neutral && repeats(value, *other->neutral))) return;
    std::string says(other->says);
    constexpr std::string_view section = "sampling.";  // of a configuration: a line has no sections
    for (auto at = says.find(section); at != std::string::npos; at = says.find(section))
      says.erase(at, section.size());
    refuse(member, says + keep);
  }
}

void RequestReader::honour(std::string_view key, bool differs) {
  honoured_.emplace_back(key);
  if (differs) differing_.emplace_back(key);
}

/// Reads a field about the end of a response. Returns false if it is none.
bool RequestReader::read_ends(const Member& member, std::string_view key) {
  const auto take = [&](void (RequestReader::*set)(const Member&, const Json&)) {
    (this->*set)(member, parse(member));
    const bool length = key == "max_tokens";
    honour(key, !length || own_.max_tokens != options_.sampling.max_tokens);
    if (!length) stops_ = member;
    return true;
  };
  if (key == "max_tokens") return take(&RequestReader::read_max_tokens);
  if (key == "stop_ids") return take(&RequestReader::read_stop_ids);
  if (key != "stop_strings" && key != "stop") return false;
  if (key == "stop" && is_empty(parse(member))) return true;  // as other engines have it: nothing
  if (contains(honoured_, "stop_strings") || contains(honoured_, "stop"))
    refuse(member, "expected stop or stop_strings, which mean the same, found both");
  return take(&RequestReader::read_stop_strings);
}

/// Reads a field about how tokens are drawn. Returns false if it is none. A value equal to the
/// run's changes nothing, but counts as honoured: another configuration may score the responses.
bool RequestReader::read_draw(const Member& member, std::string_view key) {
  const auto differs = [&](double run) {
    const bool own = !repeats(parse(member), run);
    honour(key, own);
    draws_ = draws_ || own;
    return own;
  };
  for (const DrawNumber& number : draw_numbers) {
    if (key != number.key) continue;
    if (differs(options_.sampling.*number.value))
      own_.*number.value = read_number(member, number.range.words, number.range.valid);
    return true;
  }
  if (key == "top_k") {
    if (differs(options_.sampling.top_k)) read_top_k(member, parse(member));
    return true;
  }
  if (key == "logit_bias") {
    const Json value = parse(member);
    const bool clears = value.is_object() && !options_.sampling.logit_bias.empty();
    if (is_empty(value) && !clears) return true;
    read_logit_bias(member, value);
    honour(key);
    return true;
  }
  if (key == "seed") {
    const Json value = parse(member);
    if (!value.is_number_unsigned())
      refuse(member, "expected a whole number, at least 0, found " + shown(value));
    if (value.get<std::uint64_t>() == options_.sampling.seed) return true;
    own_.seed = value.get<std::uint64_t>();
    honour(key);
    return true;
  }
  return false;
}

bool RequestReader::read_samples(const Member& member, std::string_view key) {
  if (key != "samples" && key != "n") return false;
  const std::int64_t samples = whole_number(member, parse(member), 1, kMostSamples);
  if (samples_ > 0) refuse(member, "expected samples or n, which mean the same, found both");
  samples_ = static_cast<std::uint32_t>(samples);
  if (std::cmp_not_equal(samples_, options_.samples)) honour(key);
  return true;
}

float RequestReader::read_number(const Member& member, std::string_view words,
                                 bool (*valid)(float)) {
  const Json value = parse(member);
  const float number = value.is_number() ? value.get<float>() : std::nanf("");
  if (!std::isfinite(number) || !valid(number))
    refuse(member, "expected " + std::string(words) + ", found " + shown(value));
  return number == 0 ? 0.0F : number;  // -0 is 0
}

void RequestReader::read_logit_bias(const Member& member, const Json& value) {
  const auto expected = [&](const std::string& found) {
    refuse(member, "expected " + Biases::type() + ", found " + found);
  };
  if (!value.is_object()) expected(shown(value));
  own_.logit_bias.clear();
  for (const auto& [token, bias] : value.items()) {
    const std::optional<TokenId> id = Biases::token_of(token);
    if (!id) expected("the id '" + token + "'");
    if (vocab_ > 0 && *id >= vocab_)
      refuse(member, "expected token ids up to " + std::to_string(vocab_ - 1) + ", found " + token);
    if (!bias.is_number() || !kBias.valid(bias.get<float>()))
      expected(shown(bias) + " for " + token);
    own_.logit_bias.push_back({*id, bias.get<float>()});
  }
  Biases::sort(own_.logit_bias);
}

/// If masks are kept, they have room only for the run's top_k.
void RequestReader::read_top_k(const Member& member, const Json& value) {
  const bool masks = options_.sampling.keep_masks;
  const std::int32_t most =
      masks ? options_.sampling.top_k : std::numeric_limits<std::int32_t>::max();
  own_.top_k = static_cast<std::int32_t>(
      whole_number(member, value, masks ? 1 : 0, most,
                   masks ? ", for sampling.keep_masks has room for sampling.top_k" : ""));
}

void RequestReader::read_max_tokens(const Member& member, const Json& value) {
  const auto tokens = static_cast<std::int32_t>(whole_number(member, value, 1, kMostTokens));
  if (tokens < own_.min_tokens) {
    refuse(member, "expected at least sampling.min_tokens (" + std::to_string(own_.min_tokens) +
                       "), found " + value.dump());
  }
  if (options_.context > 0 && tokens >= options_.context) {
    refuse(member, value.dump() + " leaves no room for a prompt in the model's context of " +
                       std::to_string(options_.context) +
                       " tokens; lower it, or set prompts.max_prompt_tokens (responses then end "
                       "where the context does)");
  }
  own_.max_tokens = tokens;
}

void RequestReader::read_stop_ids(const Member& member, const Json& value) {
  const std::int64_t end = vocab_ > 0 ? vocab_ : std::int64_t{1} << 31;
  const auto is_id = [end](const Json& id) {
    return id.is_number_unsigned() && id.get<std::uint64_t>() < static_cast<std::uint64_t>(end);
  };
  if (const std::string found = not_a_list_of(value, is_id); !found.empty())
    refuse(member,
           "expected a list of token ids (0 to " + std::to_string(end - 1) + "), found " + found);
  value.get_to(own_.stop_ids);
}

void RequestReader::read_stop_strings(const Member& member, const Json& value) {
  const auto is_text = [](const Json& text) {
    return text.is_string() && !text.get_ref<const std::string&>().empty();
  };
  const bool one = member.key == "stop" && is_text(value);
  const Json texts = one ? Json::array({value}) : value;
  if (const std::string found = not_a_list_of(texts, is_text); !found.empty())
    refuse(member, std::string("expected ") + (member.key == "stop" ? "a text or " : "") +
                       "a list of non-empty texts, found " + found);
  if (!has_text_ && !texts.empty())
    refuse(member, "needs the text of tokens, and there is no tokenizer");
  texts.get_to(own_.stop_strings);
}

RequestSampling RequestReader::sampling() const {
  RequestSampling sampling;
  if (contains(honoured_, "max_tokens")) sampling.max_tokens = own_.max_tokens;
  if (draws_) sampling.draw = own_.draw();
  if (contains(honoured_, "logit_bias")) sampling.logit_bias = own_.logit_bias;
  if (contains(honoured_, "seed")) sampling.seed = own_.seed;
  if (contains(honoured_, "stop_ids") || contains(honoured_, "stop_strings") ||
      contains(honoured_, "stop")) {
    sampling.stops =
        StopSet{options_.stops ? options_.stops(own_) : own_.stop_ids, own_.stop_strings};
    if (vocab_ > 0 && own_.min_tokens > 0 &&
        std::ssize(banned_early(own_, sampling.stops->ids)) >= vocab_)
      refuse(stops_,
             "with the model's end tokens and the masked ones these are all there are, so that no "
             "token could be sampled before sampling.min_tokens (" +
                 std::to_string(own_.min_tokens) + ")");
  }
  return sampling;
}

}  // namespace text

RequestSampling stored_sampling(const Prompt& prompt, std::span<const std::string> fields,
                                const RequestOptions& options, std::int32_t vocab) {
  if (fields.empty()) return {};
  try {
    text::RequestReader reader(options, vocab, true);
    for (const text::Member& member : text::split_object(prompt.extra_json)) {
      if (text::contains(fields, member.key)) reader.read(member, member.key);
    }
    return reader.sampling();
  } catch (const text::LineError& error) {
    throw DataError("prompt '" + prompt.uid + "': " + error.message);
  }
}

}  // namespace paceline::io
