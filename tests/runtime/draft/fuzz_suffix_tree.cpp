// Grows a few sequences by turns as the input says and compares the tree and its drafts with a
// naive table.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/runtime/draft/naive_tree.hpp"

namespace {

using namespace paceline;
using namespace paceline::draft;

void require(const std::string& difference) {
  if (difference.empty()) return;
  std::fprintf(stderr, "%s\n", difference.c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 6 || size > 400) return 0;
  const int depth = 1 + data[0] % 12;
  SpeculationOptions options;
  options.limits = {1 + data[1] % 12, 1 + data[2] % 8, 1 + data[1] / 16 % 4};
  options.min_match = 1 + data[3] % 4;
  options.offset = data[4] % 8;
  options.min_probability = static_cast<float>(data[5] % 6) / 10;

  // A byte: which of four sequences, and which of 64 tokens.
  SuffixTree tree(depth);
  std::vector<std::vector<TokenId>> sequences(4);
  for (int s = 0; s < 4; ++s) static_cast<void>(tree.add_sequence());
  for (std::size_t i = 6; i < size; ++i) {
    const TokenId token = data[i] / 4;
    tree.append(data[i] % 4, {&token, 1});
    sequences[data[i] % 4].push_back(token);
  }
  const NaiveTree naive(depth, sequences);
  require(difference(tree, naive));

  SpeculationScratch scratch;
  DraftBuffers buffers(12);
  for (SuffixTree::Sequence s = 0; s < 4; ++s) {
    std::vector<TokenId> text = sequences[s];
    if (text.size() >= static_cast<std::size_t>(depth)) {
      text.erase(text.begin(), text.end() - (depth - 1));
    }
    DraftResult result = speculate(tree, s, options, buffers.output(), scratch);
    require(difference(result, buffers.output(), naive.draft(text, options)));
    text.insert(text.end(), 3, data[5] / 4);
    result = speculate(tree, text, options, buffers.output(), scratch);
    require(difference(result, buffers.output(), naive.draft(text, options)));
  }
  return 0;
}
