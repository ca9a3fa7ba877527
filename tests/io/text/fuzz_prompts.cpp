// Fuzzes the reader of prompt files. The first byte chooses options. Give it
// -dict=tests/io/text/fuzz_prompts.dict, or the marks that parsers pass over are hardly ever met.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "io/text/prompts.hpp"
#include "runtime/core/error.hpp"
#include "tests/io/text/tiny_tokenizer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace paceline::io;
  static const Tokenizer tokenizer = Tokenizer::parse(tiny::document().dump(), "tiny");
  static const ChatTemplate chat = ChatTemplate::recognise(
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
      "message['content'] + '<|im_end|>\\n'}}{% endfor %}{% if add_generation_prompt %}"
      "{{ '<|im_start|>assistant\\n' }}{% endif %}",
      "", "fuzz");
  if (size == 0) return 0;
  PromptOptions options;
  options.overlong = static_cast<Overlong>(data[0] % 3);
  options.max_tokens = (data[0] & 4U) != 0 ? 5 : 0;
  options.vocab_size = (data[0] & 8U) != 0 ? 300 : 0;
  const bool text = (data[0] & 16U) != 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    const PromptSet set =
        parse_prompts(input, "fuzz", text ? &tokenizer : nullptr, text ? &chat : nullptr, options);
    for (const paceline::Prompt& prompt : set.prompts) {
      if (prompt.tokens.empty() || prompt.uid.empty()) std::abort();
      if (!nlohmann::json::accept(prompt.extra_json)) std::abort();
      if (options.max_tokens > 0 && prompt.tokens.size() > 5) std::abort();
    }
  } catch (const paceline::DataError&) {
    // The expected answer to a bad file.
  }
  return 0;
}
