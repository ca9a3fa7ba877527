// The group /prompts, alike in the final file and in the shard folder. Private to this folder.
#pragma once

#include <span>
#include <vector>

#include "io/hdf5/file.hpp"
#include "runtime/core/request.hpp"

namespace paceline::io {

void write_prompt_table(const h5::File& file, std::span<const Prompt> prompts);
[[nodiscard]] std::vector<Prompt> read_prompt_table(const h5::File& file);

/// DIR/shards/prompts.h5: the prompts, for readers of a run in progress.
void write_prompt_file(const std::string& directory, std::span<const Prompt> prompts);
[[nodiscard]] std::string prompt_file(const std::string& directory);

}  // namespace paceline::io
