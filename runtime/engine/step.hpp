// One engine step over a ragged batch, as plain data: the leader of a verifier group plans it and
// every rank of the group executes it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/picture_rows.hpp"
#include "runtime/core/pictures.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/core/token_notes.hpp"
#include "runtime/core/types.hpp"
#include "runtime/kv/sequences.hpp"

namespace paceline::engine {

/// Rows of one sequence: a chain at consecutive positions, or a tree of drafted tokens under its
/// first row (kernels::Segment).
struct StepPart {
  std::int32_t first_row = 0;
  std::int32_t rows = 0;
  std::int32_t first_position = 0;  ///< absolute position of the first row
  kv::Handle sequence = 0;          ///< KV is read and written by this sequence's block table
  std::int32_t first_parent = -1;   ///< first of a tree's parents in Step::parents; -1: a chain
};

/// A row whose next token is to be sampled, or a given next token to be scored.
struct StepSample {
  NoiseKey noise;
  std::int32_t row = 0;
  std::int32_t index = 0;  ///< index of the sampled token within its response
  /// Stop ids that are banned before min_tokens, in addition to SamplingParams::masked.
  enum Ban : std::int32_t { none = 0, run_stops = 1, own_stops = 2 };
  std::int32_t ban = none;
  std::int32_t first_banned = 0;  ///< own_stops: index of the first banned id in Step::banned
  std::int32_t banned = 0;
  TokenId given = -1;      ///< kernels::SampleRow::given
  std::int32_t draw = -1;  ///< index into Step::draws; -1: the run's parameters
  /// Two stretches of Step::notes: `notes` has TokenNotes::all() of the text before the rows of the
  /// sample's part; `since` has a note of each later token, in any order.
  std::int32_t first_note = 0;
  std::int32_t notes = 0;
  std::int32_t first_since = 0;
  std::int32_t since = 0;
};

/// A change to the pictures whose rows executors keep, in numbered slots: from now on the slot has
/// the rows of another picture, which are to be computed, or no rows.
struct PictureEdit {
  std::int32_t slot = 0;
  PictureGrid grid = {};
  std::uint32_t prompt = 0;  ///< index of the picture's prompt, for error messages
  std::int32_t number = 0;   ///< index of the picture in the prompt, for error messages
};

/// Rows of a step that are rows of a picture: row `first_row` + i is row `first` + i of the picture
/// in the slot.
struct PictureSpan {
  std::int32_t first_row = 0;
  std::int32_t rows = 0;
  std::int32_t slot = 0;
  std::int32_t first = 0;
};

/// A step of the engine. A step without rows is work on KV alone.
struct Step {
  kv::Work kv;                        ///< done before the forward pass
  std::vector<TokenId> tokens;        ///< [rows]
  std::vector<StepPart> parts;        ///< in row order, covering all rows
  std::vector<std::int32_t> parents;  ///< [tree rows] row within the part; -1 for its first
  std::vector<StepSample> samples;    ///< in row order
  std::vector<TokenId> banned;        ///< for requests with stop ids of their own: banned_early()
  std::vector<TokenDraw> draws;       ///< parameters of requests that have their own
  std::vector<TokenNote> notes;       ///< notes of samples with penalties or biases
  std::vector<PictureEdit> pictures;  ///< made before the forward pass
  std::vector<PictureBytes> files;    ///< [pictures] null: the slot has no picture from now on
  std::vector<PictureSpan> spans;     ///< in row order
  /// [rows] rotary positions; empty: no text has pictures, and rows have their own positions.
  std::vector<RotaryPosition> rotary;

  [[nodiscard]] bool empty() const { return tokens.empty(); }
  void clear() {
    kv.clear();
    tokens.clear();
    parts.clear();
    parents.clear();
    samples.clear();
    banned.clear();
    draws.clear();
    notes.clear();
    pictures.clear();
    files.clear();
    spans.clear();
    rotary.clear();
  }
  /// Adds a request's own parameters. Returns their index for its samples; -1: it has none.
  [[nodiscard]] std::int32_t add_draw(const std::optional<TokenDraw>& own) {
    if (!own) return -1;
    draws.push_back(*own);
    return static_cast<std::int32_t>(draws.size()) - 1;
  }
  /// Bans stop ids for a sample of this step. `own`: banned_early() of the request's own stop ids;
  /// null: the request has the run's.
  void ban_stops(StepSample& sample, const std::vector<TokenId>* own) {
    sample.ban = own == nullptr ? StepSample::run_stops : StepSample::own_stops;
    if (own == nullptr) return;
    sample.first_banned = static_cast<std::int32_t>(banned.size());
    sample.banned = static_cast<std::int32_t>(own->size());
    banned.insert(banned.end(), own->begin(), own->end());
  }
};

/// The outcome of a step on one rank. Spans are valid until the rank's next step.
struct StepResult {
  std::span<const kernels::Sampled> sampled = {};  ///< [samples of the step] in their order
  /// Ids that each sample could have been (SamplingParams::keep_masks), sample by sample:
  /// Sampled::kept ids for each.
  std::span<const TokenId> kept_ids = {};
  /// The most probable tokens at the position of each sample: [samples, SamplingParams::logprobs],
  /// as Backend::top() gives them.
  std::span<const kernels::Ranked> top = {};
  double forward_seconds = 0;  ///< seconds spent on the forward pass
  double sample_seconds = 0;   ///< seconds spent on sampling
  double picture_seconds = 0;  ///< seconds spent on rows of pictures, before the forward pass
  GroupTraffic traffic = {};   ///< traffic of the step's collectives; their time is in the seconds
};

/// A step executor's copy of the block tables, by handle. The edits of each step update it.
class BlockTables {
 public:
  void apply(std::span<const kv::TableEdit> edits) {
    for (const kv::TableEdit& edit : edits) {
      if (edit.sequence >= static_cast<kv::Handle>(tables_.size()))
        tables_.resize(edit.sequence + 1);
      std::vector<std::int32_t>& table = tables_[edit.sequence];
      if (edit.index >= static_cast<std::int32_t>(table.size())) table.resize(edit.index + 1);
      table[edit.index] = edit.block;
    }
  }
  /// The table of a sequence. Valid until the next apply(). Entries past the sequence's room are
  /// stale.
  [[nodiscard]] std::span<const std::int32_t> of(kv::Handle sequence) const {
    return tables_.at(sequence);
  }

 private:
  std::vector<std::vector<std::int32_t>> tables_;
};

}  // namespace paceline::engine
