#include "runtime/draft/model_sequences.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace paceline::draft {
namespace {

std::size_t common_prefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                                  a.begin());
}

}  // namespace

ModelSequences::ModelSequences(kernels::Backend& backend, model::LoadWeights load_weights,
                               TensorParallelGroup& group, const DraftSequencesOptions& options)
    : DraftSequences(backend, options), load_weights_(std::move(load_weights)), group_(group) {
  std::shared_ptr<const model::Weights> weights;
  while (weights == nullptr) weights = load_weights_();
  take_memory(std::move(weights));
}

void ModelSequences::take_memory(std::shared_ptr<const model::Weights> weights) {
  auto decoder = std::make_unique<model::Decoder>(backend_, std::move(weights), group_,
                                                  options_.max_requests + options_.prefill_chunk,
                                                  options_.max_requests, options_.max_position);
  vocab_ = decoder->weights().config().vocab;
  kv_shape_ = decoder->kv_shape(options_.kv_block);
  cache_ = backend_.allocate(kv_shape_.block_bytes() * options_.kv_blocks);
  decoder_ = std::move(decoder);
}

void ModelSequences::drop_kv() {
  kv_ = kv::Sequences(options_.kv_blocks, options_.kv_block);
  std::erase_if(requests_,
                [](const auto& entry) { return entry.second.left || entry.first.branch != 0; });
  for (auto& [key, s] : requests_) s.kv.reset();
}

void ModelSequences::suspend() {
  drop_kv();
  cache_.reset();
  decoder_.reset();
}

bool ModelSequences::resume() {
  if (!suspended()) return true;
  std::shared_ptr<const model::Weights> weights = load_weights_();
  if (weights == nullptr) return false;
  take_memory(std::move(weights));
  return true;
}

const ModelSequences::Sequence& ModelSequences::started(RequestId id) const {
  const auto at = requests_.find({id, 0});
  if (at == requests_.end() || at->second.left)
    throw std::logic_error("draft for a request that was not started");
  return at->second;
}

ModelSequences::Sequence& ModelSequences::started(RequestId id) {
  return const_cast<Sequence&>(std::as_const(*this).started(id));
}

/// Number of leading tokens that equal the tokens drafted after the committed text.
std::size_t ModelSequences::agreed(const Sequence& s, std::span<const TokenId> tokens) {
  return common_prefix(std::span(s.text.tokens).subspan(s.text.committed), tokens);
}

/// Forgets tokens from `size` on, and their KV.
void ModelSequences::cut(Sequence& s, std::size_t size) {
  s.text.tokens.resize(size);
  const auto length = static_cast<std::int32_t>(size);
  if (s.kv && kv_.length(*s.kv) > length) kv_.roll_back(*s.kv, length);
}

/// Puts these tokens, and no others, after the committed text. Tokens drafted before keep their KV
/// as far as they agree with these.
void ModelSequences::assume(Sequence& s, std::span<const TokenId> tokens) {
  const std::size_t kept = agreed(s, tokens);
  cut(s, s.text.committed + kept);
  append(s.text, tokens.subspan(kept));
  s.base = s.text.tokens.size();
}

void ModelSequences::close(Sequence& s) {
  if (s.kv) kv_.close(*std::exchange(s.kv, std::nullopt));
}

void ModelSequences::start(const DraftStart& start) {
  const auto [at, added] = requests_.try_emplace({start.id, 0});
  Sequence& s = at->second;
  if (!added && !s.left) throw std::logic_error("a request was started twice");
  DraftText text = text_of(start);
  if (!added) cut(s, common_prefix(s.text.tokens, text.tokens));  // the request comes back
  s.text = std::move(text);
  s.left = false;
}

void ModelSequences::drop_branches(RequestId id,
                                   const std::function<bool(const Sequence&)>& which) {
  auto at = requests_.upper_bound({id, 0});
  while (at != requests_.end() && at->first.id == id) {
    const auto branch = at++;
    if (!which(branch->second)) continue;
    close(branch->second);
    requests_.erase(branch);
  }
}

/// Gives the request's sequence the tokens and KV of the branch that the target follows furthest,
/// if this is further than the sequence's own. Drops the branches that the target contradicts.
void ModelSequences::follow(RequestId id, Sequence& s, std::span<const TokenId> tokens) {
  Sequence* best = &s;
  for (auto at = requests_.upper_bound({id, 0}); at != requests_.end() && at->first.id == id; ++at)
    if (agreed(at->second, tokens) > agreed(*best, tokens)) best = &at->second;
  if (best != &s) {
    std::swap(s.kv, best->kv);
    std::swap(s.text.tokens, best->text.tokens);
  }
  drop_branches(id, [&](const Sequence& branch) { return agreed(branch, tokens) < tokens.size(); });
  for (auto at = requests_.upper_bound({id, 0}); at != requests_.end() && at->first.id == id; ++at)
    at->second.text.committed += tokens.size();
}

void ModelSequences::commit(RequestId id, std::span<const TokenId> tokens) {
  Sequence& s = started(id);
  follow(id, s, tokens);
  const std::size_t kept = agreed(s, tokens);
  if (kept < tokens.size()) {  // later drafted tokens follow a token that was not said
    cut(s, s.text.committed + kept);
    append(s.text, tokens.subspan(kept));
  }
  s.text.committed += tokens.size();
}

void ModelSequences::leave(RequestId id) {
  Sequence& s = started(id);
  drop_branches(id, [](const Sequence&) { return true; });
  s.left = true;
  if (!s.kv) requests_.erase({id, 0});
}

void ModelSequences::finish(RequestId id) {
  drop_branches(id, [](const Sequence&) { return true; });
  close(started(id));
  requests_.erase({id, 0});
}

// Tokens that every round leaves do not count: the last token, and also the token before it if the
// draft was accepted to its end.
int ModelSequences::lag(RequestId id) const {
  const Sequence& s = started(id);
  std::int64_t held = 0;
  if (s.kv) {
    held = kv_.length(*s.kv);
  } else if (kv_.holds_prompt(id.prompt)) {
    held = static_cast<std::int64_t>(s.text.prompt);
  }
  const auto size = static_cast<std::int64_t>(s.text.committed);
  return static_cast<int>(std::max<std::int64_t>(0, size - held - 2));
}

void ModelSequences::begin(std::span<Member> members) {
  begin_round(members.size());
  members_.clear();
  for (const Member& member : members) {
    Sequence& own = started(member.id);
    const auto at = requests_.find({member.id, member.branch});
    if (at != requests_.end() && std::exchange(at->second.asked, round_) == round_)
      throw std::logic_error("a request is in a round of drafts twice");
    members_.push_back(member.branch == 0 ? &own : nullptr);
  }
  const auto served = [&](int i) {
    return members_[i] == nullptr ? -1 : static_cast<std::int64_t>(members_[i]->served);
  };
  std::ranges::stable_sort(order_, [&](int a, int b) { return served(a) > served(b); });
  prompts_.clear();
  taken_ = 0;
  for (const int i : order_)
    members_[i] = members[i].branch == 0 ? serve(members[i]) : serve_branch(members[i]);
}

/// Lowers a member's positions past the assumed tokens to those with room. `shared`: blocks that it
/// shares with members that have room. Returns whether there is room for its text.
bool ModelSequences::fits(Member& member, std::int64_t size, std::int32_t shared) const {
  const std::int64_t positions =
      std::int64_t{options_.kv_blocks - taken_ + shared} * options_.kv_block;
  member.ahead = static_cast<int>(std::min<std::int64_t>(member.ahead, positions - size));
  if (member.ahead < 0) member.ahead = -1;
  return member.ahead >= 0;
}

/// Blocks that a request's sequence takes for its prompt. For a prompt that no member has yet,
/// these are the `shared` blocks that siblings share, and one more to fork from; otherwise none.
std::int32_t ModelSequences::prompt_blocks(RequestId id, std::int32_t shared) const {
  const bool known = std::ranges::find(prompts_, id.prompt) != prompts_.end();
  return known ? 0 : shared + 1;
}

/// Counts the blocks of a request's sequence, which stay during the round.
void ModelSequences::hold(RequestId id, Sequence& own) {
  own.served = round_;
  const auto shared = static_cast<std::int32_t>((own.text.prompt - 1) / options_.kv_block);
  taken_ +=
      prompt_blocks(id, shared) + static_cast<std::int32_t>(kv_.table(*own.kv).size()) - shared;
  prompts_.push_back(id.prompt);
}

ModelSequences::Sequence* ModelSequences::serve(Member& member) {
  Sequence& s = started(member.id);
  const auto shared = static_cast<std::int32_t>((s.text.prompt - 1) / options_.kv_block);
  const auto size = static_cast<std::int64_t>(s.text.committed + member.assumed.size());
  if (!fits(member, size, shared - prompt_blocks(member.id, shared))) return nullptr;
  s.served = round_;
  const auto kept = static_cast<std::int64_t>(s.text.committed + agreed(s, member.assumed));
  drop_branches(member.id, [&](const Sequence& branch) {
    return branch.shared > std::min(kept, size - 1);  // the row of the last token is run again
  });
  assume(s, member.assumed);
  // fits() has promised no more than there is.
  if (!reserve(member.id, s, size + member.ahead, Victims::all))
    throw std::logic_error("a draft model's KV pool exhausted");
  hold(member.id, s);
  return &s;
}

ModelSequences::Sequence* ModelSequences::serve_branch(Member& member) {
  Sequence& own = started(member.id);
  const int wanted = std::exchange(member.ahead, -1);
  if (!own.kv || !kv_.holds_prompt(member.id.prompt)) return nullptr;
  if (own.served != round_) hold(member.id, own);
  const auto size = static_cast<std::int64_t>(own.text.committed + member.assumed.size());
  auto at = requests_.find({member.id, member.branch});
  if (at != requests_.end()) {
    const Sequence& s = at->second;
    const auto kept = static_cast<std::int64_t>(s.text.committed + agreed(s, member.assumed));
    if (s.shared > std::min(kept, size - 1)) {
      close(at->second);
      requests_.erase(at);
      at = requests_.end();
    }
  }
  // A row that is run again must not be shared.
  const std::int64_t common = std::min<std::int64_t>(
      {static_cast<std::int64_t>(own.text.committed + agreed(own, member.assumed)),
       kv_.length(*own.kv), static_cast<std::int64_t>(own.base) - 1, size - 1});
  if (at == requests_.end() && common < static_cast<std::int64_t>(own.text.prompt)) return nullptr;
  const auto whole = static_cast<std::int32_t>(
      (at != requests_.end() ? at->second.shared : common) / options_.kv_block);
  member.ahead = wanted;
  if (!fits(member, size, whole)) return nullptr;
  const auto positions = static_cast<std::int32_t>(size + member.ahead);
  if (at == requests_.end()) {
    std::optional<kv::Handle> kv;
    while (!(kv = kv_.branch(*own.kv, static_cast<std::int32_t>(common), positions))) {
      if (!evict(Victims::unasked)) return leave_out(member);
    }
    at = requests_.try_emplace({member.id, member.branch}).first;
    at->second.text = own.text;
    at->second.kv = kv;
    at->second.shared = whole * options_.kv_block;
    at->second.asked = round_;
  }
  Sequence& s = at->second;
  s.served = round_;
  assume(s, member.assumed);
  if (!reserve(member.id, s, positions, Victims::unasked)) return leave_out(member);
  taken_ += static_cast<std::int32_t>(kv_.table(*s.kv).size()) - whole;
  return &s;
}

ModelSequences::Sequence* ModelSequences::leave_out(Member& member) {
  member.ahead = -1;
  return nullptr;
}

bool ModelSequences::reserve(RequestId id, Sequence& s, std::int64_t positions, Victims victims) {
  const auto needed = static_cast<std::int32_t>(positions);
  for (;;) {
    if (s.kv) {
      if (kv_.reserve(*s.kv, needed)) return true;
    } else {
      s.kv = kv_.open(id.prompt, static_cast<std::int32_t>(s.text.prompt), needed);
      if (s.kv) return true;
    }
    if (!evict(victims)) return false;
  }
}

/// Gives up the KV that was in no round for longest, if there is any.
bool ModelSequences::evict(Victims victims) {
  auto oldest = requests_.end();
  for (auto at = requests_.begin(); at != requests_.end(); ++at) {
    const Sequence& s = at->second;
    if (!s.kv || s.served == round_) continue;
    if (victims == Victims::unasked && !s.left && at->first.branch == 0) continue;
    if (oldest == requests_.end() || s.served < oldest->second.served) oldest = at;
  }
  if (oldest == requests_.end()) return false;
  // Branches share blocks that are counted for their request's own sequence.
  if (oldest->first.branch == 0)
    drop_branches(oldest->first.id, [](const Sequence&) { return true; });
  close(oldest->second);
  if (oldest->second.left || oldest->first.branch != 0) requests_.erase(oldest);
  return true;
}

void ModelSequences::compute(std::span<const int> members, const Reader& read) {
  for (const int i : members) {
    const Sequence& s = *members_[i];
    const auto last = static_cast<std::int32_t>(s.base) - 1;  // its row gives the logits
    if (kv_.length(*s.kv) > last) kv_.roll_back(*s.kv, last);
  }
  const auto most = static_cast<std::size_t>(options_.max_requests + options_.prefill_chunk);
  for (auto at = members.begin(); at != members.end();) {
    while (at != members.end() && pass_.tokens.size() < most) {
      const Sequence& s = *members_[*at];
      const std::size_t lacks = s.base - static_cast<std::size_t>(kv_.length(*s.kv));
      const std::size_t rows = std::min(most - pass_.tokens.size(), lacks);
      add_rows(*at, rows, rows == lacks);
      if (rows < lacks) break;  // the rest in the next pass
      ++at;
    }
    run_pass(read);
  }
}

void ModelSequences::extend(std::span<const Next> next, const Reader& read) {
  for (const Next& n : next) {
    members_.at(n.member)->text.tokens.push_back(n.token);
    add_rows(n.member, 1, true);
  }
  if (!next.empty()) run_pass(read);
}

/// Adds the next rows of a member's tokens. `read`: the logits of the last row are wanted.
void ModelSequences::add_rows(int member, std::size_t rows, bool read) {
  const Sequence& s = *members_[member];
  const auto count = static_cast<std::int32_t>(rows);
  const auto begin = s.text.tokens.begin() + add_segment(member, count).first_position;
  pass_.tokens.insert(pass_.tokens.end(), begin, begin + count);
  if (!read) return;
  pass_.logit_rows.push_back(static_cast<std::int32_t>(pass_.tokens.size()) - 1);
  pass_.logit_members.push_back(member);
}

void ModelSequences::run_pass(const Reader& read) {
  prepare_pass();
  const float* logits =
      decoder_->forward(pass_.tokens, pass_.segments, pass_.logit_rows, kv_shape_, cache_->data());
  end_pass();
  if (!pass_.logit_members.empty()) read(pass_.logit_members, logits);
  pass_.clear();
}

}  // namespace paceline::draft
