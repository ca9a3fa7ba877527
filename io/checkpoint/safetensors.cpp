#include "io/checkpoint/safetensors.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "io/checkpoint/json_text.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

using nlohmann::json;

constexpr std::uint64_t max_header = 100'000'000;  // bytes; the limit of the reference reader

constexpr std::array<StoredType, 20> stored_types{{
    {"BF16", 16, DType::bf16}, {"F16", 16, DType::f16}, {"F32", 32, DType::f32},
    {"BOOL", 8, {}},           {"U8", 8, {}},           {"I8", 8, {}},
    {"U16", 16, {}},           {"I16", 16, {}},         {"U32", 32, {}},
    {"I32", 32, {}},           {"U64", 64, {}},         {"I64", 64, {}},
    {"F64", 64, {}},           {"C64", 64, {}},         {"F8_E4M3", 8, DType::f8},
    {"F8_E5M2", 8, {}},        {"F8_E8M0", 8, {}},      {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},        {"F4", 4, {}},
}};

// Reads one file's header, and holds the names that every message needs.
class HeaderParser {
 public:
  HeaderParser(std::span<const std::byte> file, std::string_view name) : file_(file), name_(name) {}

  SafetensorsHeader parse() {
    SafetensorsHeader header;
    header.data_begin = 8 + header_length();
    data_size_ = file_.size() - header.data_begin;
    const json root =
        parse_json({reinterpret_cast<const char*>(file_.data()) + 8, header.data_begin - 8},
                   name_ + ": header");
    if (!root.is_object()) fail("header: expected an object, found " + show_json(root));
    for (const auto& [tensor, entry] : root.items()) {
      if (tensor == "__metadata__") {
        header.metadata = metadata(entry);
      } else {
        header.tensors.push_back(parse_tensor(tensor, entry, header.data_begin));
      }
    }
    check_tiling(header);
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw DataError(name_ + ": " + what); }
  [[noreturn]] void fail_tensor(const std::string& tensor, const std::string& what) const {
    fail("tensor " + show_text(tensor) + ": " + what);
  }

  [[nodiscard]] std::uint64_t header_length() const {
    if (file_.size() < 8) {
      fail("expected a safetensors file of at least 8 bytes, found " +
           std::to_string(file_.size()));
    }
    std::uint64_t length = 0;
    for (std::size_t i = 8; i-- > 0;)
      length = length << 8 | std::to_integer<std::uint64_t>(file_[i]);
    if (length < 2 || length > max_header) {
      fail("header length: expected 2 to " + std::to_string(max_header) + " bytes, found " +
           std::to_string(length) + " (is this a safetensors file?)");
    }
    if (length > file_.size() - 8) {
      fail("truncated: the header is " + std::to_string(length) + " bytes long, found " +
           std::to_string(file_.size() - 8));
    }
    if (std::to_integer<char>(file_[8]) != '{') {
      fail("header: expected '{' first (is this a safetensors file?)");
    }
    return length;
  }

  [[nodiscard]] std::map<std::string, std::string> metadata(const json& entry) const {
    if (!entry.is_object()) {
      fail("header: __metadata__: expected an object, found " + show_json(entry));
    }
    std::map<std::string, std::string> pairs;
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) {
        fail("header: __metadata__: " + show_text(key) + ": expected text, found " +
             show_json(value));
      }
      pairs.emplace(key, value.get<std::string>());
    }
    return pairs;
  }

  [[nodiscard]] StoredTensor parse_tensor(const std::string& tensor, const json& entry,
                                          std::uint64_t data_begin) const {
    if (!entry.is_object()) fail_tensor(tensor, "expected an object, found " + show_json(entry));
    for (const auto& [key, value] : entry.items()) {
      if (key != "dtype" && key != "shape" && key != "data_offsets") {
        fail_tensor(tensor, "expected dtype, shape and data_offsets, found " + show_text(key));
      }
    }
    StoredTensor stored;
    stored.name = tensor;
    stored.type = &find_type(tensor, member(tensor, entry, "dtype"));
    const std::uint64_t size = parse_shape(tensor, entry, stored);
    const json& offsets = member(tensor, entry, "data_offsets");
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned()) {
      fail_tensor(tensor, "data_offsets: expected two whole numbers, found " + show_json(offsets));
    }
    const auto begin = offsets[0].get<std::uint64_t>();
    const auto end = offsets[1].get<std::uint64_t>();
    if (begin > end) {
      fail_tensor(tensor, "data_offsets: expected begin <= end, found " + show_json(offsets));
    }
    if (end > data_size_) {
      fail_tensor(tensor, "data_offsets: " + show_json(offsets) + " end beyond the file's " +
                              std::to_string(data_size_) + " bytes of data (is it truncated?)");
    }
    if (end - begin != size) {
      fail_tensor(tensor, "data_offsets: expected " + std::to_string(size) + " bytes for shape " +
                              show_json(entry["shape"]) + " of " + std::string(stored.type->name) +
                              ", found " + std::to_string(end - begin));
    }
    stored.begin = data_begin + begin;
    stored.end = data_begin + end;
    return stored;
  }

  [[nodiscard]] const json& member(const std::string& tensor, const json& entry,
                                   const char* key) const {
    const auto found = entry.find(key);
    if (found == entry.end()) fail_tensor(tensor, std::string(key) + " is missing");
    return *found;
  }

  [[nodiscard]] const StoredType& find_type(const std::string& tensor, const json& value) const {
    std::array<std::string_view, stored_types.size()> names;
    for (std::size_t i = 0; i < stored_types.size(); ++i) {
      names[i] = stored_types[i].name;
      if (value.is_string() && value.get_ref<const std::string&>() == names[i]) {
        return stored_types[i];
      }
    }
    std::string_view near;
    if (value.is_string()) {
      near =
          nearest_name(std::string_view(value.get_ref<const std::string&>()).substr(0, 64), names);
    }
    fail_tensor(tensor, "dtype: expected a type of the safetensors format, found " +
                            show_json(value) +
                            (near.empty() ? "" : "; did you mean " + std::string(near) + "?"));
  }

  // Fills stored.shape; returns the tensor's size in bytes.
  [[nodiscard]] std::uint64_t parse_shape(const std::string& tensor, const json& entry,
                                          StoredTensor& stored) const {
    const json& shape = member(tensor, entry, "shape");
    if (!shape.is_array()) {
      fail_tensor(tensor, "shape: expected a list of sizes, found " + show_json(shape));
    }
    constexpr std::uint64_t max_dimension = std::numeric_limits<std::int64_t>::max();
    std::uint64_t bits = stored.type->bits;
    for (const json& dimension : shape) {
      if (!dimension.is_number_unsigned() || dimension.get<std::uint64_t>() > max_dimension) {
        fail_tensor(tensor, "shape: expected sizes from 0 to 2^63 - 1, found " + show_json(shape));
      }
      const auto size = dimension.get<std::uint64_t>();
      if (__builtin_mul_overflow(bits, size, &bits)) {
        fail_tensor(tensor, "shape: " + show_json(shape) + " of " + std::string(stored.type->name) +
                                " is more than 2^61 bytes");
      }
      stored.shape.push_back(static_cast<std::int64_t>(size));
    }
    if (bits % 8 != 0) {
      fail_tensor(tensor, "shape: " + show_json(shape) + " of " + std::string(stored.type->name) +
                              " is not a whole number of bytes");
    }
    return bits / 8;
  }

  // Sorts the tensors by their bytes and checks that they fill the data without gap or overlap.
  void check_tiling(SafetensorsHeader& header) const {
    std::ranges::sort(header.tensors, {},
                      [](const StoredTensor& t) { return std::tie(t.begin, t.end, t.name); });
    std::uint64_t next = header.data_begin;
    const StoredTensor* previous = nullptr;
    for (const StoredTensor& tensor : header.tensors) {
      if (tensor.begin != next) {
        const std::string after =
            previous == nullptr ? "the header" : "tensor " + show_text(previous->name);
        fail_tensor(tensor.name,
                    std::string(tensor.begin < next ? "overlaps " : "leaves a gap after ") + after +
                        ": expected to begin at byte " + std::to_string(next - header.data_begin) +
                        ", found " + std::to_string(tensor.begin - header.data_begin));
      }
      next = tensor.end;
      previous = &tensor;
    }
    if (next != file_.size()) {
      fail("expected " + std::to_string(next - header.data_begin) +
           " bytes of data by the header, found " + std::to_string(data_size_));
    }
  }

  std::span<const std::byte> file_;
  std::string name_;
  std::uint64_t data_size_ = 0;
};

}  // namespace

SafetensorsHeader parse_safetensors(std::span<const std::byte> file, std::string_view name) {
  return HeaderParser(file, name).parse();
}

}  // namespace paceline::io
