#include "runtime/draft/child_pool.hpp"

#include <algorithm>
#include <cassert>

namespace paceline::draft {
namespace {

std::size_t spread(TokenId token) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(token)) * 0x9E3779B97F4A7C15U) >>
         32U;
}

}  // namespace

const Child* ChildPool::data(const Children& children) const {
  if (children.shape == 0) return &children.inline_child;
  const std::uint32_t place = children.inline_child.node;
  if (children.shape == kShapes) return wides_[place]->children.data();
  return &chunks_[place / kChunk][place % kChunk];
}

std::span<const Child> ChildPool::view(const Children& children) const {
  if (children.shape == kShapes) return wides_[children.inline_child.node]->children;
  return {data(children), children.size};
}

const std::uint32_t* ChildPool::slot(const Wide& wide, TokenId token) {
  const std::size_t mask = wide.slots.size() - 1;
  std::size_t at = spread(token) & mask;
  while (wide.slots[at] != 0 && wide.children[wide.slots[at] - 1].token != token) {
    at = (at + 1) & mask;
  }
  return &wide.slots[at];
}

std::uint32_t* ChildPool::slot(Wide& wide, TokenId token) {
  return const_cast<std::uint32_t*>(slot(std::as_const(wide), token));
}

int ChildPool::find(const Children& children, TokenId token) const {
  if (children.shape == kShapes) {
    return static_cast<int>(*slot(*wides_[children.inline_child.node], token)) - 1;
  }
  const Child* all = data(children);
  for (int i = 0; i < children.size; ++i) {
    if (all[i].token == token) return i;
  }
  return -1;
}

std::uint32_t ChildPool::allocate(int shape) {
  std::vector<std::uint32_t>& free = free_[shape];
  if (!free.empty()) {
    const std::uint32_t place = free.back();
    free.pop_back();
    return place;
  }
  const std::size_t size = capacity(shape);
  if (used_ + size > kChunk) {
    // The rest of the old chunk serves smaller blocks.
    for (int s = shape - 1; s >= 1; --s) {
      while (used_ + capacity(s) <= kChunk) {
        free_[s].push_back(static_cast<std::uint32_t>((chunks_.size() - 1) * kChunk + used_));
        used_ += capacity(s);
      }
    }
    chunks_.push_back(std::make_unique<Child[]>(kChunk));
    bytes_ += kChunk * sizeof(Child);
    used_ = 0;
  }
  const std::size_t place = (chunks_.size() - 1) * kChunk + used_;
  used_ += size;
  return static_cast<std::uint32_t>(place);
}

void ChildPool::push_wide(Wide& wide, Child child) {
  bytes_ -= wide.children.capacity() * sizeof(Child) + wide.slots.size() * sizeof(std::uint32_t);
  if (2 * (wide.children.size() + 1) > wide.slots.size()) {
    wide.slots.assign(std::max<std::size_t>(64, 2 * wide.slots.size()), 0);
    for (std::size_t i = 0; i < wide.children.size(); ++i) {
      *slot(wide, wide.children[i].token) = static_cast<std::uint32_t>(i + 1);
    }
  }
  std::uint32_t* place = slot(wide, child.token);
  wide.children.push_back(child);
  *place = static_cast<std::uint32_t>(wide.children.size());
  bytes_ += wide.children.capacity() * sizeof(Child) + wide.slots.size() * sizeof(std::uint32_t);
}

void ChildPool::widen(Children& children) {
  const std::uint8_t shape = children.shape;
  const Child* old = data(children);
  if (shape + 1 < kShapes) {
    const std::uint32_t place = allocate(shape + 1);
    std::copy_n(old, children.size, &chunks_[place / kChunk][place % kChunk]);
    if (shape != 0) free_[shape].push_back(children.inline_child.node);
    children.inline_child.node = place;
  } else {
    wides_.push_back(std::make_unique<Wide>());
    bytes_ += sizeof(Wide) + sizeof(void*);
    for (int i = 0; i < children.size; ++i) push_wide(*wides_.back(), old[i]);
    free_[shape].push_back(children.inline_child.node);
    children.inline_child.node = static_cast<std::uint32_t>(wides_.size() - 1);
  }
  ++children.shape;
}

void ChildPool::push_back(Children& children, Child child) {
  assert(find(children, child.token) < 0);
  if (children.shape != kShapes && children.size == capacity(children.shape)) widen(children);
  if (children.shape == kShapes) {
    push_wide(*wides_[children.inline_child.node], child);
  } else {
    data(children)[children.size++] = child;
  }
}

void ChildPool::set_node(Children& children, int position, NodeIndex node) {
  data(children)[position].node = node;
}

void ChildPool::swap(Children& children, int a, int b) {
  if (a == b) return;
  Child* all = data(children);
  if (children.shape == kShapes) {
    Wide& wide = *wides_[children.inline_child.node];
    std::swap(*slot(wide, all[a].token), *slot(wide, all[b].token));
  }
  std::swap(all[a], all[b]);
}

}  // namespace paceline::draft
