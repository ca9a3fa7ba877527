// Reading the fixtures that make_tokenizer_fixtures.py writes.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "io/text/chat_template.hpp"
#include "io/text/files.hpp"

namespace fixtures {

inline std::string folder() { return PACELINE_SOURCE_DIR "/tests/io/text/fixtures/"; }

/// The unpacked bytes of a gzip file.
inline std::string read_gzip(const std::string& path) {
  const gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) throw std::runtime_error(path + ": cannot be opened");
  std::string bytes;
  char buffer[1U << 16U];
  int got = 0;
  while ((got = gzread(file, buffer, sizeof buffer)) > 0) {
    bytes.append(buffer, static_cast<std::size_t>(got));
  }
  gzclose(file);
  if (got < 0) throw std::runtime_error(path + ": cannot be unpacked");
  return bytes;
}

/// One of the templates of chat.json.
inline paceline::io::ChatTemplate chat(const std::string& name) {
  const auto document =
      nlohmann::json::parse(paceline::io::text::read_file(folder() + "chat.json"));
  for (const auto& c : document["cases"]) {
    if (c["name"] != name) continue;
    return paceline::io::ChatTemplate::recognise(c["template"].get<std::string>(),
                                                 c["bos"].get<std::string>(), name,
                                                 c["eos"].get<std::string>());
  }
  throw std::runtime_error("chat.json has no template " + name);
}

/// Little-endian integers and bytes, front to back.
class Reader {
 public:
  explicit Reader(std::string bytes) : bytes_(std::move(bytes)) {}
  [[nodiscard]] bool done() const { return at_ == bytes_.size(); }
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view take(std::size_t n) {
    if (bytes_.size() - at_ < n) throw std::runtime_error("a fixture ends early");
    at_ += n;
    return std::string_view(bytes_).substr(at_ - n, n);
  }

 private:
  std::string bytes_;
  std::size_t at_ = 0;
};

/// The lines of a corpus: [u32 bytes][UTF-8].
inline std::vector<std::string> lines(const std::string& name) {
  Reader reader(read_gzip(folder() + name + ".gz"));
  std::vector<std::string> all;
  while (!reader.done()) all.emplace_back(reader.take(reader.number<std::uint32_t>()));
  return all;
}

}  // namespace fixtures
