// The codec of a map whose keys are fields of a struct.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "io/config/codecs.hpp"
#include "io/config/yaml_record.hpp"

namespace paceline::io {

/// A key of the map.
template <typename T>
struct Member {
  std::string_view name;
  std::string type;
  std::function<void(T&, const YamlNode&, const std::string& directory)> read;
  std::function<std::string(const T&)> write;
  std::string_view help;
};

template <typename T, typename Value, typename Codec>
Member<T> member(std::string_view name, Value T::*field, Codec codec, std::string_view help) {
  return {name, codec.type(),
          [=](T& to, const YamlNode& node, const std::string& directory) {
            to.*field = codec.read(node, directory);
          },
          [=](const T& from) { return codec.write(from.*field); }, help};
}

/// A map of these members. Members that are left out keep their defaults.
template <typename T>
struct MapOf {
  std::vector<Member<T>> members;

  [[nodiscard]] std::string type() const {
    std::string text;
    for (const Member<T>& m : members) text += (text.empty() ? "" : ", ") + std::string(m.name);
    return "a map of " + text;
  }
  [[nodiscard]] T read(const YamlNode& node, const std::string& directory) const {
    T value;
    std::vector<Field> fields;
    for (const Member<T>& m : members)
      fields.push_back({m.name, false, [&](const YamlNode& of) { m.read(value, of, directory); }});
    try {
      read_map(node, fields);
    } catch (BadValue& bad) {
      if (!bad.part.empty()) bad.part = "." + bad.part;
      throw;
    }
    return value;
  }
  [[nodiscard]] std::string write(const T& value) const {
    std::string text;
    for (const Member<T>& m : members)
      text += (text.empty() ? "{" : ", ") + std::string(m.name) + ": " + m.write(value);
    return text + "}";
  }
  [[nodiscard]] std::vector<std::string> details() const {
    std::vector<std::string> lines;
    for (const Member<T>& m : members)
      lines.push_back(std::string(m.name) + ": " + m.type + ". " + std::string(m.help));
    return lines;
  }
};

}  // namespace paceline::io
