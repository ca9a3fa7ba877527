// Bytes as a safetensors file, and once more as the header of a well-formed frame around them, so
// that the fuzzer need not guess lengths.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "io/checkpoint/safetensors.hpp"
#include "runtime/core/error.hpp"

using paceline::DataError;
using namespace paceline::io;

namespace {

void parse(std::span<const std::byte> file) {
  try {
    const SafetensorsHeader header = parse_safetensors(file, "fuzz");
    std::uint64_t next = header.data_begin;
    for (const StoredTensor& tensor : header.tensors) {
      if (tensor.begin != next || tensor.end < tensor.begin || tensor.type == nullptr) std::abort();
      next = tensor.end;
    }
    if (next != file.size()) std::abort();
  } catch (const DataError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  parse(bytes);
  if (size == 0) return 0;
  // The first byte says how much data follows the header.
  std::string framed(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) framed[i] = static_cast<char>((size - 1) >> (8 * i) & 0xFF);
  framed.append(reinterpret_cast<const char*>(data) + 1, size - 1);
  framed.append(data[0], 'x');
  parse(std::as_bytes(std::span(framed)));
  return 0;
}
