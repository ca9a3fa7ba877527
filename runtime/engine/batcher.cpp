#include "runtime/engine/batcher.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace paceline::engine {

using kv::blocks_for;

Batcher::Batcher(const BatcherLimits& limits, const SamplingParams& sampling,
                 std::vector<TokenId> stops, const TokenText* text)
    : limits_(limits),
      sampling_(sampling),
      stops_(std::move(stops)),
      text_(text),
      pool_(limits.kv_blocks) {
  if (!sampling_.stop_strings.empty() && text_ == nullptr) {
    throw std::logic_error("stop strings need the text of tokens");
  }
}

// Blocks of a request beside its prefix's: everything from the block of the prompt's last position
// on, because a fork writes that position again into a copy of its own.
std::int32_t Batcher::reservation(std::int32_t prompt_length) const {
  const std::int32_t longest =
      std::min<std::int32_t>(limits_.context, prompt_length + sampling_.max_tokens);
  return blocks_for(longest, limits_.kv_block) - (prompt_length - 1) / limits_.kv_block;
}

std::int32_t Batcher::blocks_needed(std::size_t prompt_tokens) const {
  const auto length = static_cast<std::int32_t>(prompt_tokens);
  return blocks_for(length, limits_.kv_block) + reservation(length);
}

bool Batcher::admit(Admission& request) {
  if (active() >= limits_.max_batch) return false;
  const auto length = static_cast<std::int32_t>(request.prompt.size());
  const auto known = prefix_of_prompt_.find(request.trajectory.id.prompt);
  const bool has_prefix = known != prefix_of_prompt_.end();
  const std::int32_t own = reservation(length);
  const std::int32_t prompt_blocks = blocks_for(length, limits_.kv_block);

  if (has_prefix)
    ++known->second->users;  // not idle: it must not be evicted to make room for itself
  evict_idle_prefixes(own + (has_prefix ? 0 : prompt_blocks));
  if (reserved_ + own + (has_prefix ? 0 : prompt_blocks) > pool_.size()) {
    if (has_prefix) --known->second->users;
    return false;
  }

  Sequence& s = sequences_.emplace_back(Sequence{.trajectory = std::move(request.trajectory),
                                                 .tokens = std::move(request.prompt),
                                                 .prompt_length = length,
                                                 .reserved = own,
                                                 .blocks = {},
                                                 .noise = request.noise,
                                                 .matcher = StopMatcher(sampling_.stop_strings)});
  reserved_ += own;
  if (has_prefix) {
    prefixes_.splice(prefixes_.end(), prefixes_, known->second);
    s.prefix = &*known->second;
  } else {
    prefixes_.push_back(
        {.prompt = s.trajectory.id.prompt, .reserved = prompt_blocks, .blocks = {}, .users = 1});
    prefix_of_prompt_[s.trajectory.id.prompt] = std::prev(prefixes_.end());
    reserved_ += prompt_blocks;
    s.prefix = &prefixes_.back();
    s.owns_prefix = true;
  }
  for (const TokenId token : s.trajectory.tokens) {  // resumed: its response so far
    s.tokens.push_back(token);
    if (text_ != nullptr) s.matcher.append(text_->bytes_of(token));
  }
  return true;
}

void Batcher::evict_idle_prefixes(std::int32_t needed) {
  for (auto it = prefixes_.begin(); it != prefixes_.end() && reserved_ + needed > pool_.size();) {
    if (it->users > 0) {
      ++it;
      continue;
    }
    for (const std::int32_t block : it->blocks) pool_.release(block);
    reserved_ -= it->reserved;
    prefix_of_prompt_.erase(it->prompt);
    it = prefixes_.erase(it);
  }
}

void Batcher::fork_from_prefix(Sequence& s) {
  s.blocks = s.prefix->blocks;
  for (const std::int32_t block : s.blocks) pool_.share(block);
  s.computed = s.prompt_length - 1;  // the last position runs again: its logits were not kept
}

void Batcher::make_writable(Sequence& s, std::int32_t rows) {
  const std::int32_t last = (s.computed + rows - 1) / limits_.kv_block;
  for (std::int32_t index = s.computed / limits_.kv_block; index <= last; ++index) {
    if (index == static_cast<std::int32_t>(s.blocks.size())) {
      s.blocks.push_back(pool_.acquire());
    } else if (pool_.shared(s.blocks[index])) {
      const std::int32_t copy = pool_.acquire();
      step_.copies.push_back({s.blocks[index], copy});
      pool_.release(s.blocks[index]);
      s.blocks[index] = copy;
    }
  }
}

StepPart& Batcher::add_part(Sequence& s, std::int32_t rows) {
  make_writable(s, rows);
  s.planned = rows;
  step_.parts.push_back({static_cast<std::int32_t>(step_.tokens.size()), rows, s.computed,
                         static_cast<std::int32_t>(step_.block_table.size())});
  step_.block_table.insert(step_.block_table.end(), s.blocks.begin(), s.blocks.end());
  ++counts_.requests;
  return step_.parts.back();
}

void Batcher::add_sample(const Sequence& s, std::int32_t row, std::int32_t depth) {
  const std::int32_t index = static_cast<std::int32_t>(s.trajectory.tokens.size()) + depth;
  step_.samples.push_back({s.noise, row, index, index < sampling_.min_tokens ? 1 : 0});
}

void Batcher::add_rows(Sequence& s, std::int32_t rows) {
  const StepPart& part = add_part(s, rows);
  step_.tokens.insert(step_.tokens.end(), s.tokens.begin() + s.computed,
                      s.tokens.begin() + s.computed + rows);
  draft_index_.resize(step_.tokens.size(), -1);
  if (s.computed + rows == static_cast<std::int32_t>(s.tokens.size()))
    add_sample(s, part.first_row + rows - 1, 0);
}

void Batcher::add_draft(Sequence& s, const DraftTree& draft) {
  if (static_cast<std::int32_t>(draft.tokens.size()) > room(s))
    throw std::logic_error("a draft is longer than there is room for");
  rows_.lay_out(draft);
  StepPart& part = add_part(s, rows_.size());
  if (!rows_.chain()) {
    part.first_parent = static_cast<std::int32_t>(step_.parents.size());
    step_.parents.insert(step_.parents.end(), rows_.parent().begin(), rows_.parent().end());
  }
  draft_index_.insert(draft_index_.end(), rows_.draft().begin(), rows_.draft().end());
  for (std::int32_t row = 0; row < rows_.size(); ++row) {
    const std::int32_t token = rows_.draft()[row];
    step_.tokens.push_back(token < 0 ? s.tokens.back() : draft.tokens[token]);
    add_sample(s, part.first_row + row, rows_.depth()[row]);
  }
  counts_.drafted += rows_.size() - 1;
}

// Past these the response ends whatever is drafted. The rows of a tree take as many slots of the
// cache as it has tokens, so that its size, not its depth alone, keeps to what was reserved.
std::int32_t Batcher::room(const Sequence& s) const {
  const auto response = static_cast<std::int32_t>(s.trajectory.tokens.size());
  return std::min(sampling_.max_tokens - response, limits_.context - s.prompt_length - response) -
         1;
}

/// Makes the sequence ready for a step; false while it waits for a sibling to compute the prompt.
bool Batcher::settle(Sequence& s) {
  if (waits_for_prefix(s)) return false;
  if (s.blocks.empty() && !s.owns_prefix) fork_from_prefix(s);
  return true;
}

std::span<const Decoding> Batcher::decoding() {
  decoding_.clear();
  prefill_rows_ = 0;
  for (Sequence& s : sequences_) {
    if (!settle(s)) continue;
    const std::int32_t remaining = static_cast<std::int32_t>(s.tokens.size()) - s.computed;
    if (remaining == 1) {
      decoding_.push_back({s.trajectory.id, static_cast<std::int32_t>(s.trajectory.tokens.size()),
                           static_cast<std::int32_t>(s.tokens.size()), room(s)});
    } else {
      prefill_rows_ = std::min(prefill_rows_ + remaining, limits_.prefill_chunk);
    }
  }
  return decoding_;
}

const Step& Batcher::plan(std::span<const DraftTree> drafts) {
  step_.clear();
  step_.moves.swap(moves_);
  draft_index_.clear();
  counts_ = {};
  std::int32_t budget = limits_.prefill_chunk;
  std::size_t decoding = 0;
  for (Sequence& s : sequences_) {
    s.planned = 0;
    if (!settle(s)) continue;
    const std::int32_t remaining = static_cast<std::int32_t>(s.tokens.size()) - s.computed;
    if (remaining == 1) {
      const std::size_t index = decoding++;
      if (drafts.empty() || drafts[index].tokens.empty()) {
        add_rows(s, 1);
      } else {
        add_draft(s, drafts[index]);
      }
      counts_.decode_tokens += s.planned;
    } else if (budget > 0) {
      const std::int32_t rows = std::min(remaining, budget);
      add_rows(s, rows);
      budget -= rows;
      counts_.prefill_tokens += rows;
    }
  }
  return step_;
}

// The prompt's KV is complete: its siblings may fork from it. The sequence keeps its blocks; the
// one it writes next is now shared and will be copied.
void Batcher::share_prompt(Sequence& s) {
  Prefix& prefix = *s.prefix;
  const std::int32_t count = blocks_for(s.prompt_length, limits_.kv_block);
  prefix.blocks.assign(s.blocks.begin(), s.blocks.begin() + count);
  for (const std::int32_t block : prefix.blocks) pool_.share(block);
  prefix.ready = true;
}

std::optional<FinishReason> Batcher::append(Sequence& s, const kernels::Sampled& sampled) {
  Trajectory& t = s.trajectory;
  s.tokens.push_back(sampled.token);
  t.tokens.push_back(sampled.token);
  t.logprob.push_back(sampled.logprob);
  t.sampling_logprob.push_back(sampled.sampling_logprob);
  const auto length = static_cast<std::int32_t>(t.tokens.size());
  const bool matched = text_ != nullptr && s.matcher.append(text_->bytes_of(sampled.token));
  if (std::find(stops_.begin(), stops_.end(), sampled.token) != stops_.end())
    return FinishReason::stop_id;
  if (matched && length >= sampling_.min_tokens) return FinishReason::stop_string;
  if (length >= sampling_.max_tokens) return FinishReason::length;
  if (s.prompt_length + length >= limits_.context) return FinishReason::context;
  return std::nullopt;
}

// The row of the part that drafts `token` after row `row`, or -1.
std::int32_t Batcher::child_row(const StepPart& part, std::int32_t row, TokenId token) const {
  for (std::int32_t child = row + 1; child < part.rows; ++child) {
    const std::int32_t parent =
        part.first_parent < 0 ? child - 1 : step_.parents[part.first_parent + child];
    if (parent < row) break;  // depth first: the rows under `row` are over
    if (parent == row && step_.tokens[part.first_row + child] == token) return child;
  }
  return -1;
}

void Batcher::move_slot(const Sequence& s, std::int32_t from, std::int32_t to) {
  if (from == to) return;
  const std::int32_t block = limits_.kv_block;
  moves_.push_back({s.blocks[from / block], from % block, s.blocks[to / block], to % block});
}

/// Walks from the last committed token along the draft for as long as it says what the target says.
/// `sampled`: of the part's rows.
std::optional<FinishReason> Batcher::verify(Sequence& s, const StepPart& part,
                                            std::span<const kernels::Sampled> sampled) {
  const std::int32_t base = part.first_position;
  const std::size_t first_move = moves_.size();
  std::optional<FinishReason> reason;
  for (std::int32_t row = 0; row >= 0 && !reason;) {
    move_slot(s, base + row, s.computed++);
    const TokenId token = sampled[row].token;
    reason = append(s, sampled[row]);
    committed_tokens_.push_back(token);
    row = child_row(part, row, token);
    if (row >= 0) committed_path_.push_back(draft_index_[part.first_row + row]);
  }
  if (reason) moves_.resize(first_move);  // its blocks go
  return reason;
}

std::vector<Trajectory> Batcher::commit(std::span<const kernels::Sampled> sampled) {
  std::vector<Trajectory> finished;
  committed_.clear();
  committed_tokens_.clear();
  committed_path_.clear();
  committed_tokens_.reserve(sampled.size());  // spans into them stay valid
  committed_path_.reserve(sampled.size());
  std::size_t next_sample = 0;
  std::size_t next_part = 0;
  std::int32_t decoding = 0;
  for (auto it = sequences_.begin(); it != sequences_.end();) {
    Sequence& s = *it;
    const std::int32_t rows = std::exchange(s.planned, 0);
    const std::int32_t remaining = static_cast<std::int32_t>(s.tokens.size()) - s.computed;
    if (rows == 0) {
      ++it;
      continue;
    }
    const StepPart& part = step_.parts[next_part++];
    Committed done;
    done.id = s.trajectory.id;
    if (remaining == 1) done.decoding = decoding++;
    const std::size_t first_token = committed_tokens_.size();
    const std::size_t first_accepted = committed_path_.size();
    std::optional<FinishReason> reason;
    if (remaining == 1) {
      reason = verify(s, part, sampled.subspan(next_sample, rows));
      next_sample += rows;
    } else {
      s.computed += rows;
      if (rows == remaining) {
        committed_tokens_.push_back(sampled[next_sample].token);
        reason = append(s, sampled[next_sample++]);
      }
    }
    if (committed_tokens_.size() > first_token) {
      done.tokens = std::span(committed_tokens_).subspan(first_token);
      done.path = std::span(committed_path_).subspan(first_accepted);
      done.finished = reason.has_value();
      committed_.push_back(done);
    }
    if (s.owns_prefix && !s.prefix->ready && s.computed >= s.prompt_length) share_prompt(s);
    if (reason) {
      s.trajectory.finish_reason = *reason;
      finished.push_back(std::move(s.trajectory));
      remove(s);
      it = sequences_.erase(it);
    } else {
      ++it;
    }
  }
  return finished;
}

void Batcher::remove(Sequence& s) {
  for (const std::int32_t block : s.blocks) pool_.release(block);
  reserved_ -= s.reserved;
  --s.prefix->users;
}

std::vector<Trajectory> Batcher::stop() {
  std::vector<Trajectory> partial;
  for (Sequence& s : sequences_) {
    s.trajectory.finish_reason = FinishReason::partial;
    partial.push_back(std::move(s.trajectory));
    remove(s);
  }
  sequences_.clear();
  moves_.clear();
  return partial;
}

}  // namespace paceline::engine
