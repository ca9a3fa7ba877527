// A byte-level tokenizer of 256 bytes and a few merges, as JSON to be bent by tests.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "io/text/byte_level.hpp"

namespace tiny {

/// Ids 0..255 are the bytes; 256 "he", 257 "ll", 258 "hell", 259 "hello"; added tokens from 260:
/// "<bos>" (special), "<end>" (special), "<tag>".
inline nlohmann::json document() {
  using nlohmann::json;
  json vocab;
  for (int b = 0; b < 256; ++b) {
    vocab[paceline::io::text::characters_of_bytes(std::string(1, static_cast<char>(b)))] = b;
  }
  vocab["he"] = 256;
  vocab["ll"] = 257;
  vocab["hell"] = 258;
  vocab["hello"] = 259;
  const auto added = [](int id, const char* content, bool special) {
    return json{{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", special}};
  };
  return {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens",
       {added(260, "<bos>", true), added(261, "<end>", true), added(262, "<tag>", false)}},
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single",
         {{{"SpecialToken", {{"id", "<bos>"}, {"type_id", 0}}}},
          {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
        {"pair", json::array()},
        {"special_tokens", {{"<bos>", {{"id", "<bos>"}, {"ids", {260}}, {"tokens", {"<bos>"}}}}}}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", false},
        {"vocab", vocab},
        {"merges", {"h e", "l l", "he ll", "hell o"}}}}};
}

}  // namespace tiny
