// The picture fixtures (make_fixtures.py).
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "io/images/picture.hpp"

namespace paceline::io {

inline std::string read_fixture(const std::string& name) {
  const std::filesystem::path folder = PACELINE_SOURCE_DIR "/tests/io/images";
  std::ifstream file(folder / name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline nlohmann::json read_json(const std::string& name) {
  return nlohmann::json::parse(read_fixture(name));
}

inline Picture decode(const std::string& file, const PictureLimits& limits = {}) {
  return decode_picture(std::as_bytes(std::span(file)), "a.file", limits);
}

}  // namespace paceline::io
