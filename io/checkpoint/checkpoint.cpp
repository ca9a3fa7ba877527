#include "io/checkpoint/checkpoint.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "io/checkpoint/json_text.hpp"
#include "io/checkpoint/mapped_file.hpp"
#include "io/checkpoint/model_config_reader.hpp"
#include "io/checkpoint/safetensors.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/stored_floats.hpp"

namespace paceline::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* single_name = "model.safetensors";
constexpr const char* index_name = "model.safetensors.index.json";

// Names of the tensors that the index promises, by shard.
using ShardMap = std::map<std::string, std::set<std::string>>;

ShardMap read_index(const std::string& path) {
  const nlohmann::json root = parse_json(read_text_file(path), path);
  const auto weight_map = root.is_object() ? root.find("weight_map") : root.end();
  if (weight_map == root.end() || !weight_map->is_object() || weight_map->empty()) {
    throw DataError(path + ": expected an object with tensors in \"weight_map\", found " +
                    show_json(root));
  }
  ShardMap shards;
  for (const auto& [tensor, file] : weight_map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name == "." || name == ".." ||
        name.find_first_of(std::string_view("/\0", 2)) != std::string::npos) {
      throw DataError(path + ": tensor " + show_text(tensor) +
                      ": expected the name of a file in this directory, found " + show_json(file));
    }
    shards[name].insert(tensor);
  }
  return shards;
}

// The name that a tensor has in the first published models that read pictures. transformers 4.52
// and later save their decoders in "model.language_model", and their towers in "model.visual".
std::string first_name(const std::string& name) {
  constexpr std::string_view text = "model.language_model.";
  constexpr std::string_view visual = "model.visual.";
  if (name.starts_with(text)) return "model." + name.substr(text.size());
  if (name.starts_with(visual)) return name.substr(visual.find("visual"));
  return name;
}

// Names another known format in a directory without safetensors, and its conversion. PyTorch's own
// files are pickles, which run code when they are read.
std::string other_weights(const std::string& directory) {
  const auto first_of = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      std::error_code error;
      if (fs::exists(fs::path(directory) / name, error)) return "; there is " + std::string(name);
    }
    return std::string();
  };
  const std::string save = "A.from_pretrained(\"" + directory + "\", dtype=\"auto\")";
  if (std::string found = first_of({"pytorch_model.bin", "pytorch_model.bin.index.json"});
      !found.empty()) {
    return found +
           ", which is converted once with python3 -c 'from transformers import "
           "AutoModelForCausalLM as A; " +
           save + ".save_pretrained(\"CONVERTED\")'; copy the tokenizer's files beside it";
  }
  if (std::string found = first_of({"adapter_model.safetensors", "adapter_model.bin"});
      !found.empty()) {
    return found +
           ", a PEFT adapter alone: merge it once with python3 -c 'from peft import "
           "AutoPeftModelForCausalLM as A; " +
           save + ".merge_and_unload().save_pretrained(\"MERGED\")'";
  }
  if (std::string found = first_of({"consolidated.00.pth", "tf_model.h5"}); !found.empty())
    return found + ", which must be converted to a Hugging Face model in safetensors first";
  return "";
}

[[noreturn]] void fail_tensor(const std::string& path, std::string_view name,
                              const std::string& what) {
  throw DataError(path + ": tensor " + show_text(name) + ": " + what);
}

// A 128-bit hash of pieces, each preceded by its length.
class Hash {
 public:
  Hash() : state_(XXH3_createState()) {
    if (state_ == nullptr || XXH3_128bits_reset(state_) != XXH_OK) throw std::bad_alloc();
  }
  ~Hash() { XXH3_freeState(state_); }
  Hash(const Hash&) = delete;
  Hash& operator=(const Hash&) = delete;

  void length(std::uint64_t value) { XXH3_128bits_update(state_, &value, sizeof value); }
  void raw(std::span<const std::byte> bytes) {
    if (!bytes.empty()) XXH3_128bits_update(state_, bytes.data(), bytes.size());
  }
  void piece(std::span<const std::byte> bytes) {
    length(bytes.size());
    raw(bytes);
  }
  [[nodiscard]] std::string hex() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_);
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }

 private:
  XXH3_state_t* state_;
};

}  // namespace

struct Checkpoint::State {
  struct Shard {
    MappedFile file;
    std::uint64_t data_begin = 0;
  };
  struct IndexedTensor {
    TensorView view;  // dtype is meaningless if weights cannot have the stored type
    const StoredType* type = nullptr;
    std::size_t shard = 0;
    bool is_scales = false;  // it is the scales of an fp8 matrix
  };

  std::string directory;
  std::string index;  // path of the index; empty: there is none
  std::vector<Shard> shards;
  std::map<std::string, IndexedTensor, std::less<>> tensors;
  std::vector<std::vector<std::byte>> copies;  // tensors that are misaligned in their file
  std::uint64_t total_bytes = 0;

  // Opens one file and adds its tensors. `promised`: tensors by the index; null: there is no index.
  void add_shard(const std::string& path, const std::set<std::string>* promised) {
    shards.push_back({MappedFile(path), 0});
    const std::span<const std::byte> bytes = shards.back().file.bytes();
    const SafetensorsHeader header = parse_safetensors(bytes, path);
    shards.back().data_begin = header.data_begin;
    std::size_t found = 0;
    for (const StoredTensor& stored : header.tensors) {
      const std::string name = first_name(stored.name);
      const auto known = tensors.find(name);
      if (known != tensors.end())
        fail_tensor(path, stored.name,
                    "duplicate; it is also in " + shards[known->second.shard].file.path());
      if (promised != nullptr && !promised->contains(stored.name))
        fail_tensor(path, stored.name, "not listed for this file in " + index);
      tensors.emplace(name, indexed(stored, bytes));
      total_bytes += stored.end - stored.begin;
      ++found;
    }
    if (promised == nullptr || found == promised->size()) return;
    for (const std::string& name : *promised) {
      const auto tensor = tensors.find(first_name(name));
      if (tensor == tensors.end() || tensor->second.shard != shards.size() - 1)
        fail_tensor(path, name, "missing; " + index + " lists it for this file");
    }
  }

  IndexedTensor indexed(const StoredTensor& stored, std::span<const std::byte> file) {
    IndexedTensor tensor;
    tensor.type = stored.type;
    tensor.shard = shards.size() - 1;
    tensor.view.dtype = stored.type->dtype.value_or(DType::f32);
    tensor.view.shape = stored.shape;
    tensor.view.bytes = file.subspan(stored.begin, stored.end - stored.begin);
    // Mappings begin at a page, so the alignment of an offset is that of its address.
    if (stored.type->dtype && stored.begin % size_of(*stored.type->dtype) != 0) {
      copies.emplace_back(tensor.view.bytes.begin(), tensor.view.bytes.end());
      tensor.view.bytes = copies.back();
    }
    return tensor;
  }

  // Joins fp8 matrices with the scales of their blocks, which may be in other shards.
  void join_scales() {
    for (auto& [name, tensor] : tensors) {
      if (tensor.type->dtype != DType::f8) continue;
      const auto fail = [this](const std::string& of, std::size_t shard, const std::string& what) {
        fail_tensor(shards[shard].file.path(), of, what);
      };
      const std::vector<std::int64_t>& shape = tensor.view.shape;
      if (shape.size() != 2)
        fail(name, tensor.shard, "F8_E4M3: expected a matrix, found shape " + show_shape(shape));
      const std::string scales_name = name + "_scale_inv";
      const auto found = tensors.find(scales_name);
      if (found == tensors.end()) {
        fail(name, tensor.shard,
             "F8_E4M3 without scales; expected a tensor " + show_text(scales_name));
      }
      IndexedTensor& scales = found->second;
      if (scales.type->dtype != DType::f32 && scales.type->dtype != DType::bf16) {
        fail(scales_name, scales.shard,
             "dtype: expected F32 or BF16, found " + std::string(scales.type->name));
      }
      std::vector<std::int64_t> blocks = shape;
      for (std::int64_t& size : blocks) size = size / kScaleBlock + (size % kScaleBlock != 0);
      if (scales.view.shape != blocks) {
        fail(scales_name, scales.shard,
             "expected shape " + show_shape(blocks) + ", a scale for each " +
                 std::to_string(kScaleBlock) + " x " + std::to_string(kScaleBlock) + " of " +
                 show_shape(shape) + ", found " + show_shape(scales.view.shape));
      }
      scales.is_scales = true;
      tensor.view.scales = &scales.view;
    }
  }

  void hash_tensors(Hash& hash) const {
    constexpr std::uint64_t small = 256ULL << 20;
    constexpr std::size_t blocks = 16;
    constexpr std::size_t block = 4096;
    for (const auto& [name, tensor] : tensors) {
      const std::span<const std::byte> bytes = tensor.view.bytes;
      hash.piece(std::as_bytes(std::span(name)));
      hash.length(bytes.size());
      if (total_bytes < small || bytes.size() <= blocks * block) {
        hash.raw(bytes);
        continue;
      }
      for (std::size_t i = 0; i < blocks; ++i) {
        // The division comes first, because the product would overflow for an enormous tensor.
        const std::size_t step = (bytes.size() - block) / (blocks - 1);
        const std::size_t begin = i + 1 < blocks ? i * step : bytes.size() - block;
        hash.raw(bytes.subspan(begin, block));
      }
    }
  }
};

bool Checkpoint::is_there(const std::string& directory) {
  if (fs::exists(fs::path(directory) / single_name)) return true;
  const std::string index = fs::path(directory) / index_name;
  if (!fs::exists(index)) return false;
  const ShardMap shards = read_index(index);
  return std::ranges::all_of(
      shards, [&](const auto& shard) { return fs::exists(fs::path(directory) / shard.first); });
}

Checkpoint::Checkpoint(const std::string& directory) : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.directory = directory;
  if (!fs::is_directory(directory)) {
    throw DataError(directory + ": no such model directory");
  }
  const std::string single = fs::path(directory) / single_name;
  const std::string index = fs::path(directory) / index_name;
  if (fs::exists(single)) {
    state.add_shard(single, nullptr);
  } else if (fs::exists(index)) {
    state.index = index;
    for (const auto& [file, tensors] : read_index(index)) {
      const std::string path = fs::path(directory) / file;
      if (!fs::exists(path)) {
        throw DataError(path + ": no such file; " + index + " lists it");
      }
      state.add_shard(path, &tensors);
    }
  } else {
    throw DataError(directory + ": expected " + single_name + " or " + index_name +
                    ", found neither" + other_weights(directory));
  }
  state.join_scales();
}

Checkpoint::~Checkpoint() = default;

const TensorView* Checkpoint::find(std::string_view name) const {
  const auto found = state_->tensors.find(name);
  if (found == state_->tensors.end()) return nullptr;
  const State::IndexedTensor& tensor = found->second;
  if (!tensor.type->dtype)
    fail_tensor(
        location(name), name,
        "dtype: expected BF16, F16, F32 or F8_E4M3, found " + std::string(tensor.type->name));
  return &tensor.view;
}

std::optional<std::vector<std::int64_t>> Checkpoint::integers(std::string_view name) const {
  const auto found = state_->tensors.find(name);
  if (found == state_->tensors.end()) return std::nullopt;
  const State::IndexedTensor& tensor = found->second;
  const bool wide = tensor.type->name == "I64";
  if (!wide && tensor.type->name != "I32")
    fail_tensor(location(name), name,
                "dtype: expected I64 or I32, found " + std::string(tensor.type->name));
  const std::span<const std::byte> bytes = tensor.view.bytes;  // not aligned
  const std::size_t size = wide ? sizeof(std::int64_t) : sizeof(std::int32_t);
  std::vector<std::int64_t> values(bytes.size() / size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::int32_t narrow = 0;
    if (wide) {
      std::memcpy(&values[i], bytes.data() + i * size, size);
    } else {
      std::memcpy(&narrow, bytes.data() + i * size, size);
      values[i] = narrow;
    }
  }
  return values;
}

const std::vector<std::int64_t>* Checkpoint::shape(std::string_view name) const {
  const auto found = state_->tensors.find(name);
  return found == state_->tensors.end() ? nullptr : &found->second.view.shape;
}

std::vector<std::string_view> Checkpoint::names() const {
  std::vector<std::string_view> all;
  all.reserve(state_->tensors.size());
  for (const auto& [name, tensor] : state_->tensors) {
    if (!tensor.is_scales) all.push_back(name);
  }
  return all;
}

std::string Checkpoint::location(std::string_view name) const {
  const auto found = state_->tensors.find(name);
  if (found != state_->tensors.end()) return state_->shards[found->second.shard].file.path();
  return state_->index.empty() ? state_->shards.front().file.path() : state_->index;
}

void Checkpoint::release_pages() const {
  for (const State::Shard& shard : state_->shards) shard.file.release_pages();
}

std::string Checkpoint::fingerprint(const std::string& otherwise, std::string_view text) const {
  Hash hash;
  const fs::path config = fs::path(state_->directory) / "config.json";
  for (const std::string& path : {fs::exists(config) ? config.string() : std::string(),
                                  generation_config_path(state_->directory, otherwise)}) {
    hash.length(path.empty() ? 0 : 1);
    if (!path.empty()) hash.piece(MappedFile(path).bytes());
  }
  hash.length(state_->shards.size());
  for (const State::Shard& shard : state_->shards) {  // in file name order
    hash.piece(shard.file.bytes().first(shard.data_begin));
  }
  state_->hash_tensors(hash);
  if (!text.empty()) hash.piece(std::as_bytes(std::span(text)));
  return hash.hex();
}

}  // namespace paceline::io
