#include "runtime/engine/executor.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>

#include "runtime/engine/logit_edits.hpp"

namespace paceline::engine {

Executor::Executor(kernels::Backend& backend, std::shared_ptr<const model::Weights> weights,
                   TensorParallelGroup& group, const SamplingParams& sampling,
                   const std::vector<TokenId>& stops, const ExecutorLimits& limits,
                   const PicturePorts& pictures)
    : backend_(backend),
      group_(group),
      sampling_(sampling),
      banned_early_(banned_early(sampling, stops)),
      limits_(limits),
      decoder_(backend, std::move(weights), group,
               limits.max_batch * (1 + limits.max_draft) + limits.prefill_chunk,
               limits.max_batch * (1 + limits.max_draft), limits.max_position,
               group.rank() == 0 ? limits.features : std::vector<std::int32_t>(),
               limits.gives_routing),
      kv_shape_(decoder_.kv_shape(limits.kv_block, limits.keep_routing)),
      cache_(backend.reserve(
          kv_shape_.block_bytes() * limits.kv_blocks,
          kv_shape_.block_bytes() * std::max(limits.kv_blocks, limits.most_kv_blocks))),
      reader_(pictures.reader) {
  if (pictures.tower != nullptr) tower_.emplace(backend, pictures.tower, group);
  const model::Shard& shard = decoder_.weights().shard();
  if (shard.attention == AttentionLayout::data) owner_ = {shard.rank, shard.size};
  for (int r = 0; r < shard.size; ++r)
    columns_.push_back(shard.first_vocab[r + 1] - shard.first_vocab[r]);
  first_sample_.resize(shard.size + 1);
  if (shard.size == 1) return;
  const std::size_t samples = limits.max_batch * (1 + limits.max_draft);
  const int vocab = decoder_.weights().config().vocab;
  rows_ = backend.allocate((samples + shard.size - 1) / shard.size * vocab * sizeof(float));
}

StepResult Executor::run(const Step& step) {
  const auto begin = std::chrono::steady_clock::now();
  GroupTraffic before = group_.traffic();
  work(step.kv);
  if (step.empty()) return {};
  const double picture_seconds = edit_pictures(step);
  before.sum_seconds = group_.traffic().sum_seconds;  // pictures are no part of the forward pass
  segments_.clear();
  owned_.assign(owner_.owners > 1 ? owner_.owners + 1 : 0, 0);
  for (const StepPart& part : step.parts) {
    const std::int32_t owner = part.sequence % owner_.owners;
    if (!owned_.empty()) deal(part, owner);
    if (owner != owner_.index) continue;
    segments_.push_back(
        {part.first_row, part.rows, part.first_position,
         tables_.of(owner_.number(part.sequence)).data(),
         part.first_parent < 0 ? nullptr : step.parents.data() + part.first_parent});
  }
  logit_rows_.clear();
  for (const StepSample& s : step.samples) logit_rows_.push_back(s.row);
  const float* logits = decoder_.forward(step.tokens, segments_, logit_rows_, kv_shape_,
                                         cache_->data(), pictures_of(step), owned_);
  sample(step, logits);
  const double forward_seconds = backend_.pass_seconds();
  const auto end = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(end - begin).count();
  return {.sampled = sampled_,
          .kept_ids = kept_ids_,
          .top = top_,
          .forward_seconds = forward_seconds,
          .sample_seconds = seconds - forward_seconds - picture_seconds,
          .picture_seconds = picture_seconds,
          .traffic = group_.traffic() - before};
}

/// Gives the part's rows to its owner. Parts are in order of their owners.
void Executor::deal(const StepPart& part, std::int32_t owner) {
  const auto after = owned_.begin() + owner + 1;
  if (owned_.back() != part.first_row || *after != part.first_row)
    throw std::logic_error("rows of a step that are not in order of their owners");
  std::fill(after, owned_.end(), part.first_row + part.rows);
}

/// Makes the step's changes to pictures. Returns the seconds spent on them.
double Executor::edit_pictures(const Step& step) {
  if (step.pictures.empty()) return 0;
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < step.pictures.size(); ++i) {
    const PictureEdit& edit = step.pictures[i];
    if (edit.slot >= std::ssize(slots_)) slots_.resize(edit.slot + 1);
    slots_[edit.slot] = {};
    if (step.files[i] == nullptr) continue;
    if (!tower_ || reader_ == nullptr) throw std::logic_error("a picture that nobody reads");
    const std::string name =
        "picture " + std::to_string(edit.number + 1) + " of prompt " + std::to_string(edit.prompt);
    slots_[edit.slot] =
        tower_->compute(reader_->patches(*step.files[i], edit.grid, name), edit.grid);
  }
  const auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double>(end - begin).count();
}

kernels::PictureInput Executor::pictures_of(const Step& step) {
  picture_rows_.clear();
  if (!step.spans.empty()) picture_rows_.resize(step.tokens.size(), nullptr);
  const auto hidden = static_cast<std::size_t>(decoder_.weights().config().hidden);
  for (const PictureSpan& span : step.spans) {
    const float* const rows = slots_.at(span.slot).data();
    for (std::int32_t row = 0; row < span.rows; ++row)
      picture_rows_[span.first_row + row] = rows + (span.first + row) * hidden;
  }
  return {step.rotary, picture_rows_};
}

std::vector<std::int16_t> Executor::read_routing(std::span<const kv::Place> places) {
  const auto width = static_cast<std::size_t>(kv_shape_.routed);
  std::vector<std::int16_t> experts(places.size() * width);
  if (width == 0 || places.empty()) return experts;
  const std::int32_t owner = places.front().block % owner_.owners;
  if (owner == owner_.index) read_own_routing(places, experts);
  if (owner_.owners == 1) return experts;
  std::vector<int> sizes(owner_.owners, 0);
  sizes[owner] = static_cast<int>(experts.size() * sizeof(std::int16_t));
  const std::vector<std::int16_t> mine =
      owner == owner_.index ? experts : std::vector<std::int16_t>();
  group_.all_gather(std::as_bytes(std::span(mine)), sizes,
                    std::as_writable_bytes(std::span(experts)));
  return experts;
}

// Neighbouring positions are read in one piece.
void Executor::read_own_routing(std::span<const kv::Place> places,
                                std::span<std::int16_t> experts) {
  const auto width = static_cast<std::size_t>(kv_shape_.routed);
  for (std::size_t first = 0; first < places.size();) {
    const kv::Place& place = places[first];
    std::size_t last = first + 1;
    while (last < places.size() && places[last].block == place.block &&
           places[last].slot == places[last - 1].slot + 1)
      ++last;
    const std::byte* const block =
        cache_->data() + owner_.number(place.block) * kv_shape_.block_bytes();
    backend_.read(block + kv_shape_.routing_offset() + place.slot * width * sizeof(std::int16_t),
                  std::as_writable_bytes(experts.subspan(first * width, (last - first) * width)));
    first = last;
  }
}

// Neighbouring rows are read in one piece.
void Executor::read_features(std::span<const std::int32_t> rows, std::span<std::byte> out) {
  const std::size_t bytes = decoder_.feature_bytes();
  for (std::size_t first = 0; first < rows.size();) {
    std::size_t last = first + 1;
    while (last < rows.size() && rows[last] == rows[last - 1] + 1) ++last;
    backend_.read(decoder_.features() + rows[first] * bytes,
                  out.subspan(first * bytes, (last - first) * bytes));
    first = last;
  }
}

void Executor::work(const kv::Work& all) {
  if (owner_.owners > 1) owner_.take(all, own_work_);
  const kv::Work& work = owner_.owners > 1 ? own_work_ : all;
  const std::size_t bytes = kv_shape_.block_bytes() * work.blocks;
  if (bytes > cache_->size()) cache_->resize(bytes);
  tables_.apply(work.edits);
  if (!work.moves.empty()) backend_.move_slots(kv_shape_, cache_->data(), work.moves);
  if (!work.copies.empty()) backend_.copy_blocks(kv_shape_, cache_->data(), work.copies);
  if (work.blocks > 0 && bytes < cache_->size()) cache_->resize(bytes);
}

/// Sets the logit edits of sample_rows_ from `begin` on, up to a limit on the edits. Row i belongs
/// to the step's sample `first` + i. Returns the index after the last row with its edits set.
std::size_t Executor::edit_rows(const Step& step, int first, std::size_t begin,
                                SampleNotes& notes) {
  constexpr std::size_t kMostEdits = 1 << 20;
  constexpr std::size_t kFewestRows = 64;  // so that all threads have rows
  edits_.clear();
  std::vector<std::size_t> ends;
  while (begin + ends.size() < sample_rows_.size() &&
         (ends.size() < kFewestRows || edits_.size() < kMostEdits)) {
    const StepSample& s = step.samples[first + begin + ends.size()];
    append_edits(notes.of(s), s.draw < 0 ? sampling_.draw() : step.draws[s.draw], edits_);
    ends.push_back(edits_.size());
  }
  for (std::size_t i = 0, from = 0; i < ends.size(); from = ends[i++])
    sample_rows_[begin + i].edits = std::span(edits_).subspan(from, ends[i] - from);
  return begin + ends.size();
}

/// Samples sample_rows_. Row i belongs to the step's sample `first` + i. `logits`: [rows, vocab].
void Executor::sample_rows(const Step& step, int first, const float* logits,
                           std::span<kernels::Sampled> out) {
  const int vocab = decoder_.weights().config().vocab;
  const auto most = static_cast<std::size_t>(sampling_.keep_masks ? sampling_.top_k : 0);
  kept_rows_.resize(out.size() * most);
  SampleNotes notes(step);
  for (std::size_t begin = 0, end = 0; begin < out.size(); begin = end) {
    end = step.notes.empty() ? out.size() : edit_rows(step, first, begin, notes);
    backend_.sample(logits + begin * vocab, vocab, vocab,
                    std::span(sample_rows_).subspan(begin, end - begin),
                    out.subspan(begin, end - begin),
                    std::span(kept_rows_).subspan(begin * most, (end - begin) * most));
  }
}

void Executor::sample(const Step& step, const float* logits) {
  const int samples = static_cast<int>(step.samples.size());
  const int ranks = group_.size();
  const int vocab = decoder_.weights().config().vocab;
  sampled_.resize(samples);
  if (samples == 0) return;

  for (int r = 0; r <= ranks; ++r) first_sample_[r] = samples * r / ranks;
  const int first = first_sample_[group_.rank()];
  const int mine = first_sample_[group_.rank() + 1] - first;
  const auto banned = [&](const StepSample& s) -> std::span<const TokenId> {
    if (s.ban == StepSample::none) return sampling_.masked;
    if (s.ban == StepSample::run_stops) return banned_early_;
    return std::span(step.banned).subspan(s.first_banned, s.banned);
  };
  sample_rows_.clear();
  const TokenDraw of_run = sampling_.draw();
  for (int i = first; i < first + mine; ++i) {
    const StepSample& s = step.samples[i];
    const TokenDraw& draw = s.draw < 0 ? of_run : step.draws[s.draw];
    sample_rows_.push_back({s.noise, s.index, draw.temperature, draw.top_k, draw.top_p, draw.min_p,
                            banned(s), s.given});
  }

  kept_ids_.clear();
  top_.clear();
  const auto sample_own = [&](const float* rows, std::span<kernels::Sampled> out) {
    const auto most = static_cast<std::size_t>(sampling_.keep_masks ? sampling_.top_k : 0);
    top_.resize(out.size() * sampling_.logprobs);
    try {
      sample_rows(step, first, rows, out);
      if (sampling_.logprobs > 0)
        backend_.top(rows, vocab, vocab, static_cast<int>(out.size()), sampling_.logprobs, top_);
    } catch (const kernels::UnusableLogits& bad) {
      throw bad.of_weights(limits_.weights);
    }
    for (std::size_t i = 0; i < out.size() && most > 0; ++i) {
      const auto row = kept_rows_.begin() + static_cast<std::ptrdiff_t>(i * most);
      kept_ids_.insert(kept_ids_.end(), row, row + out[i].kept);
    }
  };
  if (ranks == 1) return sample_own(logits, sampled_);
  auto* rows = reinterpret_cast<float*>(rows_->data());
  group_.exchange_rows({logits, static_cast<std::size_t>(samples) * columns_[group_.rank()]},
                       columns_, first_sample_, {rows, static_cast<std::size_t>(mine) * vocab});
  std::vector<kernels::Sampled> own(mine);
  if (mine > 0) sample_own(rows, own);
  std::vector<int> sizes(ranks);
  for (int r = 0; r < ranks; ++r) {
    sizes[r] =
        (first_sample_[r + 1] - first_sample_[r]) * static_cast<int>(sizeof(kernels::Sampled));
  }
  group_.all_gather(std::as_bytes(std::span(own)), sizes,
                    std::as_writable_bytes(std::span(sampled_)));
  if (sampling_.logprobs > 0) {
    const auto width = static_cast<std::size_t>(sampling_.logprobs);
    for (int r = 0; r < ranks; ++r) {
      sizes[r] = static_cast<int>((first_sample_[r + 1] - first_sample_[r]) * width *
                                  sizeof(kernels::Ranked));
    }
    const std::vector<kernels::Ranked> mine_top =
        std::exchange(top_, std::vector<kernels::Ranked>(samples * width));
    group_.all_gather(std::as_bytes(std::span(mine_top)), sizes,
                      std::as_writable_bytes(std::span(top_)));
  }
  if (!sampling_.keep_masks) return;
  std::size_t all = 0;
  for (int r = 0; r < ranks; ++r) {
    std::size_t ids = 0;
    for (int i = first_sample_[r]; i < first_sample_[r + 1]; ++i) ids += sampled_[i].kept;
    sizes[r] = static_cast<int>(ids * sizeof(TokenId));
    all += ids;
  }
  const std::vector<TokenId> mine_kept = std::exchange(kept_ids_, std::vector<TokenId>(all));
  group_.all_gather(std::as_bytes(std::span(mine_kept)), sizes,
                    std::as_writable_bytes(std::span(kept_ids_)));
}

}  // namespace paceline::engine
