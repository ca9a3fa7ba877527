#include "io/config/path_text.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace paceline::io {
namespace {

bool begins_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool in_name(char c) { return begins_name(c) || std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// The name after a dollar sign, with its braces; empty: there is none.
std::string_view variable_at(std::string_view text) {
  const bool braced = text.starts_with('{');
  const std::string_view from = text.substr(braced ? 1 : 0);
  const auto end = std::find_if_not(from.begin(), from.end(), in_name);
  const auto length = static_cast<std::size_t>(end - from.begin());
  if (length == 0 || !begins_name(from.front())) return {};
  if (!braced) return text.substr(0, length);
  return end != from.end() && *end == '}' ? text.substr(0, length + 2) : std::string_view();
}

}  // namespace

ExpandedPath expand_path(std::string_view text) {
  ExpandedPath expanded;
  const auto put = [&expanded](const std::string& name) {
    const char* value = std::getenv(name.c_str());
    const bool missing = value == nullptr || *value == '\0';
    if (missing && expanded.fault.empty())
      expanded.fault = "the environment has no " + name + " ($$ is a dollar sign)";
    if (!missing) expanded.path += value;
  };
  std::size_t at = 0;
  if (text == "~" || text.starts_with("~/")) {
    put("HOME");
    at = 1;
  }
  while (at < text.size()) {
    const std::string_view rest = text.substr(at);
    if (rest.starts_with("$$")) {
      expanded.path += '$';
      at += 2;
      continue;
    }
    const std::string_view variable =
        rest.front() == '$' ? variable_at(rest.substr(1)) : std::string_view();
    if (variable.empty()) {
      expanded.path += rest.front();
      ++at;
      continue;
    }
    const bool braced = variable.front() == '{';
    put(std::string(braced ? variable.substr(1, variable.size() - 2) : variable));
    at += 1 + variable.size();
  }
  return expanded;
}

std::string path_text(std::string_view path) {
  std::string text;
  for (const char c : path) text += c == '$' ? "$$" : std::string(1, c);
  return text;
}

}  // namespace paceline::io
