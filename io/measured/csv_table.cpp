#include "io/measured/csv_table.hpp"

#include <cmath>
#include <filesystem>

#include "runtime/core/error.hpp"
#include "runtime/core/parse_number.hpp"

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

std::int32_t CsvTable::integer(std::size_t column, std::int64_t least) const {
  const auto value = parse_number<std::int32_t>(fields_[column]);
  if (!value || *value < least) fail(column, "a whole number of at least " + std::to_string(least));
  return *value;
}

double CsvTable::positive(std::size_t column, const std::string& what) const {
  const auto value = parse_number<double>(fields_[column]);
  if (!value || !std::isfinite(*value) || !(*value > 0)) fail(column, what + " above 0");
  return *value;
}

double CsvTable::milliseconds(std::size_t column) const {
  return positive(column, "a number of milliseconds") * 1e-3;
}

void CsvTable::fail(std::size_t column, const std::string& expected) const {
  fail_line(columns_[column] + ": expected " + expected + ", found " + show(fields_[column]));
}

void CsvTable::fail_line(const std::string& what) const {
  throw DataError(path_ + ": line " + std::to_string(line_) + ": " + what);
}

}  // namespace paceline::io
