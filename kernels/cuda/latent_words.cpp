#include <algorithm>

#include "kernels/cuda/latent.hpp"

namespace paceline::kernels::cuda {

void latent_words(const RowPlan& plan, int block, int padded, std::vector<std::int32_t>& words) {
  constexpr int kWords = sizeof(LatentRowWords) / sizeof(std::int32_t);
  words.assign(static_cast<std::size_t>(padded) * kWords, 0);
  for (const Chain& chain : plan.chains()) {
    const int end = chain.first_position + chain.rows;
    int places = end;  // one past the last place that a row reads
    const auto path = static_cast<std::int32_t>(words.size());
    if (chain.path != nullptr) {
      words.insert(words.end(), chain.path, chain.path + (end - chain.base));
      places = std::max(chain.base, *std::max_element(words.begin() + path, words.end()) + 1);
    }
    const auto blocks = static_cast<std::int32_t>(words.size());
    words.insert(words.end(), chain.blocks, chain.blocks + (places + block - 1) / block);
    for (int r = 0; r < chain.rows; ++r) {
      std::int32_t* const row = &words[static_cast<std::size_t>(chain.first_row + r) * kWords];
      row[0] = chain.first_position + r + 1;
      row[1] = chain.path == nullptr ? row[0] : chain.base;
      row[2] = path;
      row[3] = blocks;
    }
  }
}

}  // namespace paceline::kernels::cuda
