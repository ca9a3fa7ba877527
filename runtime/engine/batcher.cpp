#include "runtime/engine/batcher.hpp"

#include <algorithm>
#include <stdexcept>

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

void Batcher::add_rows(Sequence& s, std::int32_t rows) {
  make_writable(s, rows);
  s.planned = rows;
  const auto first_row = static_cast<std::int32_t>(step_.tokens.size());
  step_.parts.push_back(
      {first_row, rows, s.computed, static_cast<std::int32_t>(step_.block_table.size())});
  step_.block_table.insert(step_.block_table.end(), s.blocks.begin(), s.blocks.end());
  step_.tokens.insert(step_.tokens.end(), s.tokens.begin() + s.computed,
                      s.tokens.begin() + s.computed + rows);
  ++counts_.requests;
  if (s.computed + rows == static_cast<std::int32_t>(s.tokens.size())) {
    const auto index = static_cast<std::int32_t>(s.trajectory.tokens.size());
    step_.samples.push_back(
        {s.noise, first_row + rows - 1, index, index < sampling_.min_tokens ? 1 : 0});
  }
}

const Step& Batcher::plan() {
  step_.clear();
  counts_ = {};
  std::int32_t budget = limits_.prefill_chunk;
  for (Sequence& s : sequences_) {
    s.planned = 0;
    if (waits_for_prefix(s)) continue;
    if (s.blocks.empty() && !s.owns_prefix) fork_from_prefix(s);
    const std::int32_t remaining = static_cast<std::int32_t>(s.tokens.size()) - s.computed;
    if (remaining == 1) {
      add_rows(s, 1);
      ++counts_.decode_tokens;
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

std::vector<Trajectory> Batcher::commit(std::span<const kernels::Sampled> sampled) {
  std::vector<Trajectory> finished;
  std::size_t next = 0;
  for (auto it = sequences_.begin(); it != sequences_.end();) {
    Sequence& s = *it;
    const bool samples =
        s.planned > 0 && s.computed + s.planned == static_cast<std::int32_t>(s.tokens.size());
    s.computed += s.planned;
    s.planned = 0;
    if (s.owns_prefix && !s.prefix->ready && s.computed >= s.prompt_length) share_prompt(s);
    if (samples) {
      if (const std::optional<FinishReason> reason = append(s, sampled[next++])) {
        s.trajectory.finish_reason = *reason;
        finished.push_back(std::move(s.trajectory));
        remove(s);
        it = sequences_.erase(it);
        continue;
      }
    }
    ++it;
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
  return partial;
}

}  // namespace paceline::engine
