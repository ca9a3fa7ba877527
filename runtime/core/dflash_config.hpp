// Configuration of a DFlash head, from its config.json and its tensors. Sources: DFlash (arXiv
// 2602.06036) and the published checkpoints.
#pragma once

#include <cstdint>

#include "runtime/core/published_head.hpp"

namespace paceline {

/// A head that fills in a block of tokens in one pass. `fc` joins the target's features of a
/// position, and each layer's keys and values of the position are projections of this context. A
/// block is the text's last token and then masked rows, of the mask token. Its rows see the whole
/// context and one another, later rows too. Masked row i predicts the i-th token after the text.
/// read_layers and mask_token are always given.
struct DFlashConfig : PublishedHead {
  std::int32_t block_size = 0;  ///< rows of a block, the last token's included; at least 2
  /// Whether the head has an output of its own. False: the target's is used, which is its
  /// embeddings' matrix where layer.tied_embeddings.
  bool own_output = false;
};

}  // namespace paceline
