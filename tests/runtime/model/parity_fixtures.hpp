// The small random checkpoints of tests/models/parity, and others of its kind.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace paceline::test {

/// Where the tree is now, which PACELINE_ROOT tells an installed test.
inline std::filesystem::path source_tree() {
  const char* root = std::getenv("PACELINE_ROOT");
  return root != nullptr ? root : PACELINE_SOURCE_DIR;
}
inline std::vector<std::filesystem::path> fixtures(const std::string& folder) {
  const std::filesystem::path all = source_tree() / "tests/models" / folder;
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(all)) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}
inline std::vector<std::filesystem::path> parity_fixtures() { return fixtures("parity"); }

}  // namespace paceline::test
