// Draft servers and their clients on mailboxes in memory, under delays, moves of requests, and
// servers that stall.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <string>

#include "runtime/draft/suffix_drafter.hpp"
#include "runtime/protocol/messages.hpp"
#include "runtime/roles/draft_server.hpp"
#include "runtime/speculation/draft_client.hpp"
#include "tests/runtime/roles/simulated_mailbox.hpp"

namespace paceline::roles::test {
namespace {

using Text = std::vector<TokenId>;

constexpr int kVocab = 1000;

/// Keeps what it is told, of which kind ever.
class Listener final : public draft::Drafter, public draft::SiblingLearner {
 public:
  void start(const draft::DraftStart& start, double) override {
    EXPECT_TRUE(own.emplace(start.id, Text(start.response.begin(), start.response.end())).second);
  }
  void commit(RequestId id, std::span<const TokenId> tokens, double) override {
    own.at(id).insert(own.at(id).end(), tokens.begin(), tokens.end());
  }
  void propose(std::span<draft::DraftSlot>, double, draft::Levels*) override {}
  void finish(RequestId id, double) override { EXPECT_EQ(own.erase(id), 1U); }
  void leave(RequestId id, double) override { EXPECT_EQ(own.erase(id), 1U); }
  [[nodiscard]] draft::Capabilities capabilities() override { return {.siblings = this}; }
  void hear(RequestId id, std::uint64_t offset, std::span<const TokenId> tokens, bool end,
            double) override {
    EXPECT_FALSE(own.contains(id)) << "of its own requests it knows more";
    Text& text = heard[id];
    text.resize(std::max<std::size_t>(text.size(), offset + tokens.size()), -1);
    std::copy(tokens.begin(), tokens.end(), text.begin() + static_cast<std::ptrdiff_t>(offset));
    if (end) ended.insert(id);
  }
  void recall(RequestId id, std::uint32_t age, std::uint64_t offset,
              std::span<const TokenId> tokens, bool, double) override {
    Text& text = recalled_texts[{id, age}];
    EXPECT_EQ(text.size(), offset) << "in order, and once";
    text.insert(text.end(), tokens.begin(), tokens.end());
    most_recalled = std::max(most_recalled, recalled_now += tokens.size());
  }
  [[nodiscard]] bool remembers(std::uint32_t) const override { return !forgets; }
  std::map<RequestId, Text> own, heard;
  std::set<RequestId> ended;
  std::map<std::pair<RequestId, std::uint32_t>, Text> recalled_texts;  ///< by age
  std::size_t recalled_now = 0;                                        ///< with one message
  std::size_t most_recalled = 0;
  bool forgets = false;
};

/// Responses of earlier steps to each of some prompts, which are read when they are asked for, one
/// response at a time.
class MadeEarlier final : public EarlierResponses {
 public:
  struct Made {
    RequestId id;
    std::uint32_t age = 0;
    Text tokens;
  };
  explicit MadeEarlier(std::vector<Made> made) : made_(std::move(made)) {}
  void want(std::uint32_t prompt) override {
    ++asked;
    for (const Made& made : made_)
      if (made.id.prompt == prompt) wanted_.push_back(&made);
  }
  [[nodiscard]] bool awaits(std::uint32_t prompt) const override {
    return std::any_of(wanted_.begin(), wanted_.end(),
                       [&](const Made* made) { return made->id.prompt == prompt; });
  }
  bool work(const Tell& tell, const Use& use) override {
    for (; said.size() > told; ++told) tell(1, std::as_bytes(std::span(said).subspan(told, 1)));
    if (wanted_.empty()) return false;
    const Made& next = *wanted_.front();
    wanted_.pop_front();
    use(next.id, next.age, next.tokens);
    return true;
  }
  bool learn(std::span<const std::byte> found) override {
    for (const std::byte byte : found) learned.push_back(static_cast<char>(byte));
    return learned != "no";
  }
  int asked = 0;
  std::string said;  ///< to reader 1
  std::size_t told = 0;
  std::string learned;

 private:
  std::vector<Made> made_;
  std::deque<const Made*> wanted_;
};

struct Client {
  Client(Post& post, const Clock& time, int rank, std::vector<int> servers, int every = 4)
      : mailbox(post, {rank, Address::Port::role}), clock(time) {
    auto made = std::make_unique<Listener>();
    listener = made.get();
    client = std::make_unique<speculation::DraftClient>(
        std::move(made), mailbox, time,
        speculation::DraftClientOptions{.servers = std::move(servers),
                                        .name = static_cast<draft::LogClient>(rank),
                                        .vocab = kVocab,
                                        .exchange_tokens = every});
  }
  void start(RequestId id, const Text& response = {}) {
    client->start({id, prompt, response, {}}, clock.now());
  }
  void say(RequestId id, const Text& tokens) {
    client->commit(id, tokens, clock.now());
    client->told();
  }
  void finish(RequestId id) {
    client->finish(id, clock.now());
    client->told();
  }
  void leave(RequestId id) {
    client->leave(id, clock.now());
    client->told();
  }
  void receive() {
    while (const std::optional<Envelope> envelope = mailbox.poll()) {
      EXPECT_EQ(envelope->from.port, Address::Port::draft_server);
      listener->recalled_now = 0;
      client->receive(envelope->from.rank, envelope->bytes);
    }
  }
  SimulatedMailbox mailbox;
  const Clock& clock;
  Text prompt{1, 2};
  Listener* listener = nullptr;
  std::unique_ptr<speculation::DraftClient> client;
};

struct Server {
  Server(Post& post, const Clock& clock, int rank, const draft::LogLimits& limits = {},
         EarlierResponses* earlier = nullptr, std::vector<int> servers = {})
      : mailbox(post, {rank, Address::Port::draft_server}),
        server(mailbox, clock, limits, earlier, std::move(servers)) {}
  /// Turns until there is nothing to do.
  void turns() {
    while (server.turn().worked) {
    }
  }
  SimulatedMailbox mailbox;
  DraftServer server;
};

TEST(DraftServer, WhatOneClientSaysTheOtherHears) {
  Post post;
  SteppedClock clock;
  Server server(post, clock, 0);
  Client a(post, clock, 0, {0});
  Client b(post, clock, 1, {0});
  a.start({3, 0});
  b.start({3, 1});
  a.say({3, 0}, {5, 6});
  server.server.turn();
  a.receive();
  EXPECT_TRUE(b.listener->heard.empty());
  b.say({3, 1}, {7});
  server.server.turn();
  b.receive();
  EXPECT_EQ(b.listener->heard, (std::map<RequestId, Text>{{{3, 0}, {5, 6}}}));
  a.say({3, 0}, {8});  // less than an exchange takes
  server.server.turn();
  a.receive();
  EXPECT_TRUE(a.listener->heard.empty());
  a.say({3, 0}, {9, 10, 11});
  server.server.turn();
  a.receive();
  EXPECT_EQ(a.listener->heard, (std::map<RequestId, Text>{{{3, 1}, {7}}}));
  a.finish({3, 0});
  server.server.turn();
  b.say({3, 1}, {1, 2, 3, 4});
  server.server.turn();
  b.receive();
  EXPECT_EQ(b.listener->heard.at({3, 0}), (Text{5, 6, 8, 9, 10, 11}));
  EXPECT_TRUE(b.listener->ended.contains({3, 0}));
  EXPECT_EQ(b.client->counts().heard, 6U);
  EXPECT_GT(b.client->counts().fetch_bytes, 24U);
  EXPECT_EQ(server.server.nonsense(), 0U);
}

TEST(DraftServer, GroupsThatAreNotHereAreNotFetched) {
  Post post;
  SteppedClock clock;
  Server server(post, clock, 0);
  Client a(post, clock, 0, {0});
  Client b(post, clock, 1, {0});
  a.start({3, 0});
  a.say({3, 0}, {5, 6, 7, 8});
  b.start({4, 0});
  b.say({4, 0}, {5, 6, 7, 8});
  server.server.turn();
  b.receive();
  EXPECT_TRUE(b.listener->heard.empty());
  b.start({3, 1});  // and at once when it comes
  b.say({4, 0}, {1});
  server.server.turn();
  b.receive();
  EXPECT_EQ(b.listener->heard.at({3, 0}), (Text{5, 6, 7, 8}));
}

TEST(DraftServer, AfterAResumeItAsksForWhatItLacks) {
  Post post;
  SteppedClock clock;
  Server server(post, clock, 0);
  Client a(post, clock, 0, {0});
  a.start({3, 0}, {1, 2, 3});
  a.say({3, 0}, {4, 5, 6, 7});
  server.server.turn();
  EXPECT_EQ(server.server.logs().held({3, 0}), 0U);
  a.receive();
  a.say({3, 0}, {8});
  server.server.turn();
  EXPECT_EQ(server.server.logs().held({3, 0}), 8U);
}

TEST(DraftServer, ARacersEndLeavesTheHolderToBeAsked) {
  Post post;
  SteppedClock clock;
  Server server(post, clock, 0);
  Client holder(post, clock, 0, {0});
  Client racer(post, clock, 1, {0});
  holder.start({3, 0}, {1, 2, 3});  // after a resume, so the server lacks these tokens
  racer.start({3, 0}, {1, 2, 3});
  holder.say({3, 0}, {4, 5, 6, 7});
  racer.finish({3, 0});
  server.server.turn();
  EXPECT_EQ(server.server.logs().held({3, 0}), 0U);
  holder.receive();
  holder.say({3, 0}, {8});
  server.server.turn();
  EXPECT_EQ(server.server.logs().held({3, 0}), 8U);
}

// The last verifier's end and the next one's beginning come in either order.
TEST(DraftServer, ARequestThatMovesIsHeardWhole) {
  for (const bool late : {false, true}) {
    Post post;
    SteppedClock clock;
    Server server(post, clock, 0);
    Client a(post, clock, 0, {0});
    Client b(post, clock, 1, {0});
    a.start({3, 0});
    a.say({3, 0}, {1, 2});
    server.server.turn();
    a.say({3, 0}, {3});
    if (!late) a.leave({3, 0});
    b.start({3, 0}, {1, 2, 3});
    b.say({3, 0}, {4, 5});
    server.server.turn();
    if (late) a.leave({3, 0});
    server.server.turn();
    b.receive();
    b.say({3, 0}, {6, 7, 8, 9});
    server.server.turn();
    EXPECT_EQ(server.server.logs().held({3, 0}), 9U) << late;
    EXPECT_EQ(server.server.nonsense(), 0U);
  }
}

TEST(DraftServer, OneThatDoesNotReadIsToldLater) {
  Post post;
  SteppedClock clock;
  Server server(post, clock, 0);
  Client a(post, clock, 0, {0});
  a.start({3, 0});
  a.start({3, 1});
  a.mailbox.set_full(true);
  for (TokenId t = 0; t < 20; ++t) a.say({3, 0}, {t});
  a.say({3, 1}, {7, 8});
  a.finish({3, 1});
  EXPECT_EQ(a.mailbox.traffic().messages, 0U);
  a.mailbox.set_full(false);
  a.say({3, 0}, {20, 21, 22, 23});
  server.server.turn();
  EXPECT_EQ(server.server.logs().held({3, 0}), 24U);
  EXPECT_EQ(server.server.logs().held({3, 1}), 2U);
}

TEST(DraftServer, OneThatSaysNothingIsAskedOnce) {
  Post post;
  SteppedClock clock;
  Client a(post, clock, 0, {0});
  a.start({3, 0});
  for (TokenId t = 0; t < 40; ++t) a.say({3, 0}, {t});
  int fetches = 0;
  SimulatedMailbox stalled(post, {0, Address::Port::draft_server});
  while (const std::optional<Envelope> envelope = stalled.poll())
    fetches +=
        std::holds_alternative<protocol::DraftFetch>(protocol::decode(envelope->bytes)) ? 1 : 0;
  EXPECT_EQ(fetches, 1);
}

// A verifier that has one response of each group drafts as well as one that has both.
TEST(DraftServer, SuffixTreesDraftWhatASiblingElsewhereHasSaid) {
  Post post;
  SteppedClock clock;
  Server server(post, clock, 0);
  ThreadPool pool(1);
  const auto drafter = [&] {
    return std::make_unique<draft::SuffixDrafter>(draft::SuffixDrafterOptions{}, pool);
  };
  std::vector<std::unique_ptr<SimulatedMailbox>> boxes;
  std::vector<std::unique_ptr<speculation::DraftClient>> clients;
  for (int rank = 0; rank < 2; ++rank) {
    boxes.push_back(std::make_unique<SimulatedMailbox>(post, Address{rank, Address::Port::role}));
    clients.push_back(std::make_unique<speculation::DraftClient>(
        drafter(), *boxes.back(), clock,
        speculation::DraftClientOptions{
            .servers = {0}, .name = static_cast<draft::LogClient>(rank), .vocab = kVocab}));
  }
  const Text prompt{1, 2};
  Text sibling;
  for (TokenId t = 10; t < 60; ++t) sibling.push_back(t);
  const RequestId told{0, 0}, asks{0, 1};
  clients[0]->start({told, prompt, {}, {}}, 0);
  clients[0]->commit(told, sibling, 0);
  clients[0]->told();
  clients[1]->start({asks, prompt, {}, {}}, 0);
  clients[1]->commit(asks, Text{7, 20, 21}, 0);

  Text tokens(4);
  std::vector<std::int32_t> parents(4);
  std::vector<float> scores(4);
  const auto propose = [&] {
    std::vector<draft::DraftSlot> slots{{asks, {4, 4, 1}, {tokens, parents, scores}}};
    clients[1]->propose(slots, 0, nullptr);
    return slots[0].count;
  };
  EXPECT_EQ(propose(), 0);
  clients[1]->told();
  server.server.turn();
  while (const std::optional<Envelope> envelope = boxes[1]->poll())
    clients[1]->receive(envelope->from.rank, envelope->bytes);
  ASSERT_GE(propose(), 2);
  EXPECT_EQ(tokens[0], 22);
  EXPECT_EQ(tokens[1], 23);
}

TEST(DraftServer, EarlierStepsAreHeardByAll) {
  Post post;
  SteppedClock clock;
  MadeEarlier earlier({{{3, 0}, 1, {5, 6, 7}}, {{3, 1}, 1, {5, kVocab}}, {{3, 0}, 4, {8}}});
  Server server(post, clock, 0, {}, &earlier);
  Client a(post, clock, 0, {0});
  Client b(post, clock, 1, {0});
  for (Client* client : {&a, &b}) {
    client->start({3, static_cast<std::uint32_t>(client == &b)});
    client->start({4, static_cast<std::uint32_t>(client == &b)});
    client->client->told();
    server.server.turn();
    client->receive();
    if (client == &a) {
      EXPECT_TRUE(client->listener->recalled_texts.empty()) << "nobody waits for files";
      server.turns();
      client->client->told();  // asks at once, for more is to come
      server.server.turn();
      client->receive();
    }
    EXPECT_EQ(client->listener->recalled_texts,
              (std::map<std::pair<RequestId, std::uint32_t>, Text>{{{{3, 0}, 1}, {5, 6, 7}},
                                                                   {{{3, 0}, 4}, {8}}}))
        << "of its own samples, too, but not what is no token";
    EXPECT_TRUE(client->listener->heard.empty());
    EXPECT_EQ(client->client->counts().heard, 4U);
    EXPECT_EQ(client->client->counts().invalid, 1U);
  }
  EXPECT_EQ(earlier.asked, 2) << "once for each prompt";
  SimulatedMailbox other(post, {5, Address::Port::role});
  other.send({0, Address::Port::draft_server},
             protocol::encode(protocol::DraftUpdate{5, {{{3, 7}, 0, 0, 1, 0, 2}}, {1}}));
  server.server.turn();
  EXPECT_EQ(server.server.nonsense(), 1U) << "clients know of this step alone";
}

// Siblings' texts come at once and whole; those of earlier steps a few tokens a step, alike of all
// prompts.
TEST(DraftServer, EarlierStepsHoldUpNoSiblings) {
  constexpr std::uint32_t kPrompts = 4;
  Post post;
  SteppedClock clock;
  std::vector<MadeEarlier::Made> made;
  for (std::uint32_t p = 0; p < kPrompts; ++p) made.push_back({{p, 0}, 1, Text(30'000, 7)});
  MadeEarlier earlier(std::move(made));
  Server server(post, clock, 0, {}, &earlier);
  Client a(post, clock, 0, {0});
  Client b(post, clock, 1, {0});
  for (std::uint32_t p = 0; p < kPrompts; ++p) {
    a.start({p, 0});
    a.say({p, 0}, Text(500, 9));
  }
  server.turns();
  a.receive();
  a.client->told();
  server.turns();  // has read all
  for (std::uint32_t p = 0; p < kPrompts; ++p) b.start({p, 1});
  b.client->told();
  server.server.turn();
  b.receive();
  for (std::uint32_t p = 0; p < kPrompts; ++p) {
    const RequestId id{p, 0};
    EXPECT_EQ(b.listener->heard[id].size(), 500U);
    EXPECT_EQ(b.listener->recalled_texts[std::pair(id, 1U)].size(), 1024U);
  }
  int steps = 1;
  const RequestId last{kPrompts - 1, 0};
  for (; steps < 100 && b.listener->recalled_texts[std::pair(last, 1U)].size() < 30'000; ++steps) {
    b.client->told();
    server.server.turn();
    b.receive();
  }
  EXPECT_EQ(steps, 30);
  EXPECT_EQ(b.listener->most_recalled, 4096U);
  const std::uint64_t fetches = b.client->counts().fetches;
  b.client->told();
  server.server.turn();
  b.receive();
  EXPECT_EQ(b.client->counts().fetches, fetches) << "there is no more to ask for";
}

TEST(DraftServer, AClientThatHasForgottenAPromptHearsAllOfItAgain) {
  for (const bool forgets : {false, true}) {
    Post post;
    SteppedClock clock;
    MadeEarlier earlier({{{3, 0}, 1, {5, 6, 7}}});
    Server server(post, clock, 0, {}, &earlier);
    Client a(post, clock, 0, {0});
    const auto exchange = [&] {
      a.client->told();
      server.turns();
      a.receive();
    };
    a.start({3, 0});
    for (int i = 0; i < 3; ++i) exchange();
    EXPECT_EQ(a.client->counts().heard, 3U);
    a.leave({3, 0});
    a.listener->recalled_texts.clear();
    a.listener->forgets = forgets;
    a.start({3, 1});
    for (int i = 0; i < 3; ++i) exchange();
    EXPECT_EQ(a.client->counts().heard, forgets ? 6U : 3U);
  }
}

TEST(DraftServer, TheFirstTellsOthersWhatItFinds) {
  Post post;
  SteppedClock clock;
  MadeEarlier finds({}), learns({});
  Server first(post, clock, 4, {}, &finds, {4, 6});
  Server second(post, clock, 6, {}, &learns, {4, 6});
  finds.said = "ab";
  first.turns();
  second.turns();
  EXPECT_EQ(learns.learned, "ab");
  EXPECT_EQ(second.server.nonsense(), 0U);
  SimulatedMailbox other(post, {5, Address::Port::draft_server});
  other.send({6, Address::Port::draft_server}, protocol::encode(protocol::EarlierFound{}));
  second.turns();
  EXPECT_EQ(second.server.nonsense(), 1U) << "not its to tell";
  learns.learned.clear();
  finds.said += "no";
  first.turns();
  second.turns();
  EXPECT_EQ(second.server.nonsense(), 2U) << "no sense";
  Server without(post, clock, 7);
  SimulatedMailbox{post, {4, Address::Port::draft_server}}.send(
      {7, Address::Port::draft_server}, protocol::encode(protocol::EarlierFound{}));
  without.turns();
  EXPECT_EQ(without.server.nonsense(), 1U) << "of no use to it";
}

TEST(DraftServer, NonsenseIsDropped) {
  Post post;
  SteppedClock clock;
  Server server(post, clock, 0);
  Client a(post, clock, 0, {0});
  SimulatedMailbox other(post, {5, Address::Port::role});
  const Address to{0, Address::Port::draft_server};
  other.send(to, std::vector<std::byte>(7, std::byte{200}));
  other.send(to, protocol::encode(protocol::Finish{}));
  protocol::DraftUpdate update{
      5, {{{3, 0}, 0, 2, 5, 0, 0}, {{3, 1}, 0, UINT32_MAX, 2, 0, 0}}, {1, 2, 3}};
  other.send(to, protocol::encode(update));
  server.server.turn();
  EXPECT_EQ(server.server.nonsense(), 4U);
  EXPECT_EQ(server.server.logs().held({3, 0}), 0U);

  a.start({3, 0});
  a.say({3, 0}, {1});
  const protocol::DraftTexts texts{
      0, 1, 0, 0, {}, {{{3, 1}, 0, 0, 2, 0, 0}, {{3, 2}, 0, 1, 2, 0, 0}}, {1, kVocab}};
  a.client->receive(0, protocol::encode(texts));
  a.client->receive(0, protocol::encode(protocol::Finish{}));
  a.client->receive(0, std::vector<std::byte>(7, std::byte{200}));
  a.client->receive(1, protocol::encode(texts));
  EXPECT_TRUE(a.listener->heard.empty());
  EXPECT_EQ(a.client->counts().invalid, 5U);
  a.client->receive(0, protocol::encode(texts));
  EXPECT_EQ(a.client->counts().invalid, 5U) << "an answer that was not asked for is not read";
}

// Requests begin, go on, move, come back and end by chance; messages of different senders overtake
// one another. In the end everybody knows what all have said.
TEST(DraftServer, EverybodyHearsEverything) {
  std::uint64_t heard = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::size_t n) { return random() % n; };
    Post post(seed);
    SteppedClock clock;
    const int servers = 1 + static_cast<int>(seed % 2);
    constexpr std::uint32_t kGroups = 3, kSamples = 4;
    std::vector<std::unique_ptr<Server>> hosts;
    std::vector<int> ranks;
    for (int s = 0; s < servers; ++s) {
      hosts.push_back(std::make_unique<Server>(post, clock, s));
      ranks.push_back(s);
    }
    std::vector<std::unique_ptr<Client>> clients;
    for (int c = 0; c < 3; ++c)
      clients.push_back(std::make_unique<Client>(post, clock, c, ranks, 1 + seed % 20));
    std::map<RequestId, Text> said;
    std::map<RequestId, std::size_t> holder;
    std::set<RequestId> over;
    for (std::uint32_t g = 0; g < kGroups; ++g) {
      for (auto& c : clients) {  // each has one of each group to the end
        const RequestId id{g, static_cast<std::uint32_t>(100 + (&c - clients.data()))};
        c->start(id);
        holder[id] = &c - clients.data();
      }
    }
    const auto turns = [&] {
      if (below(4) != 0) hosts[below(hosts.size())]->server.turn();
      if (below(3) != 0) clients[below(clients.size())]->receive();
    };
    for (int turn = 0; turn < 600; ++turn) {
      clock.time += 0.01;
      RequestId id{static_cast<std::uint32_t>(below(kGroups)),
                   static_cast<std::uint32_t>(below(kSamples))};
      if (below(5) == 0) id.sample = static_cast<std::uint32_t>(100 + below(clients.size()));
      const auto at = holder.find(id);
      if (over.contains(id)) continue;
      if (at == holder.end()) {
        const std::size_t c = below(clients.size());
        clients[c]->start(id, said[id]);
        holder[id] = c;
      } else if (id.sample < kSamples && below(20) == 0) {
        if (below(3) == 0) {
          clients[at->second]->finish(id);
          over.insert(id);
        } else {
          clients[at->second]->leave(id);
        }
        holder.erase(at);
      } else {
        Text tokens(1 + below(4));
        for (TokenId& token : tokens) token = static_cast<TokenId>(below(kVocab));
        Text& text = said[id];
        text.insert(text.end(), tokens.begin(), tokens.end());
        clients[at->second]->say(id, tokens);
      }
      turns();
    }
    for (int round = 0; round < 60; ++round) {  // everybody goes on a little, until all is said
      for (auto& [id, c] : holder) {
        if (round < 40) said[id].push_back(9);
        if (round < 40) clients[c]->say(id, {9});
      }
      for (int i = 0; i < 60; ++i) turns();
    }
    for (const auto& [id, text] : said) {
      for (std::size_t c = 0; c < clients.size(); ++c) {
        if (holder.contains(id) && holder[id] == c) continue;
        const auto& known = clients[c]->listener->heard;
        if (!known.contains(id)) continue;  // all of it was said there
        const Text& other = known.at(id);
        // Of what it said itself it hears nothing, and of the last tokens not yet.
        ASSERT_LE(other.size(), text.size());
        for (std::size_t i = 0; i < other.size(); ++i) {
          if (other[i] >= 0) {
            ASSERT_EQ(other[i], text[i]) << seed;
          }
        }
        heard += other.size();
      }
      const std::uint64_t held = hosts[id.prompt % hosts.size()]->server.logs().held(id);
      EXPECT_LE(text.size() - held, holder.contains(id) ? 40U : 0U) << seed;
    }
    for (auto& host : hosts) EXPECT_EQ(host->server.nonsense(), 0U);
  }
  EXPECT_GT(heard, 20'000U);
}

}  // namespace
}  // namespace paceline::roles::test
