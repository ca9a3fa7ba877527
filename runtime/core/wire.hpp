// Serialisation of messages between ranks of one program: plain values, texts and vectors of them,
// in order. No versioning: all ranks run the same executable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace paceline {

/// Whether a value's bytes are all of it. Those that only refer to data elsewhere would be right in
/// simulation, where ranks share an address space.
template <typename T>
concept Plain = std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> &&
                !std::is_convertible_v<T, std::string_view> && !requires(T & t) {
  t.data();
};

class WireWriter {
 public:
  WireWriter() { bytes_.reserve(kUsual); }
  template <Plain T>
  void put(const T& value) {
    append(&value, sizeof value);
  }
  template <Plain T>
  void put(const std::vector<T>& values) {
    put(static_cast<std::uint64_t>(values.size()));
    append(values.data(), values.size() * sizeof(T));
  }
  void put(const std::string& text) {
    put(static_cast<std::uint64_t>(text.size()));
    append(text.data(), text.size());
  }
  void put(const std::vector<std::string>& texts) {
    put(static_cast<std::uint64_t>(texts.size()));
    for (const std::string& text : texts) put(text);
  }
  /// Puts several values, one after another.
  template <typename... Values>
  void put_all(const Values&... values) {
    (put(values), ...);
  }
  [[nodiscard]] std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  static constexpr std::size_t kUsual = 512;  ///< bytes that few messages exceed

  void append(const void* data, std::size_t size) {
    const auto* bytes = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), bytes, bytes + size);
  }
  std::vector<std::byte> bytes_;
};

/// Reads the bytes of a WireWriter in the same order. A short message is a fault of the program.
class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <Plain T>
  void get(T& value) {
    extract(&value, sizeof value);
  }
  template <Plain T>
  void get(std::vector<T>& values) {
    values.resize(count(sizeof(T)));
    extract(values.data(), values.size() * sizeof(T));
  }
  void get(std::string& text) {
    text.resize(count(1));
    extract(text.data(), text.size());
  }
  void get(std::vector<std::string>& texts) {
    texts.resize(count(sizeof(std::uint64_t)));  // each text has at least the bytes of its size
    for (std::string& text : texts) get(text);
  }
  template <typename... Values>
  void get_all(Values&... values) {
    (get(values), ...);
  }
  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  /// The number of elements that follow, each of so many bytes at least.
  [[nodiscard]] std::size_t count(std::size_t element) {
    std::uint64_t value = 0;
    get(value);
    if (value > bytes_.size() / element) throw std::logic_error("message shorter than it says");
    return value;
  }

 private:
  void extract(void* data, std::size_t size) {
    if (size > bytes_.size()) throw std::logic_error("message shorter than it says");
    if (size != 0) std::memcpy(data, bytes_.data(), size);
    bytes_ = bytes_.subspan(size);
  }
  std::span<const std::byte> bytes_;
};

}  // namespace paceline
