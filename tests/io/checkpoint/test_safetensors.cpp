#include "io/checkpoint/safetensors.hpp"

#include <gtest/gtest.h>

#include "tests/io/checkpoint/files.hpp"
#include "tests/io/expect_error.hpp"

namespace paceline::io {
namespace {

using test::safetensors;

SafetensorsHeader parse(const std::string& file) {
  return parse_safetensors(test::as_bytes(file), "w.safetensors");
}
std::string error_of(const std::string& file) {
  return test::message_of<DataError>([&] { (void)parse(file); });
}
// The error of a file with one tensor of this dtype, shape and byte range, and 8 bytes of data.
std::string error_of_tensor(const std::string& dtype, const std::string& shape,
                            const std::string& offsets) {
  return error_of(safetensors(
      "{\"a\":{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}",
      "12345678"));
}

TEST(Safetensors, Parses) {
  const std::string file =
      safetensors(R"({"__metadata__":{"format":"pt"},)"
                  R"("b":{"dtype":"BF16","shape":[2,2],"data_offsets":[4,12]},)"
                  R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                  R"("z":{"dtype":"I64","shape":[3,0],"data_offsets":[12,12]}}   )",
                  "aaaabbbbbbbb");
  const SafetensorsHeader header = parse(file);
  EXPECT_EQ(header.metadata.at("format"), "pt");
  EXPECT_EQ(header.data_begin, file.size() - 12);
  ASSERT_EQ(header.tensors.size(), 3U);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_TRUE(header.tensors[0].shape.empty());
  EXPECT_EQ(header.tensors[0].type->dtype, DType::f32);
  EXPECT_EQ(header.tensors[1].name, "b");
  EXPECT_EQ(header.tensors[1].shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(file.substr(header.tensors[1].begin, header.tensors[1].end - header.tensors[1].begin),
            "bbbbbbbb");
  EXPECT_EQ(header.tensors[2].type->dtype, std::nullopt);
  EXPECT_TRUE(parse(safetensors("{}", "")).tensors.empty());
}

TEST(Safetensors, BadLengths) {
  const std::string w = "w.safetensors: ";
  EXPECT_EQ(error_of(""), w + "expected a safetensors file of at least 8 bytes, found 0");
  EXPECT_EQ(error_of("1234567"), w + "expected a safetensors file of at least 8 bytes, found 7");
  EXPECT_EQ(
      error_of(std::string(8, '\0')),
      w + "header length: expected 2 to 100000000 bytes, found 0 (is this a safetensors file?)");
  EXPECT_EQ(
      error_of(std::string("\x01\0\0\0\0\0\0\0{", 9)),
      w + "header length: expected 2 to 100000000 bytes, found 1 (is this a safetensors file?)");
  EXPECT_EQ(error_of(std::string("\x01\xE1\xF5\x05\0\0\0\0{}", 10)),
            w + "header length: expected 2 to 100000000 bytes, found 100000001 (is this a "
                "safetensors file?)");
  EXPECT_EQ(error_of(std::string(16, '\xFF')),
            w + "header length: expected 2 to 100000000 bytes, found 18446744073709551615 (is this "
                "a safetensors file?)");
  EXPECT_EQ(error_of(std::string("\x03\0\0\0\0\0\0\0{}", 10)),
            w + "truncated: the header is 3 bytes long, found 2");
}

TEST(Safetensors, BadJson) {
  const std::string w = "w.safetensors: header: ";
  EXPECT_EQ(error_of(safetensors("[]", "")),
            w + "expected '{' first (is this a safetensors file?)");
  EXPECT_EQ(error_of(safetensors("{\"a\":", "")).find(w + "not valid JSON: parse error at line 1"),
            0U);
  EXPECT_EQ(error_of(safetensors("{} x", "")).find(w + "not valid JSON: "), 0U);
  EXPECT_EQ(error_of(safetensors(std::string("{}\0x", 4), "")),
            w + "not valid JSON: a NUL character at byte 3");
  EXPECT_EQ(error_of(safetensors("{\"\xff\":1}", "")).find(w + "not valid JSON: "), 0U);
  EXPECT_EQ(error_of(safetensors("{\"a\":1,\"a\":1}", "")), w + "duplicate key \"a\"");
  EXPECT_EQ(error_of(safetensors("{\"a\":{\"dtype\":1,\"dtype\":2}}", "")),
            w + "duplicate key \"dtype\"");
  EXPECT_EQ(error_of(safetensors("{\"a\":" + std::string(1000000, '['), "")),
            w + "nested more than 32 levels deep");
  EXPECT_EQ(error_of(safetensors("{\"a\":1e9999}", "")).find(w + "not valid JSON: "), 0U);
  EXPECT_EQ(error_of(safetensors("{\"__metadata__\":[]}", "")),
            w + "__metadata__: expected an object, found []");
  EXPECT_EQ(error_of(safetensors("{\"__metadata__\":{\"k\":1}}", "")),
            w + "__metadata__: 'k': expected text, found 1");
}

TEST(Safetensors, BadTensors) {
  const std::string w = "w.safetensors: tensor 'a': ";
  EXPECT_EQ(error_of(safetensors("{\"a\":7}", "")), w + "expected an object, found 7");
  EXPECT_EQ(error_of(safetensors("{\"a\":{}}", "")), w + "dtype is missing");
  EXPECT_EQ(error_of(safetensors("{\"a\":{\"dtype\":\"F32\"}}", "")), w + "shape is missing");
  EXPECT_EQ(error_of(safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", "")),
            w + "data_offsets is missing");
  EXPECT_EQ(error_of(safetensors("{\"a\":{\"offset\":1}}", "")),
            w + "expected dtype, shape and data_offsets, found 'offset'");
  EXPECT_EQ(error_of_tensor("\"FP32\"", "[2]", "[0,8]"),
            w + "dtype: expected a type of the safetensors format, found \"FP32\"; did you mean "
                "F32?");
  EXPECT_EQ(error_of_tensor("3", "[2]", "[0,8]"),
            w + "dtype: expected a type of the safetensors format, found 3");
  EXPECT_EQ(error_of_tensor("\"F32\"", "2", "[0,8]"),
            w + "shape: expected a list of sizes, found 2");
  EXPECT_EQ(error_of_tensor("\"F32\"", "[-2]", "[0,8]"),
            w + "shape: expected sizes from 0 to 2^63 - 1, found [-2]");
  EXPECT_EQ(error_of_tensor("\"F32\"", "[2.0]", "[0,8]"),
            w + "shape: expected sizes from 0 to 2^63 - 1, found [2.0]");
  EXPECT_EQ(error_of_tensor("\"F32\"", "[9223372036854775808]", "[0,8]"),
            w + "shape: expected sizes from 0 to 2^63 - 1, found [9223372036854775808]");
  EXPECT_EQ(error_of_tensor("\"F32\"", "[4294967296,4294967296]", "[0,8]"),
            w + "shape: [4294967296,4294967296] of F32 is more than 2^61 bytes");
  // Overflow to a small number must not pass: 2^62 x 4 bytes is 0 modulo 2^64.
  EXPECT_EQ(error_of_tensor("\"F32\"", "[4611686018427387904]", "[0,0]"),
            w + "shape: [4611686018427387904] of F32 is more than 2^61 bytes");
  EXPECT_EQ(error_of_tensor("\"F4\"", "[3]", "[0,8]"),
            w + "shape: [3] of F4 is not a whole number of bytes");
  EXPECT_EQ(error_of_tensor("\"F32\"", "[2]", "[0]"),
            w + "data_offsets: expected two whole numbers, found [0]");
  EXPECT_EQ(error_of_tensor("\"F32\"", "[2]", "[-1,7]"),
            w + "data_offsets: expected two whole numbers, found [-1,7]");
  EXPECT_EQ(error_of_tensor("\"F32\"", "[2]", "[8,0]"),
            w + "data_offsets: expected begin <= end, found [8,0]");
  EXPECT_EQ(error_of_tensor("\"F32\"", "[4]", "[0,16]"),
            w + "data_offsets: [0,16] end beyond the file's 8 bytes of data (is it truncated?)");
  EXPECT_EQ(error_of_tensor("\"F32\"", "[2]", "[0,18446744073709551615]"),
            w + "data_offsets: [0,18446744073709551615] end beyond the file's 8 bytes of data (is "
                "it truncated?)");
  EXPECT_EQ(error_of_tensor("\"F32\"", "[2]", "[0,4]"),
            w + "data_offsets: expected 8 bytes for shape [2] of F32, found 4");
}

TEST(Safetensors, TensorsTileTheFile) {
  const auto two = [](const std::string& first, const std::string& second) {
    return safetensors("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" + first +
                           "},\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" + second +
                           "}}",
                       "0123456789");
  };
  EXPECT_EQ(error_of(two("[0,4]", "[3,7]")),
            "w.safetensors: tensor 'b': overlaps tensor 'a': expected to begin at byte 4, found 3");
  EXPECT_EQ(
      error_of(two("[5,9]", "[0,4]")),
      "w.safetensors: tensor 'a': leaves a gap after tensor 'b': expected to begin at byte 4, "
      "found 5");
  EXPECT_EQ(
      error_of(two("[1,5]", "[5,9]")),
      "w.safetensors: tensor 'a': leaves a gap after the header: expected to begin at byte 0, "
      "found 1");
  EXPECT_EQ(error_of(two("[0,4]", "[4,8]")),
            "w.safetensors: expected 8 bytes of data by the header, found 10");
  EXPECT_EQ(error_of(safetensors("{}", "x")),
            "w.safetensors: expected 0 bytes of data by the header, found 1");
}

}  // namespace
}  // namespace paceline::io
