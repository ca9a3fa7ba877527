#include "runtime/engine/picture_slots.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace paceline::engine {

TextPictures TextPictures::of(std::uint32_t prompt, std::vector<PromptPicture> pictures,
                              std::vector<PictureBytes> files, std::int32_t merge) {
  TextPictures text{std::move(pictures), std::move(files), {}, prompt};
  if (text.empty()) return text;
  if (merge == 0) throw std::logic_error("pictures for a model that reads none");
  if (text.files.size() != text.pictures.size())
    throw std::logic_error("pictures without their files");
  std::int32_t end = 0;
  for (const PromptPicture& picture : text.pictures) {
    const PictureRows rows{picture.first, picture.grid.rows / merge, picture.grid.columns / merge};
    if (rows.first < end || rows.count() <= 0)
      throw std::logic_error("pictures whose rows are not apart");
    text.rows.push_back(rows);
    end = rows.first + rows.count();
  }
  return text;
}

void add_rotary(Step& step, const StepPart& part, std::span<const PictureRows> pictures) {
  std::vector<std::int32_t> depth(part.rows, 0);
  for (std::int32_t row = 0; row < part.rows; ++row) {
    const std::int32_t parent =
        part.first_parent < 0 ? row - 1 : step.parents[part.first_parent + row];
    if (parent >= 0) depth[row] = depth[parent] + 1;
    step.rotary.push_back(rotary_position(pictures, part.first_position + depth[row]));
  }
}

std::int32_t PictureSlots::number_of(const PromptPicture& picture) {
  return numbers_.try_emplace(picture.hash, static_cast<std::int32_t>(numbers_.size()))
      .first->second;
}

// One number is enough for all rows of a picture: if two texts are the same before a picture, they
// have each of its rows at the same position.
std::vector<TokenId> PictureSlots::identity(std::span<const TokenId> prompt,
                                            const TextPictures& pictures) {
  std::vector<TokenId> tokens(prompt.begin(), prompt.end());
  for (std::size_t i = 0; i < pictures.pictures.size(); ++i) {
    const PictureRows& rows = pictures.rows[i];
    const auto first = tokens.begin() + rows.first;
    std::fill(first, first + rows.count(), -1 - number_of(pictures.pictures[i]));
  }
  return tokens;
}

/// Drops pictures that the step does not need, the least recently used first. Returns false if
/// there is no room even then.
bool PictureSlots::make_room(std::int64_t rows, Step& step) {
  while (rows_ > 0 && rows_ + rows > most_) {
    auto oldest = slots_.end();
    for (auto slot = slots_.begin(); slot != slots_.end(); ++slot) {
      if (slot->number < 0 || slot->used == now_) continue;
      if (oldest == slots_.end() || slot->used < oldest->used) oldest = slot;
    }
    if (oldest == slots_.end()) return false;
    rows_ -= oldest->rows;
    *oldest = {};
    step.pictures.push_back({.slot = static_cast<std::int32_t>(oldest - slots_.begin())});
    step.files.emplace_back();
  }
  return true;
}

/// Gives a slot to a picture whose rows the step is to have. Returns nothing if there is no room.
std::optional<std::int32_t> PictureSlots::use(const TextPictures& pictures, std::size_t index,
                                              Step& step) {
  const PromptPicture& picture = pictures.pictures[index];
  const std::int32_t number = number_of(picture);
  const auto with = [this](std::int32_t wanted) {
    return std::ranges::find(slots_, wanted, &Kept::number);
  };
  auto slot = with(number);
  if (slot == slots_.end()) {
    const std::int64_t rows = pictures.rows[index].count();
    if (!make_room(rows, step)) return std::nullopt;
    slot = with(-1);
    if (slot == slots_.end()) slot = slots_.emplace(slots_.end());
    *slot = {number, rows, now_};
    rows_ += rows;
    step.pictures.push_back({static_cast<std::int32_t>(slot - slots_.begin()), picture.grid,
                             pictures.prompt, static_cast<std::int32_t>(index)});
    step.files.push_back(pictures.files[index]);
  }
  slot->used = now_;
  return static_cast<std::int32_t>(slot - slots_.begin());
}

std::int32_t PictureSlots::add(const TextPictures& pictures, std::int32_t first, std::int32_t rows,
                               Step& step) {
  const auto first_row = static_cast<std::int32_t>(step.tokens.size());
  for (std::size_t i = 0; i < pictures.rows.size(); ++i) {
    const PictureRows& picture = pictures.rows[i];
    const std::int32_t from = std::max(picture.first, first);
    const std::int32_t end = std::min(picture.first + picture.count(), first + rows);
    if (from >= end) continue;
    const std::optional<std::int32_t> slot = use(pictures, i, step);
    if (!slot) return from - first;
    step.spans.push_back({first_row + from - first, end - from, *slot, from - picture.first});
  }
  return rows;
}

}  // namespace paceline::engine
