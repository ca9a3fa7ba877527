#include "io/measured/length_histogram_file.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

constexpr std::string_view kHeader = "field,tokens,weight";
constexpr std::size_t kMostShown = 60;  // bytes of a bad line shown in a message

/// One line of the file, with its number.
struct Line {
  const std::string& path;
  int number = 0;
  std::string_view text;

  [[noreturn]] void fail(const std::string& expected) const {
    const std::string shown(text.substr(0, kMostShown));
    throw DataError(fmt::format("{}:{}: expected {}, found '{}{}'", path, number, expected, shown,
                                text.size() > kMostShown ? "..." : ""));
  }
};

/// Splits off the text before the next comma, or all of it if there is none.
std::string_view next_cell(std::string_view& text) {
  const std::size_t comma = text.find(',');
  const std::string_view cell = text.substr(0, comma);
  text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
  return cell;
}

template <typename T>
bool read_number(std::string_view text, T& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc{} && stop == end;
}

void read_row(const Line& line, LengthHistogram& histogram) {
  std::string_view rest = line.text;
  const std::string_view field = next_cell(rest);
  const std::string_view tokens = next_cell(rest);
  if (field != "input_tokens" && field != "output_tokens")
    line.fail("field 'input_tokens' or 'output_tokens'");
  auto& bins = field == "input_tokens" ? histogram.prompts : histogram.responses;
  LengthBin bin;
  const std::int32_t last = bins.empty() ? 0 : bins.back().tokens;
  if (!read_number(tokens, bin.tokens) || bin.tokens <= last)
    line.fail(fmt::format("tokens that are a whole number above {}", last));
  if (!read_number(rest, bin.weight) || !(bin.weight > 0) || !std::isfinite(bin.weight))
    line.fail("a weight that is a positive number, and no more");
  bins.push_back(bin);
}

}  // namespace

LengthHistogram read_length_histogram(const std::string& path) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(path, unknown))
    throw DataError(path + ": no such file, expected a histogram of lengths");
  std::ifstream file(path);
  LengthHistogram histogram;
  std::string text;
  int number = 0;
  while (std::getline(file, text)) {
    if (text.ends_with('\r')) text.pop_back();
    const Line line{path, ++number, text};
    if (number > 1) {
      read_row(line, histogram);
    } else if (line.text != kHeader) {
      line.fail(fmt::format("the header '{}'", kHeader));
    }
  }
  if (!file.eof()) throw IoError("cannot read " + path);
  for (const auto& [field, bins] : {std::pair{"input_tokens", &histogram.prompts},
                                    std::pair{"output_tokens", &histogram.responses}}) {
    if (bins->empty())
      throw DataError(
          fmt::format("{}:{}: expected rows of {}, found the end", path, number + 1, field));
  }
  return histogram;
}

}  // namespace paceline::io
