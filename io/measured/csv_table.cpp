#include "io/measured/csv_table.hpp"

#include <charconv>
#include <cmath>
#include <filesystem>

#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

constexpr std::size_t kMostShown = 60;  // characters of a field shown in a message

std::vector<std::string> split(std::string_view line) {
  std::vector<std::string> fields;
  for (std::size_t from = 0;;) {
    const std::size_t comma = line.find(',', from);
    fields.emplace_back(line.substr(from, comma - from));
    if (comma == std::string_view::npos) return fields;
    from = comma + 1;
  }
}

template <typename Number>
bool parse_number(const std::string& text, Number& number) {
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stopped == end;
}

std::string show(const std::string& text) {
  return "'" + (text.size() > kMostShown ? text.substr(0, kMostShown) + "..." : text) + "'";
}

}  // namespace

CsvTable::CsvTable(const std::string& path, std::string_view header)
    : path_(path), columns_(split(header)) {
  if (!std::filesystem::is_regular_file(path)) throw DataError(path + ": no such file");
  in_.open(path);
  if (!in_) throw IoError(path + ": cannot be read");
  if (!next() || fields_ != columns_) {
    fail_line("expected the columns " + std::string(header));
  }
}

bool CsvTable::next() {
  std::string line;
  ++line_;
  if (!std::getline(in_, line)) {
    if (in_.bad()) throw IoError(path_ + ": cannot be read");
    return false;
  }
  if (!line.empty() && line.back() == '\r') line.pop_back();
  fields_ = split(line);
  if (line_ > 1 && fields_.size() != columns_.size()) {
    fail_line("expected " + std::to_string(columns_.size()) + " fields, found " +
              std::to_string(fields_.size()));
  }
  return true;
}

std::int32_t CsvTable::integer(std::size_t column, std::int32_t least) const {
  std::int32_t value = 0;
  if (!parse_number(fields_[column], value) || value < least) {
    fail(column, "a whole number of at least " + std::to_string(least));
  }
  return value;
}

double CsvTable::milliseconds(std::size_t column) const {
  double value = 0;
  if (!parse_number(fields_[column], value) || !std::isfinite(value) || !(value > 0)) {
    fail(column, "a number of milliseconds above 0");
  }
  return value * 1e-3;
}

void CsvTable::fail(std::size_t column, const std::string& expected) const {
  fail_line(columns_[column] + ": expected " + expected + ", found " + show(fields_[column]));
}

void CsvTable::fail_line(const std::string& what) const {
  throw DataError(path_ + ": line " + std::to_string(line_) + ": " + what);
}

}  // namespace paceline::io
