#include "io/checkpoint/checkpoint.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <thread>

#include "tests/io/checkpoint/files.hpp"
#include "tests/io/expect_error.hpp"

namespace paceline::io {
namespace {

using test::safetensors;
using test::TemporaryDirectory;

const std::string index_name = "model.safetensors.index.json";

// One F32 tensor of two values.
std::string one_tensor(const std::string& name, const std::string& data = "01234567") {
  return safetensors("{\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
                     data);
}

std::string error_of(const TemporaryDirectory& directory) {
  return test::message_of<DataError>([&] { Checkpoint checkpoint(directory.path()); });
}

TEST(Checkpoint, OneFile) {
  const TemporaryDirectory d;
  d.write("model.safetensors", one_tensor("a"));
  const Checkpoint checkpoint(d.path());
  const TensorView* a = checkpoint.find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->dtype, DType::f32);
  EXPECT_EQ(a->shape, std::vector<std::int64_t>{2});
  EXPECT_EQ(std::memcmp(a->bytes.data(), "01234567", 8), 0);
  checkpoint.release_pages();
  EXPECT_EQ(std::memcmp(a->bytes.data(), "01234567", 8), 0);
  EXPECT_EQ(checkpoint.find("b"), nullptr);
  EXPECT_EQ(checkpoint.location("b"), d.file("model.safetensors"));
  EXPECT_EQ(checkpoint.names(), std::vector<std::string_view>{"a"});
}

TEST(Checkpoint, Shards) {
  const TemporaryDirectory d;
  d.write("s1.safetensors", one_tensor("b"));
  d.write("s2.safetensors", one_tensor("a"));
  d.write(index_name, R"({"metadata":{"total_size":16},)"
                      R"("weight_map":{"b":"s1.safetensors","a":"s2.safetensors"}})");
  const Checkpoint checkpoint(d.path());
  EXPECT_EQ(checkpoint.names(), (std::vector<std::string_view>{"a", "b"}));
  EXPECT_EQ(checkpoint.location("a"), d.file("s2.safetensors"));
  EXPECT_EQ(checkpoint.location("none"), d.file(index_name));
  EXPECT_NE(checkpoint.find("a"), nullptr);
}

TEST(Checkpoint, IsThereWhenAllItsFilesAre) {
  const TemporaryDirectory d;
  EXPECT_FALSE(Checkpoint::is_there(d.path()));
  d.write("s1.safetensors", one_tensor("b"));
  d.write(index_name, R"({"weight_map":{"b":"s1.safetensors","a":"s2.safetensors"}})");
  EXPECT_FALSE(Checkpoint::is_there(d.path())) << "a shard is on its way still";
  d.write("s2.safetensors", "whatever is in it");
  EXPECT_TRUE(Checkpoint::is_there(d.path()));
  const TemporaryDirectory single;
  single.write("model.safetensors", one_tensor("a"));
  EXPECT_TRUE(Checkpoint::is_there(single.path()));
}

TEST(Checkpoint, MisalignedTensorsAreCopied) {
  const TemporaryDirectory d;
  std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  while (header.size() % 4 != 1) header += ' ';
  d.write("model.safetensors", safetensors(header, "01234567"));
  const Checkpoint checkpoint(d.path());
  const std::byte* bytes = checkpoint.find("a")->bytes.data();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes) % 4, 0U);
  EXPECT_EQ(std::memcmp(bytes, "01234567", 8), 0);
}

TEST(Checkpoint, OtherDtypesFailWhenLookedUp) {
  const TemporaryDirectory d;
  d.write("model.safetensors",
          safetensors(R"({"a":{"dtype":"I16","shape":[2],"data_offsets":[0,4]}})", "0123"));
  const Checkpoint checkpoint(d.path());
  EXPECT_EQ(test::message_of<DataError>([&] { (void)checkpoint.find("a"); }),
            d.file("model.safetensors") +
                ": tensor 'a': dtype: expected BF16, F16, F32 or F8_E4M3, found I16");
}

// A file of one tensor, all of whose bytes are alike.
std::string tensor_file(const std::string& name, const std::string& dtype, const std::string& shape,
                        std::size_t bytes) {
  return safetensors("{\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
                         ",\"data_offsets\":[0," + std::to_string(bytes) + "]}}",
                     std::string(bytes, '\x38'));
}

TEST(Checkpoint, Fp8MatricesHaveTheirScales) {
  for (const auto& [dtype, size] : {std::pair{"F32", 4}, {"BF16", 2}}) {
    const TemporaryDirectory d;
    d.write("s1.safetensors", tensor_file("m", "F8_E4M3", "[129,256]", 129 * 256));
    d.write("s2.safetensors", tensor_file("m_scale_inv", dtype, "[2,2]", 4 * size));
    d.write(index_name, R"({"weight_map":{"m":"s1.safetensors","m_scale_inv":"s2.safetensors"}})");
    const Checkpoint checkpoint(d.path());
    EXPECT_EQ(checkpoint.names(), std::vector<std::string_view>{"m"});
    const TensorView* m = checkpoint.find("m");
    ASSERT_NE(m, nullptr);
    EXPECT_EQ(m->dtype, DType::f8);
    EXPECT_EQ(m->bytes.size(), 129U * 256);
    ASSERT_EQ(m->scales, checkpoint.find("m_scale_inv"));
    EXPECT_EQ(m->scales->dtype, size == 4 ? DType::f32 : DType::bf16);
    EXPECT_EQ(m->scales->bytes.size(), 4U * size);
  }
}

TEST(Checkpoint, Fp8WithoutItsScales) {
  const auto error = [](const std::string& shape, std::size_t elements, const std::string& name,
                        const std::string& dtype, const std::string& scales_shape,
                        std::size_t bytes) {
    const TemporaryDirectory d;
    d.write("s1.safetensors", tensor_file("m", "F8_E4M3", shape, elements));
    d.write("s2.safetensors", tensor_file(name, dtype, scales_shape, bytes));
    d.write(index_name,
            R"({"weight_map":{"m":"s1.safetensors",")" + name + R"(":"s2.safetensors"}})");
    std::string message = error_of(d);
    return message.erase(0, d.path().size() + 1);
  };
  EXPECT_EQ(error("[128,130]", 128 * 130, "m_scale", "F32", "[1,2]", 8),
            "s1.safetensors: tensor 'm': F8_E4M3 without scales; expected a tensor 'm_scale_inv'");
  EXPECT_EQ(error("[128,130]", 128 * 130, "m_scale_inv", "F16", "[1,2]", 4),
            "s2.safetensors: tensor 'm_scale_inv': dtype: expected F32 or BF16, found F16");
  EXPECT_EQ(error("[128,130]", 128 * 130, "m_scale_inv", "F32", "[2,1]", 8),
            "s2.safetensors: tensor 'm_scale_inv': expected shape [1, 2], a scale for each 128 x "
            "128 of [128, 130], found [2, 1]");
  EXPECT_EQ(error("[128,130]", 128 * 130, "m_scale_inv", "F32", "[]", 4),
            "s2.safetensors: tensor 'm_scale_inv': expected shape [1, 2], a scale for each 128 x "
            "128 of [128, 130], found []");
  EXPECT_EQ(error("[128]", 128, "m_scale_inv", "F32", "[1]", 4),
            "s1.safetensors: tensor 'm': F8_E4M3: expected a matrix, found shape [128]");
}

// They are some other tensor, which a model has no place for.
TEST(Checkpoint, ScalesOfNoFp8Matrix) {
  const TemporaryDirectory d;
  d.write("model.safetensors", one_tensor("m_scale_inv"));
  EXPECT_EQ(Checkpoint(d.path()).names(), std::vector<std::string_view>{"m_scale_inv"});
}

TEST(Checkpoint, MissingFiles) {
  const TemporaryDirectory d;
  EXPECT_EQ(test::message_of<DataError>([&] { Checkpoint checkpoint(d.file("none")); }),
            d.file("none") + ": no such model directory");
  EXPECT_EQ(
      error_of(d),
      d.path() + ": expected model.safetensors or model.safetensors.index.json, found neither");
  const std::string neither =
      d.path() + ": expected model.safetensors or model.safetensors.index.json, found neither; ";
  d.write("consolidated.00.pth", "x");
  EXPECT_EQ(error_of(d), neither +
                             "there is consolidated.00.pth, which must be converted to a "
                             "Hugging Face model in safetensors first");
  d.write("adapter_model.safetensors", "x");
  EXPECT_EQ(error_of(d).find(neither + "there is adapter_model.safetensors, a PEFT adapter alone: "
                                       "merge it once with python3 -c"),
            0U);
  d.write("pytorch_model.bin", "x");
  EXPECT_EQ(error_of(d).find(neither +
                             "there is pytorch_model.bin, which is converted once with "
                             "python3 -c 'from transformers import "
                             "AutoModelForCausalLM as A; A.from_pretrained(\"" +
                             d.path() + "\""),
            0U);
  d.write(index_name, R"({"weight_map":{"a":"s1.safetensors"}})");
  EXPECT_EQ(error_of(d),
            d.file("s1.safetensors") + ": no such file; " + d.file(index_name) + " lists it");
}

TEST(Checkpoint, NotARegularFile) {
  const TemporaryDirectory d;
  std::filesystem::create_directory(d.file("model.safetensors"));
  EXPECT_EQ(error_of(d), d.file("model.safetensors") + ": not a regular file");
  std::filesystem::remove(d.file("model.safetensors"));
  ASSERT_EQ(::mkfifo(d.file("model.safetensors").c_str(), 0600), 0);
  EXPECT_EQ(error_of(d), d.file("model.safetensors") + ": not a regular file");
}

TEST(Checkpoint, BadFilesNameThemselves) {
  const TemporaryDirectory d;
  d.write("model.safetensors", "");
  EXPECT_EQ(error_of(d), d.file("model.safetensors") +
                             ": expected a safetensors file of at least 8 bytes, found 0");
  const std::string whole = one_tensor("a");
  for (std::size_t size = 0; size < whole.size(); ++size) {  // every truncation
    d.write("model.safetensors", whole.substr(0, size));
    EXPECT_EQ(error_of(d).find(d.file("model.safetensors") + ": "), 0U) << size;
  }
}

TEST(Checkpoint, IndexAndShardsMustAgree) {
  const TemporaryDirectory d;
  const std::string index = d.file(index_name);
  d.write("s1.safetensors", one_tensor("a"));
  d.write("s2.safetensors", one_tensor("a"));

  d.write(index_name, "[]");
  EXPECT_EQ(error_of(d), index + ": expected an object with tensors in \"weight_map\", found []");
  d.write(index_name, "");
  EXPECT_EQ(error_of(d).find(index + ": not valid JSON: "), 0U);
  d.write(index_name, R"({"weight_map":{"a":"../s1.safetensors"}})");
  EXPECT_EQ(error_of(d), index +
                             ": tensor 'a': expected the name of a file in this directory, found "
                             "\"../s1.safetensors\"");
  d.write(index_name, R"({"weight_map":{"a":3}})");
  EXPECT_EQ(error_of(d),
            index + ": tensor 'a': expected the name of a file in this directory, found 3");
  d.write(index_name, R"({"weight_map":{"a":"s1.safetensors","b":"s1.safetensors"}})");
  EXPECT_EQ(error_of(d), d.file("s1.safetensors") + ": tensor 'b': missing; " + index +
                             " lists it for this file");
  d.write(index_name, R"({"weight_map":{"b":"s1.safetensors"}})");
  EXPECT_EQ(error_of(d),
            d.file("s1.safetensors") + ": tensor 'a': not listed for this file in " + index);
  d.write(index_name, R"({"weight_map":{"a":"s1.safetensors","b":"s2.safetensors"}})");
  EXPECT_EQ(error_of(d), d.file("s2.safetensors") + ": tensor 'a': duplicate; it is also in " +
                             d.file("s1.safetensors"));
}

TEST(Checkpoint, FingerprintFollowsContent) {
  const TemporaryDirectory d;
  d.write("model.safetensors", one_tensor("a"));
  const auto fingerprint = [&] { return Checkpoint(d.path()).fingerprint(); };
  const std::string bare = fingerprint();
  EXPECT_EQ(bare.size(), 32U);
  EXPECT_EQ(bare.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(fingerprint(), bare);
  d.write("config.json", "{}");
  const std::string with_config = fingerprint();
  EXPECT_NE(with_config, bare);
  d.write("generation_config.json", "{}");
  const std::string whole = fingerprint();
  EXPECT_NE(whole, with_config);
  std::filesystem::remove(d.file("generation_config.json"));
  const TemporaryDirectory elsewhere;
  EXPECT_EQ(Checkpoint(d.path()).fingerprint(elsewhere.path()), with_config);
  elsewhere.write("generation_config.json", "{}");
  EXPECT_EQ(Checkpoint(d.path()).fingerprint(elsewhere.path()), whole) << "wherever it lies";
  EXPECT_NE(Checkpoint(d.path()).fingerprint(elsewhere.path(), "tokens"), whole);
  d.write("model.safetensors", one_tensor("a", "01234568"));
  EXPECT_NE(fingerprint(), with_config);
  d.write("model.safetensors", one_tensor("b"));
  EXPECT_NE(fingerprint(), with_config);
  d.write("model.safetensors", one_tensor("a"));
  EXPECT_EQ(fingerprint(), with_config);
}

// Above 256 MiB it samples. The file is sparse: it takes no room.
TEST(Checkpoint, FingerprintSamplesLargeFiles) {
  const TemporaryDirectory d;
  const std::uint64_t size = 300ULL << 20;
  std::string header = "{\"a\":{\"dtype\":\"BF16\",\"shape\":[" + std::to_string(size / 2) +
                       "],\"data_offsets\":[0," + std::to_string(size) + "]}}";
  if (header.size() % 2 != 0) header += ' ';  // aligned: not copied
  d.write("model.safetensors", safetensors(header, ""));
  const std::uint64_t begin = std::filesystem::file_size(d.file("model.safetensors"));
  std::filesystem::resize_file(d.file("model.safetensors"), begin + size);
  const Checkpoint checkpoint(d.path());
  const std::string before = checkpoint.fingerprint();
  const auto poke = [&](std::uint64_t at, char value) {
    std::fstream file(d.file("model.safetensors"), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(begin + at));
    file.put(value);
  };
  poke(size - 1, 'x');
  EXPECT_NE(checkpoint.fingerprint(), before);
  poke(size - 1, '\0');
  EXPECT_EQ(checkpoint.fingerprint(), before);
  poke(0, 'x');
  EXPECT_NE(checkpoint.fingerprint(), before);
}

TEST(Checkpoint, ReadsFromManyThreads) {
  const TemporaryDirectory d;
  d.write("model.safetensors", one_tensor("a"));
  const Checkpoint checkpoint(d.path());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 1000; ++k) {
        EXPECT_EQ(std::to_integer<char>(checkpoint.find("a")->bytes[7]), '7');
        if (k % 100 == 0) checkpoint.release_pages();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace paceline::io
