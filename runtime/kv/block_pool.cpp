#include "runtime/kv/block_pool.hpp"

#include <stdexcept>

namespace paceline::kv {

std::vector<std::int32_t> plan_contraction(std::span<const std::int32_t> holders,
                                           std::int32_t blocks) {
  std::vector<std::int32_t> places;
  std::int32_t place = 0;
  for (std::size_t block = blocks; block < holders.size(); ++block) {
    places.push_back(-1);
    if (holders[block] == 0) continue;
    while (place < blocks && holders[place] > 0) ++place;
    if (place == blocks) throw std::logic_error("a KV block pool smaller than what is in use");
    places.back() = place++;
  }
  return places;
}

BlockPool::BlockPool(std::int32_t blocks) : holders_(blocks, 0) {
  free_.reserve(blocks);
  for (std::int32_t block = blocks; block-- > 0;) free_.push_back(block);
}

std::int32_t BlockPool::acquire() {
  if (free_.empty()) throw std::logic_error("KV block pool exhausted: admission let in too much");
  const std::int32_t block = free_.back();
  free_.pop_back();
  holders_[block] = 1;
  return block;
}

void BlockPool::share(std::int32_t block) {
  if (holders_[block] == 0) throw std::logic_error("sharing a free KV block");
  ++holders_[block];
}

void BlockPool::release(std::int32_t block) {
  if (holders_[block] == 0) throw std::logic_error("releasing a free KV block");
  if (--holders_[block] == 0) free_.push_back(block);
}

std::vector<std::int32_t> BlockPool::resize(std::int32_t blocks) {
  std::vector<std::int32_t> places = plan_contraction(holders_, blocks);
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i] >= 0) holders_[places[i]] = holders_[blocks + i];
  }
  holders_.resize(blocks, 0);
  free_.clear();
  for (std::int32_t block = blocks; block-- > 0;) {
    if (holders_[block] == 0) free_.push_back(block);
  }
  return places;
}

}  // namespace paceline::kv
