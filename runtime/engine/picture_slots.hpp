// The pictures of texts, as steps need them: which rows of a step are rows of a picture, by what
// rows are turned, and which pictures' rows executors keep. Bookkeeping only.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "runtime/core/picture_rows.hpp"
#include "runtime/core/pictures.hpp"
#include "runtime/core/types.hpp"
#include "runtime/engine/step.hpp"

namespace paceline::engine {

/// The pictures of a prompt.
struct TextPictures {
  std::vector<PromptPicture> pictures;  ///< Prompt::pictures
  std::vector<PictureBytes> files;      ///< [pictures]
  std::vector<PictureRows> rows;        ///< [pictures]
  std::uint32_t prompt = 0;             ///< its index

  /// `merge`: patches of a side that a tower merges into a row.
  [[nodiscard]] static TextPictures of(std::uint32_t prompt, std::vector<PromptPicture> pictures,
                                       std::vector<PictureBytes> files, std::int32_t merge);
  [[nodiscard]] bool empty() const { return pictures.empty(); }
};

/// Says by what the rows of the last part of a step are turned: the parts before it have been said.
void add_rotary(Step& step, const StepPart& part, std::span<const PictureRows> pictures);

/// The leader of a group decides here which pictures its ranks keep, so that all keep the same:
/// a step has the edits (PictureEdit). Siblings, and prompts that show one picture, find it kept. A
/// picture that was let go is computed again when its rows are. Not thread-safe.
class PictureSlots {
 public:
  /// `most`: rows that are kept, of one picture at least, however large it is.
  explicit PictureSlots(std::int64_t most) : most_(most) {}

  /// A prompt's tokens with those of pictures' rows replaced by numbers below 0, which are the same
  /// for the same pictures alone: prompts that begin alike are found by them.
  [[nodiscard]] std::vector<TokenId> identity(std::span<const TokenId> prompt,
                                              const TextPictures& pictures);

  /// The next calls of add() are about another step.
  void begin() { ++now_; }
  /// Adds rows of pictures to a step, for the next `rows` rows of it, which are of positions
  /// `first` and on of a text. Returns how many of these rows the step can have: fewer where a
  /// picture of theirs has no place beside those that the step has already; never 0 for the first
  /// text.
  [[nodiscard]] std::int32_t add(const TextPictures& pictures, std::int32_t first,
                                 std::int32_t rows, Step& step);

 private:
  struct Kept {
    std::int32_t number = -1;  ///< of the picture; -1: the slot is empty
    std::int64_t rows = 0;
    std::uint64_t used = 0;  ///< the last step that had rows of it
  };
  [[nodiscard]] std::int32_t number_of(const PromptPicture& picture);
  [[nodiscard]] bool make_room(std::int64_t rows, Step& step);
  [[nodiscard]] std::optional<std::int32_t> use(const TextPictures& pictures, std::size_t index,
                                                Step& step);

  std::int64_t most_;
  std::int64_t rows_ = 0;  ///< kept
  std::uint64_t now_ = 0;
  std::vector<Kept> slots_;
  std::map<std::array<std::uint64_t, 2>, std::int32_t> numbers_;  ///< by PromptPicture::hash
};

}  // namespace paceline::engine
