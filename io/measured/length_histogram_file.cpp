#include "io/measured/length_histogram_file.hpp"

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "io/measured/csv_table.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {

LengthHistogram read_length_histogram(const std::string& path) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(path, unknown))
    throw DataError(path + ": no such file, expected a histogram of lengths");
  CsvTable table(path, "field,tokens,weight");
  LengthHistogram histogram;
  while (table.next()) {
    const std::string& field = table.text(0);
    if (field != "input_tokens" && field != "output_tokens")
      table.fail(0, "input_tokens or output_tokens");
    auto& bins = field == "input_tokens" ? histogram.prompts : histogram.responses;
    const std::int64_t last = bins.empty() ? 0 : bins.back().tokens;
    bins.push_back({table.integer(1, last + 1), table.positive(2)});
  }
  for (const auto& [field, bins] : {std::pair{"input_tokens", &histogram.prompts},
                                    std::pair{"output_tokens", &histogram.responses}}) {
    if (bins->empty())
      table.fail_line("expected rows of " + std::string(field) + ", found the end");
  }
  return histogram;
}

}  // namespace paceline::io
