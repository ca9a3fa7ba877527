#include "runtime/draft/head_sequences.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace paceline::draft {
namespace {

/// Prompt names of sequences that share no prompt. They are above the names in runs, which are
/// indices in a file, and below the names in measurements (costs/cost_measurement.cpp).
constexpr std::uint32_t kFirstAlone = 0x80000000U;
constexpr std::uint32_t kMostAlone = 0x40000000U;

}  // namespace

HeadSequences::HeadSequences(kernels::Backend& backend,
                             std::shared_ptr<const model::HeadWeights> weights,
                             std::shared_ptr<const kernels::Embedding> embedding,
                             TensorParallelGroup& alone, const DraftSequencesOptions& options)
    : DraftSequences(backend, options),
      block_(block_size(weights->config())),
      head_(model::make_head({backend, std::move(weights), std::move(embedding),
                              options.max_requests * options.width + options.prefill_chunk,
                              options.max_requests * options.logit_rows,
                              options.max_position + block_, alone})),
      hidden_(head_->layer().hidden),
      mask_(mask_token(head_->weights().config())),
      most_rows_(static_cast<std::size_t>(options.max_requests) * (mask_ ? options.width : 1) +
                 options.prefill_chunk) {
  kv_shape_ = head_->kv_shape(options.kv_block);
  cache_ = backend.allocate(kv_shape_.block_bytes() * options.kv_blocks);
}

void HeadSequences::drop_kv() {
  kv_ = kv::Sequences(options_.kv_blocks, options_.kv_block);
  for (auto& [id, s] : requests_) s.kv.reset();
}

const HeadSequences::Sequence& HeadSequences::started(RequestId id) const {
  const auto at = requests_.find(id);
  if (at == requests_.end()) throw std::logic_error("draft for a request that was not started");
  return at->second;
}

HeadSequences::Sequence& HeadSequences::started(RequestId id) {
  return const_cast<Sequence&>(std::as_const(*this).started(id));
}

void HeadSequences::start(const DraftStart& start) {
  const auto [at, added] = requests_.try_emplace(start.id);
  if (!added) throw std::logic_error("a request was started twice");
  Sequence& s = at->second;
  s.text = text_of(start);
  s.prompt = &prompts_[start.id.prompt];
  ++s.prompt->requests;
}

void HeadSequences::commit(RequestId id, std::span<const TokenId> tokens) {
  DraftText& text = started(id).text;
  DraftSequences::append(text, tokens);
  text.committed = text.tokens.size();
}

void HeadSequences::finish(RequestId id) {
  Sequence& s = started(id);
  close(s);
  --s.prompt->requests;
  requests_.erase(id);
  // A prompt whose KV is held serves siblings that come later.
  std::erase_if(prompts_, [this](const auto& entry) {
    return entry.second.requests == 0 && !kv_.holds_prompt(entry.first);
  });
}

void HeadSequences::close(Sequence& s) {
  if (s.kv) kv_.close(*std::exchange(s.kv, std::nullopt));
}

void HeadSequences::observe(RequestId id, std::int32_t first, std::span<const std::byte> features) {
  Sequence& s = started(id);
  std::int64_t position = first;
  if (position < s.common()) {
    const auto rows = std::min<std::int64_t>(
        s.common() - position, static_cast<std::int64_t>(features.size() / feature_bytes()));
    Features& prompt = s.prompt->features;
    // The prompt is computed anew: held features are of no use without the KV before them.
    if (position == 0 && prompt.first > 0 && !kv_.holds_prompt(id.prompt)) prompt = {};
    if (position <= prompt.end) {
      const std::size_t bytes = static_cast<std::size_t>(rows) * feature_bytes();
      prompt.add(position, features.first(bytes), feature_bytes());
      features = features.subspan(bytes);
      position += rows;
    }
  }
  if (features.empty()) return;
  Features& own = s.features;
  const bool gap = own.end > 0 && position > own.end;
  if (own.end == 0) own.first = own.end = position;
  own.add(position, features, feature_bytes());
  const bool many = own.drop_old(feature_bytes());
  if (gap || many) close(s);
}

/// Whether the rows that siblings have in common are computed, or can be.
bool HeadSequences::knows_prompt(RequestId id, const Sequence& s) const {
  if (s.common() < 1) return false;
  const Features& prompt = s.prompt->features;
  return prompt.end == s.common() && (prompt.first == 0 || kv_.holds_prompt(id.prompt));
}

/// The first position whose row can be computed if no KV of the request is held; known(): no row
/// can be computed.
std::int64_t HeadSequences::known_from(RequestId id, const Sequence& s) const {
  const bool any = s.features.end > 0;
  if ((!any || s.features.first <= s.common()) && knows_prompt(id, s)) return 0;
  return any ? s.features.first : s.known();
}

/// Whether features are known to the end of the text.
bool HeadSequences::can_draft(RequestId id, const Sequence& s) const {
  if (s.known() < 1 || s.text.foreign) return false;
  if (s.kv) return s.known() <= std::max(s.features.end, s.shares ? s.common() : 0);
  const std::int64_t end = s.features.end > 0 ? s.features.end : s.common();
  return known_from(id, s) < s.known() && s.known() <= end;
}

// The last two rows do not count, for every round may leave them, as with a draft model.
int HeadSequences::lag(RequestId id) const {
  const Sequence& s = started(id);
  if (!can_draft(id, s)) return 0;
  std::int64_t held = s.origin + s.computed;
  if (!s.kv) {
    const bool whole = known_from(id, s) == 0 && s.common() > 0;
    held = whole && kv_.holds_prompt(id.prompt) ? s.common() : known_from(id, s);
  }
  return static_cast<int>(std::max<std::int64_t>(0, s.known() - held - 2));
}

void HeadSequences::begin(std::span<Member> members) {
  begin_round(members.size());
  clear_pass();
  count_ = static_cast<int>(members.size());
  parts_.resize(std::max(parts_.size(), members.size()));
  for (int i = 0; i < count_; ++i) {
    Part& part = parts_[i];
    part.id = members[i].id;
    part.sequence = &started(part.id);
    part.assumed = part.masked = part.block = part.read = 0;
    part.tokens.clear();
    part.parents.clear();
    part.features.clear();
    if (std::exchange(part.sequence->asked, round_) == round_)
      throw std::logic_error("a request is in a round of drafts twice");
  }
  std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) {
    return parts_[a].sequence->served > parts_[b].sequence->served;
  });
  for (const int i : order_) {
    Part& part = parts_[i];
    Sequence& s = *part.sequence;
    Member& member = members[i];
    if (s.kv) kv_.roll_back(*s.kv, std::min(kv_.length(*s.kv), s.computed));
    bool serves = can_draft(member.id, s);
    const auto assumed = static_cast<std::int64_t>(member.assumed.size());
    if (block_ > 0) {
      // Room for a block is the same for any draft. Its first row is the last token's.
      member.ahead = static_cast<int>(std::min<std::int64_t>(member.ahead, block_ - 2 - assumed));
      serves = serves && member.ahead >= 0 && reserve(member.id, s, block_);
    } else if (serves && !reserve(member.id, s, assumed + member.ahead)) {
      member.ahead = 0;
      serves = reserve(member.id, s, assumed);
    }
    if (!serves) {
      member.ahead = -1;
      part.sequence = nullptr;
      continue;
    }
    s.served = round_;
    part.assumed = static_cast<std::int32_t>(assumed);
    if (block_ > 0) {
      part.block = block_;
      part.read = 1 + member.ahead;
      continue;
    }
    if (mask_) {
      part.masked = part.assumed + member.ahead;
      continue;
    }
    for (const TokenId token : member.assumed)
      append(i, token, static_cast<std::int32_t>(part.tokens.size()) - 1);
  }
}

/// Reserves room for the text's rows and `ahead` rows after them.
bool HeadSequences::reserve(RequestId id, Sequence& s, std::int64_t ahead) {
  for (;;) {
    if (!s.kv) {
      // Without KV of the prompt, which may have been evicted meanwhile, there may be no draft.
      if (!can_draft(id, s)) return false;
      s.origin = known_from(id, s);
      s.shares = s.origin == 0 && knows_prompt(id, s);
    }
    const auto rows = static_cast<std::int32_t>(s.known() - s.origin + ahead);
    if (s.kv) {
      if (kv_.reserve(*s.kv, rows)) return true;
    } else {
      s.computed = 0;
      const std::uint32_t alone = kFirstAlone + alone_ % kMostAlone;
      s.kv = s.shares ? kv_.open(id.prompt, static_cast<std::int32_t>(s.common()), rows)
                      : kv_.open(alone, 1, rows);
      if (s.kv && !s.shares) ++alone_;
      if (s.kv) return true;
    }
    if (!evict_for(s)) return false;
  }
}

/// Evicts the KV of the sequence that was in no round for longest. A sequence asked for in this
/// round is evicted only if no other is left. False: all other held KV is served in this round.
bool HeadSequences::evict_for(const Sequence& spared) {
  Sequence* oldest = nullptr;
  for (auto& [id, s] : requests_) {
    if (!s.kv || s.served == round_ || &s == &spared) continue;
    if (oldest == nullptr ||
        std::pair(s.asked == round_, s.served) < std::pair(oldest->asked == round_, oldest->served))
      oldest = &s;
  }
  if (oldest == nullptr) return false;
  close(*oldest);
  return true;
}

void HeadSequences::catch_up(const Reader& read) {
  DraftSequences::catch_up(read);
  if (block_ > 0) {
    compute_blocks(read);
  } else {
    compute_assumed(read);
  }
}

void HeadSequences::compute(std::span<const int> members, const Reader& read) {
  for (const int i : members) {
    if (block_ > 0) break;  // rows without logits stay
    const Sequence& s = *parts_[i].sequence;
    const auto last = static_cast<std::int32_t>(s.known() - s.origin) - 1;  // its logits are read
    if (kv_.length(*s.kv) > last) kv_.roll_back(*s.kv, last);
  }
  for (auto at = members.begin(); at != members.end();) {
    while (at != members.end() && pass_.tokens.size() < most_rows_) {
      const Part& part = parts_[*at];
      const std::int32_t lacks = rows_of(part) - kv_.length(*part.sequence->kv);
      const std::int32_t rows =
          std::min(static_cast<std::int32_t>(most_rows_ - pass_.tokens.size()), lacks);
      if (rows > 0) add_computed(*at, rows);
      if (rows < lacks) break;  // the rest in the next pass
      ++at;
    }
    if (!pass_.tokens.empty()) run_pass(true, read);
  }
  for (const int i : members) {
    Sequence& s = *parts_[i].sequence;
    s.computed = rows_of(parts_[i]) - parts_[i].masked;
    s.features.drop_before(std::min(s.known(), s.features.end) - 1, feature_bytes());
    if (s.shares) s.prompt->features.drop_before(s.common() - 1, feature_bytes());
  }
}

/// Runs one pass per token without masked rows, since the head's own feature of a token is needed
/// for the next one.
void HeadSequences::compute_assumed(const Reader& read) {
  if (mask_) return;
  for (std::int32_t done = 0;; ++done) {
    for (int i = 0; i < count_; ++i) {
      if (done < parts_[i].assumed) add_appended(i, 1, done + 1 == parts_[i].assumed);
    }
    if (pass_.tokens.empty()) return;
    run_pass(false, read);
  }
}

/// Runs the members' blocks, each whole in one pass.
void HeadSequences::compute_blocks(const Reader& read) {
  for (int i = 0; i < count_; ++i) {
    if (parts_[i].block == 0) continue;
    if (pass_.tokens.size() + parts_[i].block > most_rows_) run_pass(false, read);
    add_block(i);
  }
  if (!pass_.tokens.empty()) run_pass(false, read);
}

void HeadSequences::extend(std::span<const Next> next, const Reader& read) {
  if (mask_) throw std::logic_error("a draft made at once has no further pass");
  for (auto first = next.begin(); first != next.end();) {
    const int member = first->member;
    const Part& part = parts_.at(member);
    auto last = first;
    for (; last != next.end() && last->member == member; ++last) {
      const auto tokens = static_cast<std::int32_t>(part.tokens.size());
      append(member, last->token, last->after == kLast ? tokens - 1 : part.assumed + last->after);
    }
    add_appended(member, static_cast<std::int32_t>(last - first), true);
    first = last;
  }
  if (!next.empty()) run_pass(false, read);
}

void HeadSequences::append(int member, TokenId token, std::int32_t parent) {
  parts_[member].tokens.push_back(token);
  parts_[member].parents.push_back(parent);
}

void HeadSequences::clear_pass() {
  pass_.clear();
  of_target_.clear();
  own_.clear();
  read_.clear();
}

const std::byte* HeadSequences::feature(const Sequence& s, std::int64_t position) const {
  const bool common = s.shares && position < s.common();
  const Features& features = common ? s.prompt->features : s.features;
  if (position < features.first || position >= features.end)
    throw std::logic_error("a feature that is not held");
  return features.bytes.data() + (position - features.first) * feature_bytes();
}

std::int32_t HeadSequences::rows_of(const Part& part) const {
  return static_cast<std::int32_t>(part.sequence->known() - part.sequence->origin) + part.masked;
}

/// Adds rows with the target's features, then masked rows. The text's last row has the logits of
/// the token after the text, and each masked row has the logits of a further token. Logits of
/// assumed tokens are not read.
void HeadSequences::add_computed(int member, std::int32_t rows) {
  const Part& part = parts_[member];
  const Sequence& s = *part.sequence;
  const std::int64_t first = s.origin + add_segment(member, rows).first_position;
  for (std::int64_t position = first; position < first + rows; ++position) {
    const bool masked = position >= s.known();
    pass_.tokens.push_back(masked ? *mask_ : s.text.tokens[position + 1]);
    const std::byte* feature =
        masked ? head_->weights().mask_feature().data() : this->feature(s, position);
    of_target_.insert(of_target_.end(), feature, feature + feature_bytes());
    const std::int64_t after = position + 1 - s.known();  // tokens between the text and the logits'
    if (block_ > 0 || after < 0 || (mask_ && after < part.assumed)) continue;
    pass_.logit_rows.push_back(static_cast<std::int32_t>(pass_.tokens.size()) - 1);
    pass_.logit_members.push_back(member);
    read_.push_back(after >= part.assumed);
  }
}

/// Adds a block. Its masked row i has the logits of the i-th token after the text. Logits of
/// assumed tokens, and of tokens past the draft, are not read.
void HeadSequences::add_block(int member) {
  const Part& part = parts_[member];
  const Sequence& s = *part.sequence;
  kernels::Segment& segment = add_segment(member, part.block);
  segment.seen = segment.first_position + segment.rows;
  for (std::int32_t row = 0; row < part.block; ++row) {
    const std::int32_t drafted = row - 1 - part.assumed;  // tokens of the draft before this row's
    if (drafted >= 0 && drafted < part.read) {
      pass_.logit_rows.push_back(static_cast<std::int32_t>(pass_.tokens.size()));
      pass_.logit_members.push_back(member);
      read_.push_back(true);
    }
    pass_.tokens.push_back(row == 0 ? s.text.tokens[s.known()] : *mask_);
  }
}

/// Adds rows of the next tokens after the text, with the head's own features. They are a tree that
/// grows.
void HeadSequences::add_appended(int member, std::int32_t rows, bool read) {
  const Part& part = parts_[member];
  const Sequence& s = *part.sequence;
  kernels::Segment& segment = add_segment(member, rows);
  segment.before = segment.first_position - s.computed;
  segment.first_position = s.computed;
  segment.parents = part.parents.data();
  for (std::int32_t token = segment.before; token < segment.before + rows; ++token) {
    pass_.logit_rows.push_back(static_cast<std::int32_t>(pass_.tokens.size()));
    pass_.logit_members.push_back(member);
    read_.push_back(read);
    pass_.tokens.push_back(part.tokens[token]);
    const auto own = part.features.begin() + std::ptrdiff_t{1 + part.parents[token]} * hidden_;
    own_.insert(own_.end(), own, own + hidden_);
  }
}

void HeadSequences::run_pass(bool of_target, const Reader& read) {
  prepare_pass();
  const model::FeatureHead::Output out =
      of_target ? head_->forward(std::span<const std::byte>(of_target_), pass_.tokens,
                                 pass_.segments, pass_.logit_rows, kv_shape_, cache_->data())
                : head_->forward(std::span<const float>(own_), pass_.tokens, pass_.segments,
                                 pass_.logit_rows, kv_shape_, cache_->data());
  end_pass();
  const std::size_t recurrent = mask_ ? 0 : pass_.logit_members.size();
  last_.resize(recurrent * hidden_);
  if (recurrent > 0) {
    backend_.read(reinterpret_cast<const std::byte*>(out.features),
                  std::as_writable_bytes(std::span(last_)));
  }
  for (std::size_t i = 0; i < recurrent; ++i) {
    const auto own = last_.begin() + static_cast<std::ptrdiff_t>(i) * hidden_;
    std::vector<float>& features = parts_[pass_.logit_members[i]].features;
    features.insert(features.end(), own, own + hidden_);
  }
  for (std::size_t first = 0; first < read_.size();) {
    std::size_t last = first;
    while (last < read_.size() && read_[last]) ++last;
    if (last > first) {
      read(std::span(pass_.logit_members).subspan(first, last - first),
           out.logits + first * static_cast<std::size_t>(vocab()));
    }
    first = last + 1;
  }
  clear_pass();
}

}  // namespace paceline::draft
