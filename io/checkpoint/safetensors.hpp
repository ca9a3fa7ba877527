// The safetensors file format: an 8-byte little-endian header length, a JSON header that names each
// tensor's dtype, shape and byte range, then the bytes. Parsing reads only the header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/types.hpp"

namespace paceline::io {

/// An element type of the format. Names and sizes are the format's own.
struct StoredType {
  std::string_view name;       ///< as in the header: "BF16", "F32", "I64", ...
  std::uint32_t bits = 0;      ///< bits of one element
  std::optional<DType> dtype;  ///< type in the runtime; nullopt: weights cannot have it
};

/// One entry of the header. Offsets are bytes from the start of the file.
struct StoredTensor {
  std::string name;
  const StoredType* type = nullptr;  ///< points into a static table
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::uint64_t data_begin = 0;       ///< bytes from the start of the file: 8 + header length
  std::vector<StoredTensor> tensors;  ///< in the order of their bytes
  std::map<std::string, std::string> metadata;  ///< "__metadata__"; empty: it is absent
};

/// Parses and checks the header of a file with these bytes: its length, its JSON (no duplicate
/// keys), dtype names, and that shape x dtype equals the byte range without overflow. Tensors must
/// tile the rest of the file exactly: in range, without overlap, gap or bytes left over. `name`:
/// the file in messages. Throws DataError naming file, tensor, the expected and the found value.
/// Thread-safe.
[[nodiscard]] SafetensorsHeader parse_safetensors(std::span<const std::byte> file,
                                                  std::string_view name);

}  // namespace paceline::io
