#include "runtime/kv/block_owners.hpp"

namespace paceline::kv {

void BlockOwner::name_all(Work& work) const {
  for (TableEdit& edit : work.edits) {
    edit.sequence = name(edit.sequence);
    edit.block = name(edit.block);
  }
  for (kernels::Backend::SlotMove& move : work.moves) {
    move.from_block = name(move.from_block);
    move.to_block = name(move.to_block);
  }
  for (kernels::Backend::BlockCopy& copy : work.copies) copy = {name(copy.from), name(copy.to)};
}

void BlockOwner::take(const Work& all, Work& own) const {
  own.clear();
  own.blocks = all.blocks;
  for (const TableEdit& edit : all.edits) {
    if (has(edit.block))
      own.edits.push_back({number(edit.sequence), edit.index, number(edit.block)});
  }
  for (const kernels::Backend::SlotMove& move : all.moves) {
    if (has(move.to_block))
      own.moves.push_back(
          {number(move.from_block), move.from_slot, number(move.to_block), move.to_slot});
  }
  for (const kernels::Backend::BlockCopy& copy : all.copies) {
    if (has(copy.to)) own.copies.push_back({number(copy.from), number(copy.to)});
  }
}

}  // namespace paceline::kv
