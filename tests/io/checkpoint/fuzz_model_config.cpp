// Bytes as config.json, and what follows a NUL as generation_config.json. What is accepted must be
// a model that can be sized.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "io/checkpoint/model_config_reader.hpp"
#include "runtime/core/error.hpp"
#include "runtime/model/families/families.hpp"

using paceline::DataError;
using namespace paceline::io;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t split = std::min(input.find('\0'), input.size());
  try {
    const paceline::ModelConfig model =
        parse_model_config(model::families(), input.substr(0, split), "config.json",
                           input.substr(std::min(split + 1, size)), "generation_config.json");
    if (model.heads % model.kv_heads != 0 || model.head_dim % 2 != 0) std::abort();
    if (model.segments() < 1 || model.segments() > model.kv_heads) std::abort();
    std::int64_t elements = 0;
    for (const ExpectedTensor& tensor : expected_tensors(describe(model))) {
      std::int64_t product = 1;
      for (const std::int64_t dimension : tensor.shape) product *= dimension;
      elements += product;
    }
    if (elements <= 0) std::abort();
  } catch (const DataError&) {
  }
  return 0;
}
