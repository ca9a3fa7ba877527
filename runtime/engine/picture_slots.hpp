// The pictures of texts, as steps need them: which rows of a step are rows of a picture, the rotary
// positions of rows, and which pictures' rows executors keep. Bookkeeping only.
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
  std::uint32_t prompt = 0;             ///< index of the prompt

  /// `merge`: patches of a side that a tower merges into a row.
  [[nodiscard]] static TextPictures of(std::uint32_t prompt, std::vector<PromptPicture> pictures,
                                       std::vector<PictureBytes> files, std::int32_t merge);
  [[nodiscard]] bool empty() const { return pictures.empty(); }
};

/// Adds the rotary positions of a part's rows to a step. To be called for parts in their order.
void add_rotary(Step& step, const StepPart& part, std::span<const PictureRows> pictures);

/// The leader of a group decides here which pictures its ranks keep, and a step has the edits
/// (PictureEdit), so that all ranks keep the same ones. Siblings, and prompts that show the same
/// picture, find it kept. A dropped picture is computed again when needed. Not thread-safe.
class PictureSlots {
 public:
  /// `most`: most rows that are kept; one picture is kept at least, however large it is.
  explicit PictureSlots(std::int64_t most) : most_(most) {}

  /// A prompt's tokens, by which prompts that begin alike are found. Tokens of a picture's rows are
  /// replaced by a number below 0, which is the same only for the same picture.
  [[nodiscard]] std::vector<TokenId> identity(std::span<const TokenId> prompt,
                                              const TextPictures& pictures);

  /// Begins a step: the next calls of add() are about it.
  void begin() { ++now_; }
  /// Adds to a step the pictures of its next `rows` rows, which are a text's positions from `first`
  /// on. Returns how many of these rows the step can have: fewer than `rows` if a picture has no
  /// room in addition to the pictures that the step has already; never 0 for the step's first
  /// text.
  [[nodiscard]] std::int32_t add(const TextPictures& pictures, std::int32_t first,
                                 std::int32_t rows, Step& step);

 private:
  struct Kept {
    std::int32_t number = -1;  ///< number of the picture; -1: the slot is empty
    std::int64_t rows = 0;
    std::uint64_t used = 0;  ///< the last step that had rows of the picture
  };
  [[nodiscard]] std::int32_t number_of(const PromptPicture& picture);
  [[nodiscard]] bool make_room(std::int64_t rows, Step& step);
  [[nodiscard]] std::optional<std::int32_t> use(const TextPictures& pictures, std::size_t index,
                                                Step& step);

  std::int64_t most_;
  std::int64_t rows_ = 0;  ///< number of rows kept
  std::uint64_t now_ = 0;
  std::vector<Kept> slots_;
  std::map<std::array<std::uint64_t, 2>, std::int32_t> numbers_;  ///< by PromptPicture::hash
};

}  // namespace paceline::engine
