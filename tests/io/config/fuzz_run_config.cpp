// Bytes as a configuration; what follows a NUL is one override each. Whatever is accepted must
// write itself out and read back to the same text.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "io/config/quantity.hpp"
#include "io/config/run_config.hpp"
#include "io/config/utf8.hpp"
#include "io/config/yaml_tree.hpp"
#include "runtime/core/error.hpp"

using paceline::UsageError;
using namespace paceline::io;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> parts(1);
  for (const char c : input) {
    if (c == '\0') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  (void)parse_size(input);
  (void)parse_duration(input);
  const std::vector<std::string> overrides(parts.begin() + 1, parts.end());
  try {
    const RunConfig config = parse_run_config(parts[0], "fuzz.yaml", "/base", overrides);
    const RunConfig again = parse_run_config(config.text, "again.yaml", "/elsewhere", {});
    if (again.text != config.text) std::abort();
  } catch (const UsageError&) {
  }
  try {
    const YamlNode node = parse_yaml("a: " + quote_yaml(parts[0]), "fuzz.yaml");
    if (node.entries.at(0).value.scalar != parts[0]) std::abort();
  } catch (const UsageError&) {
    if (find_invalid_utf8(parts[0]) == std::string::npos && size < 100000) std::abort();
  }
  return 0;
}
