#include "runtime/kv/block_pool.hpp"

#include <stdexcept>

namespace paceline::kv {

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
  if (blocks < used()) throw std::logic_error("a KV block pool smaller than what is in use");
  std::vector<std::int32_t> places;
  std::int32_t place = 0;
  for (std::int32_t block = blocks; block < size(); ++block) {
    places.push_back(-1);
    if (holders_[block] == 0) continue;
    while (holders_[place] > 0) ++place;
    holders_[place] = holders_[block];
    places.back() = place;
  }
  holders_.resize(blocks, 0);
  free_.clear();
  for (std::int32_t block = blocks; block-- > 0;) {
    if (holders_[block] == 0) free_.push_back(block);
  }
  return places;
}

}  // namespace paceline::kv
