// A byte-level tokenizer of 256 bytes and a few merges, as JSON to be bent by tests.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "io/text/byte_level.hpp"

namespace tiny {

/// The lines of a tiktoken.model for the 256 bytes, whose ranks they are.
inline std::string ranks_of_bytes() {
  constexpr const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string lines;
  for (unsigned b = 0; b < 256; ++b) {
    lines += {digits[b >> 2U], digits[(b & 3U) << 4U]};
    lines += "== " + std::to_string(b) + "\n";
  }
  return lines;
}

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

/// A tokenizer of characters with byte fallback, as Llama 2 is published: ids 0..2 "<unk>", "<s>",
/// "</s>" (special), 3..258 the bytes, 259 "▁", 260..263 "h", "e", "l", "o", 264 "▁hello" and what
/// it is merged of.
inline nlohmann::json characters() {
  using nlohmann::json;
  json vocab;
  const auto add = [&vocab](const std::string& token) { vocab.emplace(token, vocab.size()); };
  for (const char* token : {"<unk>", "<s>", "</s>"}) add(token);
  for (int b = 0; b < 256; ++b) {
    constexpr const char* digits = "0123456789ABCDEF";
    add({'<', '0', 'x', digits[b / 16], digits[b % 16], '>'});
  }
  for (const char* token : {"▁", "h", "e", "l", "o", "▁hello", "he", "ll", "▁he", "▁hell"}) {
    add(token);
  }
  json added;
  for (int id = 0; id < 3; ++id) {
    added.push_back({{"id", id}, {"special", true}, {"normalized", false}});
    added.back()["content"] = id == 0 ? "<unk>" : id == 1 ? "<s>" : "</s>";
  }
  const json to_space = {{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}};
  json document = tiny::document();
  document["added_tokens"] = added;
  document["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers",
       {{{"type", "Prepend"}, {"prepend", "▁"}},
        {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}}}};
  document["pre_tokenizer"] = nullptr;
  document["post_processor"]["single"][0]["SpecialToken"]["id"] = "<s>";
  document["post_processor"]["special_tokens"] = {
      {"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}};
  document["decoder"] = {{"type", "Sequence"},
                         {"decoders",
                          {to_space,
                           {{"type", "ByteFallback"}},
                           {{"type", "Fuse"}},
                           {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  json& model = document["model"];
  model["unk_token"] = "<unk>";
  model["fuse_unk"] = true;
  model["byte_fallback"] = true;
  model["vocab"] = vocab;
  model["merges"] = {"h e", "l l", "▁ he", "▁he ll", "▁hell o"};
  return document;
}

}  // namespace tiny
