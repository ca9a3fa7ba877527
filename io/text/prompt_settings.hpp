// Settings of the prompt reader, as a configuration has them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/optional_index.hpp"

namespace paceline::io {

/// Treatment of a prompt that leaves no room for a response in the model's context.
enum class Overlong : std::uint8_t { error, skip, truncate };  ///< truncate keeps the last tokens

/// Options for rendering messages; auto: the template's default. A prompt's line may override them.
struct ChatSettings {
  Auto<bool> enable_thinking;  ///< Qwen3
  Auto<std::string> date;      ///< Llama 3.1 to 3.3
  /// Whether an assistant's last message continues; auto: no, with a warning.
  Auto<bool> continue_final_message;
};
/// Names of fields in a prompt file that stand for these keys; auto: the same name.
struct PromptKeys {
  Auto<std::string> prompt;
  Auto<std::string> messages;
  Auto<std::string> prompt_tokens;
  Auto<std::string> uid;
  Auto<std::string> ground_truth;

  struct Named {
    std::string_view key;
    std::string_view field;  ///< name of the field in the file
  };
  /// The fields that are not auto, as views into this.
  [[nodiscard]] std::vector<Named> named() const {
    std::vector<Named> all;
    const auto add = [&](std::string_view key, const Auto<std::string>& field) {
      if (field) all.push_back({key, *field});
    };
    add("prompt", prompt);
    add("messages", messages);
    add("prompt_tokens", prompt_tokens);
    add("uid", uid);
    add("ground_truth", ground_truth);
    return all;
  }
};

}  // namespace paceline::io
