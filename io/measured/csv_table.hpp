// A file of comma-separated values whose first line is known. Private to this folder.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::io {

/// Reads line by line. Fields have no commas and no quotes, as in the files of this folder. Errors
/// are DataErrors naming file, line and the expected value; IoError if reading fails.
class CsvTable {
 public:
  /// `header`: the names of the columns, comma-separated. The file's first line must be the same.
  CsvTable(const std::string& path, std::string_view header);

  /// Reads the next line. Returns false at the end.
  bool next();

  [[nodiscard]] const std::string& text(std::size_t column) const { return fields_[column]; }
  [[nodiscard]] std::int32_t integer(std::size_t column, std::int64_t least) const;
  /// A number above 0. `what`: its name in messages.
  [[nodiscard]] double positive(std::size_t column, const std::string& what = "a number") const;
  /// A number of milliseconds above 0, converted to seconds.
  [[nodiscard]] double milliseconds(std::size_t column) const;
  /// Throws an error about the field in this column.
  [[noreturn]] void fail(std::size_t column, const std::string& expected) const;
  /// Throws an error about the line.
  [[noreturn]] void fail_line(const std::string& what) const;

 private:
  std::string path_;
  std::ifstream in_;
  std::vector<std::string> columns_;
  std::vector<std::string> fields_;
  std::int64_t line_ = 0;
};

}  // namespace paceline::io
