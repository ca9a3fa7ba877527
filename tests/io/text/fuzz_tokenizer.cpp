// Fuzzes the readers of tokenizer.json and tiktoken.model, then encodes and decodes with what
// loads.
//
// An input is JSON, perhaps followed by a NUL and a text to encode. JSON that starts with '~' is a
// merge patch to a small tokenizer on bytes, with '^' to one of characters and with '=' a
// tokenizer_config.json beside the former, so that mutations reach past the 256 bytes every
// vocabulary must have. What starts with '#' is the end of a tiktoken.model, after its bytes.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "io/config/utf8.hpp"
#include "io/text/tokenizer.hpp"
#include "runtime/core/error.hpp"
#include "tests/io/text/tiny_tokenizer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using paceline::io::Tokenizer;
  static const nlohmann::json on_bytes = tiny::document();
  static const nlohmann::json of_characters = tiny::characters();
  std::string_view input(reinterpret_cast<const char*>(data), size);
  std::string text = "<bos> hello  world's 123\n<tag>";
  if (const std::size_t nul = input.find('\0'); nul != std::string_view::npos) {
    text = input.substr(nul + 1);
    input = input.substr(0, nul);
  }
  std::string document(input);
  paceline::io::TokenizerFiles files;
  files.directory = "fuzz";
  if (input.starts_with('#')) {
    files.tiktoken = tiny::ranks_of_bytes().append(input.substr(1));
    files.config = R"({"tokenizer_class": "TikTokenTokenizer"})";
  } else if (input.starts_with('=')) {
    files.config = input.substr(1);
    document = on_bytes.dump();
  } else if (input.starts_with('~') || input.starts_with('^')) {
    const auto patch = nlohmann::json::parse(input.substr(1), nullptr, false);
    if (patch.is_discarded()) return 0;
    nlohmann::json patched = input.starts_with('~') ? on_bytes : of_characters;
    // Nesting that merge_patch would follow recursively is refused by the reader anyway.
    if (input.size() > 4096) return 0;
    patched.merge_patch(patch);
    document = patched.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  try {
    if (!files.tiktoken) files.tokenizer = document;
    const Tokenizer tokenizer = Tokenizer::load(files);
    const auto ids = tokenizer.encode(text, {.add_special_tokens = true});
    const std::string decoded = tokenizer.decode(ids, false);
    if (paceline::io::find_invalid_utf8(decoded) != std::string::npos) std::abort();
    for (const auto id : ids) {
      if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
      (void)tokenizer.bytes_of(id);
    }
  } catch (const paceline::DataError&) {
    // The expected answer to a bad file.
  }
  return 0;
}
