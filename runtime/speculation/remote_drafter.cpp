#include "runtime/speculation/remote_drafter.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "runtime/core/fields.hpp"
#include "runtime/policy/length/outcomes.hpp"
#include "runtime/protocol/messages.hpp"

namespace paceline::speculation {

using namespace protocol;

namespace {

/// Limit on the committed tokens held for a rank that drafts by a head and reads no messages. It is
/// the number of positions whose features are kept for 64 requests, kMostKeptFeatures for each.
constexpr std::size_t kMostHeldTokens = 64 * draft::kMostKeptFeatures;

}  // namespace

RemoteDrafter::RemoteDrafter(Mailbox& mailbox, const Clock& clock,
                             std::vector<policy::DrafterPlace> drafters,
                             const RemoteOptions& options, DrafterWatch::Warn warn)
    : mailbox_(mailbox),
      clock_(clock),
      drafters_(std::move(drafters)),
      options_(options),
      warn_(std::move(warn)) {
  link_all();
}

void RemoteDrafter::link_all() {
  for (const policy::DrafterPlace& drafter : drafters_) {
    links_.try_emplace(drafter.rank,
                       Link{.watch = DrafterWatch(drafter.rank, options_.patience, clock_, warn_),
                            .since = drafter.since,
                            .commits = {},
                            .unopened = {},
                            .prompts = {},
                            .next_features = {}});
  }
}

void RemoteDrafter::use(std::vector<policy::DrafterPlace> drafters) {
  drafters_ = std::move(drafters);
  for (auto& [id, r] : requests_) {
    const policy::DrafterPlace* now = policy::drafter_for(id, options_.deal, drafters_);
    if (r.rank >= 0 && now != nullptr &&
        *now == policy::DrafterPlace{r.rank, links_.at(r.rank).since})
      continue;
    take_back(id, r, DraftEnd::left);
  }
  std::erase_if(links_, [&](const auto& link) {
    const policy::DrafterPlace was{link.first, link.second.since};
    if (std::find(drafters_.begin(), drafters_.end(), was) != drafters_.end()) return false;
    link.second.watch.sum_up();
    return true;
  });
  link_all();
  for (auto& [id, r] : requests_) {
    if (r.rank < 0) give(id, r);
  }
  told();
}

RemoteDrafter::RemoteRequest& RemoteDrafter::request(RequestId id) {
  const auto at = requests_.find(id);
  if (at == requests_.end()) throw std::logic_error("draft for a request that was not started");
  return at->second;
}

void RemoteDrafter::start(const draft::DraftStart& start, double /*now*/) {
  const auto [at, added] = requests_.try_emplace(start.id);
  if (!added) throw std::logic_error("a request was started twice");
  RemoteRequest& r = at->second;
  r.noise = start.noise;
  r.version = start.version;
  r.wanted = start.wanted;
  r.sampling = start.sampling;
  r.response.assign(start.response.begin(), start.response.end());
  prompts_.try_emplace(start.id.prompt, start.prompt.begin(), start.prompt.end());
  give(start.id, r);
  told();
}

/// Gives the request to a drafter rank, if it wants one (RemoteRequest::wanted) and there is one.
void RemoteDrafter::give(RequestId id, RemoteRequest& r) {
  if (!r.wanted) return;
  const policy::DrafterPlace* drafter = policy::drafter_for(id, options_.deal, drafters_);
  if (drafter == nullptr) return;
  r.rank = drafter->rank;
  links_.at(r.rank).unopened.push_back(id);
}

void RemoteDrafter::take_back(RequestId id, RemoteRequest& r, DraftEnd how) {
  drop_drafts(r);
  r.unsent = {};
  if (r.rank < 0) return;
  Link& link = links_.at(r.rank);
  if (r.opened) link.commits.commits.push_back({id, 0, 0, how});
  std::erase(link.unopened, id);
  r.rank = -1;
  r.opened = false;
  r.follows = false;
}

void RemoteDrafter::commit(RequestId id, std::span<const TokenId> tokens, double /*now*/) {
  RemoteRequest& r = request(id);
  if (r.follows) {
    DraftCommits& commits = links_.at(r.rank).commits;
    commits.commits.push_back({id, static_cast<std::int32_t>(commits.tokens.size()),
                               static_cast<std::int32_t>(tokens.size()), DraftEnd::goes_on});
    commits.tokens.insert(commits.tokens.end(), tokens.begin(), tokens.end());
  }
  for (const TokenId token : tokens) {
    const auto index = static_cast<std::int32_t>(r.response.size());
    r.response.push_back(token);
    const bool known = !r.ahead.empty();
    const bool agrees = known && r.ahead.front().token == token;
    const auto node = r.branches.extract(index);
    const Branch* branch = node ? &node.mapped() : nullptr;
    const bool taken =
        !agrees && branch != nullptr && !branch->ahead.empty() && branch->instead == token;
    if (!taken && branch != nullptr) counts_.stale += branch->ahead.size();
    if (agrees) {
      r.ahead.pop_front();
    } else if (known || taken) {
      refute(r, index + 1);
      drop_drafts(r);  // the rest of the chain and the branches follow the refuted token
      if (taken) r.ahead = branch->ahead;
      counts_.foreseen += taken ? 1 : 0;
    }
  }
}

void RemoteDrafter::drop_drafts(RemoteRequest& r) {
  counts_.stale += r.ahead.size();
  r.ahead.clear();
  drop_branches(r);
}

void RemoteDrafter::drop_branches(RemoteRequest& r) {
  for (const auto& [leaves, branch] : r.branches) counts_.stale += branch.ahead.size();
  r.branches.clear();
}

void RemoteDrafter::refute(RemoteRequest& r, std::int32_t length) {
  if (length > r.refuted) r.before = std::exchange(r.refuted, length);
}

void RemoteDrafter::observe(RequestId id, std::int32_t first, std::span<const std::byte> features) {
  RemoteRequest& r = request(id);
  if (options_.feature_bytes == 0 || r.rank < 0) return;
  r.unsent.add(first, features, options_.feature_bytes);
  (void)r.unsent.drop_old(options_.feature_bytes);
}

void RemoteDrafter::end(RequestId id, DraftEnd how) {
  take_back(id, request(id), how);
  const auto next = requests_.erase(requests_.find(id));
  const bool others = (next != requests_.end() && next->first.prompt == id.prompt) ||
                      (next != requests_.begin() && std::prev(next)->first.prompt == id.prompt);
  if (!others) prompts_.erase(id.prompt);
}

void RemoteDrafter::finish(RequestId id, double /*now*/) { end(id, DraftEnd::finished); }
void RemoteDrafter::leave(RequestId id, double /*now*/) { end(id, DraftEnd::left); }

void RemoteDrafter::told() {
  for (auto& [rank, link] : links_) tell(rank, link);
  mailbox_.flush();  // so that drafter ranks draft on while the verifier's next step runs
}

void RemoteDrafter::tell(int rank, Link& link) {
  const Address to{rank, Address::Port::role};
  link.watch.step_ended();
  const bool full = mailbox_.full(to);
  const bool waits =
      full && options_.feature_bytes > 0 && link.commits.tokens.size() <= kMostHeldTokens;
  link.watch.reads(!full || waits);
  if (waits) return;
  if (full) {
    hold_back(link, requests_);
    return;
  }
  bool said = !link.commits.commits.empty();
  if (said) {
    link.commits.since = link.since;
    mailbox_.send(to, encode(link.commits));
    link.commits = {};
  }
  std::size_t opened = 0;
  for (; opened < link.unopened.size() && !mailbox_.full(to); ++opened) {
    open(link, link.unopened[opened]);
    said = true;
  }
  link.unopened.erase(link.unopened.begin(), link.unopened.begin() + opened);
  said = send_features(rank, link) || said;
  if (said) link.watch.told();
}

/// Sends the unsent features of the rank's requests for which RemoteRequest::follows is set. If the
/// mailbox becomes full, the next call goes on with the same request. Returns whether it sent any.
bool RemoteDrafter::send_features(int rank, Link& link) {
  const Address to{rank, Address::Port::role};
  const std::size_t row = options_.feature_bytes;
  if (row == 0 || mailbox_.full(to)) return false;
  const auto most = std::max<std::int64_t>(1, static_cast<std::int64_t>(kMostFeatureBytes / row));
  DraftFeatures message{link.since, {}, {}};
  std::int64_t room = most;
  bool said = false;
  const auto send = [&] {
    if (message.rows.empty()) return;
    mailbox_.send(to, encode(std::exchange(message, {link.since, {}, {}})));
    room = most;
    said = true;
  };
  auto at = requests_.lower_bound(link.next_features);
  for (std::size_t i = 0; i < requests_.size(); ++i, ++at) {
    if (at == requests_.end()) at = requests_.begin();
    auto& [id, r] = *at;
    while (r.rank == rank && r.follows && r.unsent.first < r.unsent.end) {
      if (room == 0) {
        send();
        link.next_features = id;
        if (mailbox_.full(to)) return said;
      }
      const std::int64_t count = std::min(room, r.unsent.end - r.unsent.first);
      const auto bytes = r.unsent.bytes.begin();
      message.rows.push_back(
          {id, static_cast<std::int32_t>(r.unsent.first), static_cast<std::int32_t>(count)});
      message.features.insert(message.features.end(), bytes,
                              bytes + count * static_cast<std::ptrdiff_t>(row));
      r.unsent.drop_before(r.unsent.first + count, row);
      room -= count;
    }
  }
  send();
  return said;
}

/// Sends the request to its rank with the response so far. Drops the tokens drafted for it.
void RemoteDrafter::open(Link& link, RequestId id) {
  RemoteRequest& r = requests_.at(id);
  drop_drafts(r);
  r.refuted = static_cast<std::int32_t>(r.response.size());
  r.before = r.refuted;
  r.opened = true;
  r.follows = true;
  DraftOpen open{link.since, id, {}, r.response, r.noise, r.version, r.sampling};
  if (link.prompts.insert(id.prompt).second) open.prompt = prompts_.at(id.prompt);
  mailbox_.send({r.rank, Address::Port::role}, encode(open));
}

/// Drops the commits that were not sent to a rank yet, except ends of requests. Requests whose
/// commits are dropped will be opened at the rank anew.
void RemoteDrafter::hold_back(Link& link, RequestMap<RemoteRequest>& requests) {
  std::erase_if(link.commits.commits, [&](DraftCommit& commit) {
    if (commit.end != DraftEnd::goes_on) {
      commit.first = 0;
      return false;
    }
    const auto at = requests.find(commit.id);
    if (at != requests.end() && std::exchange(at->second.follows, false))
      link.unopened.push_back(commit.id);
    return true;
  });
  link.commits.tokens.clear();
}

void RemoteDrafter::receive(int from, std::span<const std::byte> message) {
  Link& link = links_.at(from);
  if (link.watch.floods()) {
    ++counts_.flooded;
  } else {
    link.watch.heard(read(from, link, message));
  }
}

DrafterWatch::Worth RemoteDrafter::read(int from, Link& link, std::span<const std::byte> message) {
  using Worth = DrafterWatch::Worth;
  const auto nonsense = [&](const char* what) {
    ++counts_.invalid;
    link.watch.nonsense(what);
    return Worth::none;
  };
  const std::optional<Message> decoded = decode_if_message(message);
  if (!decoded) return nonsense("bytes that are no message");
  const auto* drafts = std::get_if<Drafts>(&*decoded);
  if (may_precede_drafting(*decoded)) return Worth::none;
  if (drafts == nullptr) return nonsense("messages that are not a drafter's to send");
  if (drafts->scores.size() != drafts->tokens.size())
    return nonsense("drafts whose numbers of tokens and scores differ");
  Worth worth = drafts->pieces.empty() ? Worth::sign_of_life : Worth::none;
  for (const DraftPiece& piece : drafts->pieces) {
    if (!makes_sense(piece, *drafts)) {
      (void)nonsense("drafts that make no sense");
      continue;
    }
    worth = std::max(worth, Worth::sign_of_life);
    counts_.drafted += piece.count;
    const auto at = requests_.find(piece.id);
    if (at == requests_.end() || at->second.rank != from) {
      counts_.stale += piece.count;  // the request has ended or moved since
    } else if (piece.leaves == DraftPiece::kChain ? extend(at->second, piece, *drafts)
                                                  : extend_branch(at->second, piece, *drafts)) {
      worth = Worth::drafts;
    } else {
      counts_.stale += piece.count;
    }
  }
  return worth;
}

bool RemoteDrafter::makes_sense(const DraftPiece& piece, const Drafts& drafts) const {
  const std::int32_t most = most_ahead(options_.window.most());
  if (piece.first < 0 || piece.count < 1 || piece.count > most || piece.known < 0 ||
      piece.base < piece.known || piece.base - piece.known > most - piece.count ||
      std::int64_t{piece.first} + piece.count > static_cast<std::int64_t>(drafts.tokens.size()))
    return false;
  if (piece.leaves != DraftPiece::kChain &&
      (piece.leaves < piece.known || piece.leaves >= piece.base || piece.instead < 0 ||
       piece.instead >= options_.vocab))
    return false;
  float before = 1;
  for (std::int32_t i = piece.first; i < piece.first + piece.count; ++i) {
    const float score = drafts.scores[i];
    if (drafts.tokens[i] < 0 || drafts.tokens[i] >= options_.vocab ||
        !(score >= 0 && score <= before))
      return false;
    before = score;
  }
  return true;
}

// A piece of a chain is taken if three things hold. The rank knew of the last refutation when it
// drafted the piece. The piece agrees with the tokens committed meanwhile. Its tokens past the
// committed text begin exactly where r.ahead ends. A piece that claims to know more text than was
// committed is dropped. Every piece has passed makes_sense(), so the chain stays shorter than two
// draft windows.
bool RemoteDrafter::extend(RemoteRequest& r, const DraftPiece& piece, const Drafts& drafts) {
  return piece.known >= r.refuted && append(r, piece, drafts);
}

// A piece of a branch is taken only if the branch leaves the present chain, that is, if the rank
// knew of the last refutation when it drafted the piece. If the position at which the branch leaves
// is committed already, the branch must also have the committed token there. The exception is a
// branch whose token there is the one that last refuted a chain: it left this older chain, so its
// rank need only have known of the second-to-last refutation (r.before).
bool RemoteDrafter::extend_branch(RemoteRequest& r, const DraftPiece& piece, const Drafts& drafts) {
  const auto committed = static_cast<std::int32_t>(r.response.size());
  if (piece.leaves < committed) {
    const std::int32_t least = piece.leaves + 1 == r.refuted ? r.before : r.refuted;
    if (r.response[piece.leaves] != piece.instead || piece.known < least) return false;
    if (piece.leaves + 1 > r.refuted) {
      refute(r, piece.leaves + 1);
      drop_branches(r);
    }
    return append(r, piece, drafts);
  }
  const auto at = r.branches.find(piece.leaves);
  const bool goes_on = at != r.branches.end() && at->second.instead == piece.instead;
  const std::size_t there = goes_on ? at->second.ahead.size() : 0;
  if (piece.known < r.refuted || piece.known > committed ||
      piece.leaves + 1 + static_cast<std::int32_t>(there) != piece.base)
    return false;
  if (!goes_on) {
    if (at != r.branches.end()) counts_.stale += at->second.ahead.size();
    r.branches[piece.leaves] = {piece.instead, {}};
  }
  add(r.branches[piece.leaves].ahead, piece, drafts, 0);
  return true;
}

/// Appends a piece's tokens past the committed text to r.ahead, if they continue r.ahead. If a
/// committed token contradicts the piece, the rank's chain is refuted at this token.
bool RemoteDrafter::append(RemoteRequest& r, const DraftPiece& piece, const Drafts& drafts) {
  const auto committed = static_cast<std::int32_t>(r.response.size());
  const std::int32_t said = std::clamp(committed - piece.base, 0, piece.count);
  for (std::int32_t i = 0; i < said; ++i) {
    if (drafts.tokens[piece.first + i] == r.response[piece.base + i]) continue;
    refute(r, piece.base + i + 1);
    drop_branches(r);
    return false;
  }
  if (piece.known > committed ||
      piece.base + said != committed + static_cast<std::int32_t>(r.ahead.size()))
    return false;
  counts_.stale += said;
  add(r.ahead, piece, drafts, said);
  return true;
}

/// Adds a piece's tokens to `ahead`, except the first `from` tokens.
void RemoteDrafter::add(std::deque<Ahead>& ahead, const DraftPiece& piece, const Drafts& drafts,
                        std::int32_t from) {
  const auto tokens = std::span(drafts.tokens).subspan(piece.first, piece.count);
  const auto scores = std::span(drafts.scores).subspan(piece.first, piece.count);
  float before = from > 0 ? scores[from - 1] : 1;
  for (std::int32_t i = from; i < piece.count; ++i) {
    ahead.push_back({tokens[i], before > 0 ? scores[i] / before : 0});
    before = scores[i];
  }
}

void RemoteDrafter::propose(std::span<draft::DraftSlot> batch, double /*now*/,
                            draft::Levels* /*levels*/) {
  for (draft::DraftSlot& slot : batch) {
    const RemoteRequest& r = request(slot.id);
    const std::size_t assumed = slot.assumed.size();
    const bool agrees =
        r.ahead.size() >= assumed &&
        std::equal(slot.assumed.begin(), slot.assumed.end(), r.ahead.begin(),
                   [](TokenId token, const Ahead& ahead) { return token == ahead.token; });
    const int most =
        !agrees ? 0
                : std::min({static_cast<int>(r.ahead.size() - assumed), slot.limits.max_tokens,
                            slot.limits.max_length, slot.output.capacity()});
    float path = 1;
    for (int i = 0; i < most; ++i) {
      path *= r.ahead[assumed + i].conditional;
      slot.output.set(i, r.ahead[assumed + i].token, i - 1, path);
    }
    slot.count = most;
    if (slot.limits.paths > 1) add_branches(r, slot);
    counts_.late += most == 0 ? 1 : 0;
  }
}

/// Adds to the slot's draft the branches of its chain, in the order in which they leave the chain.
void RemoteDrafter::add_branches(const RemoteRequest& r, draft::DraftSlot& slot) {
  const int chain = slot.count;
  const int most = std::min(slot.limits.max_tokens, slot.output.capacity());
  const auto first = static_cast<std::int32_t>(r.response.size() + slot.assumed.size());
  for (auto at = r.branches.lower_bound(first); at != r.branches.end(); ++at) {
    const auto& [leaves, branch] = *at;
    int level = leaves - first;
    if (level >= chain) return;
    std::int32_t parent = level - 1;
    const float before = parent < 0 ? 1 : slot.output.scores[parent];
    float path = (before - slot.output.scores[level]) * static_cast<float>(policy::kSecondChoice);
    const auto add = [&](TokenId token) {
      if (slot.count == most || level++ == slot.limits.max_length) return false;
      slot.output.set(slot.count, token, parent, path);
      parent = slot.count++;
      return true;
    };
    if (!add(branch.instead)) continue;
    for (const Ahead& ahead : branch.ahead) {
      path *= ahead.conditional;
      if (!add(ahead.token)) break;
    }
  }
}

void RemoteDrafter::close() {
  for (const auto& [rank, link] : links_) link.watch.sum_up();
}

void RemoteDrafters::use(std::span<const policy::DrafterPlace> places) {
  for (const Of& of : drafters_) of.drafter->use(policy::drafters_of(group_, of.method, places));
}

bool RemoteDrafters::is_drafter(int rank) const {
  return std::any_of(drafters_.begin(), drafters_.end(),
                     [rank](const Of& of) { return of.drafter->is_drafter(rank); });
}

void RemoteDrafters::receive(int from, std::span<const std::byte> message) {
  for (const Of& of : drafters_) {
    if (of.drafter->is_drafter(from)) return of.drafter->receive(from, message);
  }
}

void RemoteDrafters::close() {
  for (const Of& of : drafters_) of.drafter->close();
}

RemoteDrafter::Counts RemoteDrafters::counts() const {
  RemoteDrafter::Counts sum;
  for (const Of& of : drafters_) {
    with_fields(sum, [&](auto&... all) {
      with_fields(of.drafter->counts(), [&](const auto&... own) { ((all += own), ...); });
    });
  }
  return sum;
}

}  // namespace paceline::speculation
