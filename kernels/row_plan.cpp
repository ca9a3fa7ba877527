#include "kernels/row_plan.hpp"

#include <algorithm>
#include <string>

#include "runtime/core/error.hpp"

namespace paceline::kernels {
namespace {

void expect(bool condition, const char* what) {
  if (!condition) throw Error(ExitCode::internal, std::string("batch: ") + what);
}

}  // namespace

void RowPlan::set(const Batch& batch) {
  rows_.clear();
  chains_.clear();
  paths_.clear();
  first_path_.clear();
  for (const TokenId token : batch.tokens)
    expect(token >= 0 && token < batch.vocab, "token outside the vocabulary");
  const int first_row = batch.attended ? batch.attended->first : 0;
  for (const Segment& segment : batch.segments) {
    expect(segment.first_row == first_row + static_cast<int>(rows_.size()),
           "segments leave rows out");
    const std::size_t first = chains_.size();
    if (segment.parents == nullptr) {
      chains_.push_back({segment.first_row, segment.rows, segment.first_position,
                         segment.first_position, segment.blocks, nullptr, segment.seen});
      first_path_.push_back(-1);
    } else {
      cut(segment);
    }
    for (std::size_t c = first; c < chains_.size(); ++c) {
      const Chain& chain = chains_[c];
      expect(chain.first_position >= 0 && chain.first_position + chain.rows <= batch.positions,
             "position outside the rotary table");
      for (int i = 0; i < chain.rows; ++i) {
        const int at = segment.first_position + segment.before + first_row +
                       static_cast<int>(rows_.size()) - segment.first_row;
        rows_.push_back(
            {chain.first_position + i, segment.blocks[at / batch.kv.block], at % batch.kv.block});
      }
    }
  }
  const std::size_t rows = batch.tokens.size();
  const std::size_t attended = batch.attended ? batch.attended->rows : rows;
  expect(rows_.size() == attended && first_row + attended <= rows,
         "segments do not cover the rows");
  const PictureInput& pictures = batch.pictures;
  expect((pictures.rotary.empty() || pictures.rotary.size() == rows) &&
             (pictures.embeddings.empty() || pictures.embeddings.size() == rows),
         "pictures of other rows");
  for (const RotaryPosition& at : pictures.rotary) {
    expect(std::min({at.frame, at.row, at.column}) >= 0 &&
               std::max({at.frame, at.row, at.column}) < batch.positions,
           "position outside the rotary table");
  }
  for (const std::int32_t row : batch.logit_rows) {
    expect(row >= 0 && row < static_cast<int>(rows), "logits of a row that is not there");
  }
  for (std::size_t c = 0; c < chains_.size(); ++c) {
    if (first_path_[c] >= 0) chains_[c].path = paths_.data() + first_path_[c];
  }
}

// Cuts a tree into chains of rows that are each the child of the one before. Rows of the first
// branch lie in the places of their own positions; other chains get a path that locates their
// ancestors.
void RowPlan::cut(const Segment& segment) {
  const int end = segment.before + segment.rows;
  for (int row = segment.before; row < end;) {  // index in the tree
    ancestors_.clear();
    for (int at = row; segment.parents[at] >= 0; at = segment.parents[at]) {
      expect(segment.parents[at] < at, "a tree row follows a later one");
      ancestors_.push_back(segment.parents[at]);
    }
    std::reverse(ancestors_.begin(), ancestors_.end());
    const int first = row;
    const auto depth = static_cast<int>(ancestors_.size());
    do {
      ancestors_.push_back(row++);
    } while (row < end && segment.parents[row] == row - 1);
    chains_.push_back({segment.first_row + first - segment.before, row - first,
                       segment.first_position + depth, segment.first_position, segment.blocks,
                       nullptr});
    const bool displaced = first != depth;
    first_path_.push_back(displaced ? static_cast<std::ptrdiff_t>(paths_.size()) : -1);
    if (!displaced) continue;
    for (const std::int32_t ancestor : ancestors_)
      paths_.push_back(segment.first_position + ancestor);
  }
}

}  // namespace paceline::kernels
