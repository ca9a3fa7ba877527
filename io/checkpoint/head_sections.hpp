// config.json of a published head. SafeAILab, z-lab, SpecForge and SGLang write it as one object;
// vLLM's speculators put the layers into an object of their own. Private to this folder.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/json_section.hpp"
#include "runtime/core/head_config.hpp"

namespace paceline::io {

/// The objects of a file, and what is read in the same way whatever the kind of head. Errors are
/// JsonSection's.
class HeadSections {
 public:
  /// Parses `text`. `name`: the file in messages; must outlive this object. `own`: key of the
  /// object that holds further keys of this kind of head; it may be absent.
  HeadSections(std::string_view text, const std::string& name, const char* own);
  HeadSections(const HeadSections&) = delete;
  HeadSections& operator=(const HeadSections&) = delete;

  [[nodiscard]] const JsonSection& head() const { return head_; }    ///< the whole file
  [[nodiscard]] const JsonSection& layer() const { return layer_; }  ///< may be the same
  [[nodiscard]] const JsonSection& own() const { return own_; }      ///< empty if absent
  /// Whether the layers have an object of their own.
  [[nodiscard]] bool nested() const { return nested_; }

  /// Throws unless the class that the file names, if any, is one of these.
  void require_class(std::span<const std::string_view> names) const;
  /// The kind that speculators name; absent in other files. Throws unless it is one of these.
  std::optional<std::string> kind(std::span<const std::string_view> kinds) const;
  /// Reads sizes, rotary embedding and epsilon of the layers, and the vocabulary. Throws on what no
  /// head here has: biases, windows, quantisation, a scale of logits.
  void read_layer(PublishedHead& head) const;

  /// A key of the whole file or of the layers' object. If both have it, the values must be the
  /// same.
  [[nodiscard]] std::optional<std::int32_t> integer(const char* key, std::int32_t low,
                                                    std::int32_t high) const;
  [[nodiscard]] std::optional<bool> flag(const char* key) const;
  [[nodiscard]] static std::optional<bool> flag(const JsonSection& section, const char* key);

  /// Ids of the target's layers, with `more` added to each; empty: the key is absent. Throws unless
  /// they ascend.
  [[nodiscard]] static std::vector<std::int32_t> layer_ids(const JsonSection& section,
                                                           const char* key, std::int32_t more);

 private:
  void check_full_attention() const;

  nlohmann::json root_;
  nlohmann::json none_ = nlohmann::json::object();
  JsonSection head_;
  bool nested_;
  JsonSection layer_;
  JsonSection own_;
};

}  // namespace paceline::io
