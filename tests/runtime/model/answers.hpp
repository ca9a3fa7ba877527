// What transformers computed of a small random checkpoint.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "io/checkpoint/safetensors.hpp"

namespace paceline::test {

/// The fp32 tensors of a file of answers.
class Answers {
 public:
  explicit Answers(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    bytes_.resize(text.size() / sizeof(float) + 1);
    std::memcpy(bytes_.data(), text.data(), text.size());
    const std::span<const std::byte> view(reinterpret_cast<const std::byte*>(bytes_.data()),
                                          text.size());
    header_ = io::parse_safetensors(view, path.string());
  }
  [[nodiscard]] const float* find(const std::string& name) const {
    return bytes_.data() + tensor(name).begin / sizeof(float);
  }
  [[nodiscard]] const std::vector<std::int64_t>& shape(const std::string& name) const {
    return tensor(name).shape;
  }

 private:
  [[nodiscard]] const io::StoredTensor& tensor(const std::string& name) const {
    for (const io::StoredTensor& each : header_.tensors)
      if (each.name == name) return each;
    throw std::out_of_range(name);
  }

  std::vector<float> bytes_;
  io::SafetensorsHeader header_;
};

}  // namespace paceline::test
