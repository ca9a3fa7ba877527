// The small random checkpoints of tests/models/parity.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

namespace paceline::test {

/// Where the tree is now, which PACELINE_ROOT tells an installed test.
inline std::vector<std::filesystem::path> parity_fixtures() {
  const char* root = std::getenv("PACELINE_ROOT");
  const std::filesystem::path all =
      std::filesystem::path(root != nullptr ? root : PACELINE_SOURCE_DIR) / "tests/models/parity";
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(all)) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

}  // namespace paceline::test
