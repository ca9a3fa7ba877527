// The group /prompts, the same in the final file and in the shard folder. Private to this folder.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/hdf5/file.hpp"
#include "runtime/core/request.hpp"

namespace paceline::io {

void write_prompt_table(const h5::File& file, std::span<const Prompt> prompts);
[[nodiscard]] std::vector<Prompt> read_prompt_table(const h5::File& file);

/// Writes /prompts/index of a final file: the numbers of its prompts among all prompts of the run.
void write_prompt_index(const h5::File& file, std::span<const std::uint32_t> index);
/// Throws IoError if the file has none.
[[nodiscard]] std::vector<std::uint32_t> read_prompt_index(const std::string& path);

/// Writes DIR/shards/prompts.h5: the prompts, for readers of a run in progress.
void write_prompt_file(const std::string& directory, std::span<const Prompt> prompts);
[[nodiscard]] std::string prompt_file(const std::string& directory);

}  // namespace paceline::io
