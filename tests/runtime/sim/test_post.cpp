// Messages come in order and once, at their time, whatever goes wrong on the way.
#include "runtime/sim/post.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "tests/runtime/sim/scripted_actor.hpp"

namespace paceline::sim {
namespace {

constexpr int kRanks = 3;

/// Ranks of one node with a mailbox each; whoever has a turn reads all that is there.
class Mail {
 public:
  struct Read {
    int from = 0;
    int number = 0;
    double at = 0;
    bool operator==(const Read&) const = default;
  };

  explicit Mail(const MessageFaults& faults = {}, const Link& link = {2, 1e6})
      : network_({.rank = {}, .node = link, .network = {}}, std::vector<int>(kRanks, 0)),
        post_(world, network_, faults) {
    for (int rank = 0; rank < kRanks; ++rank) {
      Mailbox& box = post_.open({rank});
      boxes.push_back(&box);
      actors_.push_back(
          std::make_unique<ScriptedActor>(world, 0, [this, rank, &box](ScriptedActor& me) {
            protocol::Turn turn;
            while (const std::optional<Envelope> envelope = box.poll()) {
              int number = 0;
              std::memcpy(&number, envelope->bytes.data(), sizeof number);
              read[rank].push_back({envelope->from.rank, number, me.now()});
              turn.worked = true;
            }
            return turn;
          }));
      post_.belongs({rank}, actors_.back()->id);
    }
    run(world);
  }

  void send(int from, int to, int number, std::size_t bytes = sizeof(int)) {
    std::vector<std::byte> message(bytes);
    std::memcpy(message.data(), &number, sizeof number);
    boxes[from]->send({to}, message);
  }
  void at(int rank, double time) { world.work(actors_[rank]->id, time - actors_[rank]->now()); }
  [[nodiscard]] const ScriptedActor& actor(int rank) const { return *actors_[rank]; }

  World world;
  std::vector<Mailbox*> boxes;
  std::vector<Read> read[kRanks];

 private:
  Network network_;
  Post post_;
  std::vector<std::unique_ptr<ScriptedActor>> actors_;
};

TEST(Post, AMessageWakesItsReceiverWhenItArrives) {
  Mail mail;
  mail.at(0, 3);
  mail.send(0, 1, 7, 1000);
  run(mail.world);
  ASSERT_EQ(mail.read[1].size(), 1U);
  EXPECT_EQ(mail.read[1][0].number, 7);
  EXPECT_DOUBLE_EQ(mail.read[1][0].at, 3 + 2 + 0.001);
  EXPECT_EQ(mail.actor(1).turns.size(), 3U) << "at the start, at the arrival, and after work";
  EXPECT_TRUE(mail.read[2].empty());
  const Mailbox::Traffic traffic = mail.boxes[0]->traffic();
  EXPECT_EQ(traffic.messages, 1U);
  EXPECT_EQ(traffic.bytes, 1000U);
}

TEST(Post, WhatHasYetToArriveIsNotRead) {
  Mail mail;
  mail.send(0, 1, 7);
  EXPECT_FALSE(mail.boxes[1]->poll());
  mail.at(1, 1.9);
  EXPECT_FALSE(mail.boxes[1]->poll());
  mail.at(1, 2.1);
  EXPECT_TRUE(mail.boxes[1]->poll());
  EXPECT_FALSE(mail.boxes[1]->poll());
}

TEST(Post, MessagesOfTwoSendersComeAsTheyArrive) {
  Mail mail;
  mail.at(0, 1);
  mail.send(0, 2, 1);
  mail.send(1, 2, 2);
  run(mail.world);
  ASSERT_EQ(mail.read[2].size(), 2U);
  EXPECT_EQ(mail.read[2][0].from, 1) << "sent later in the test, but earlier by its clock";
}

/// 200 messages of each of two senders to a third rank.
Mail& exchange(Mail& mail) {
  for (int i = 0; i < 200; ++i) {
    for (const int from : {0, 1}) {
      mail.send(from, 2, i);
      mail.at(from, 0.01 * (i + 1));
    }
  }
  run(mail.world);
  return mail;
}

void expect_in_order_and_once(const Mail& mail) {
  for (const int from : {0, 1}) {
    int next = 0;
    for (const Mail::Read& read : mail.read[2]) {
      if (read.from != from) continue;
      EXPECT_EQ(read.number, next++);
    }
    EXPECT_EQ(next, 200);
  }
}

TEST(Post, DelaysReorderThoseOfDifferentSendersAlone) {
  Mail plain, delayed({.seed = 3, .delayed = 0.3, .delay = 0.5});
  expect_in_order_and_once(exchange(plain));
  expect_in_order_and_once(exchange(delayed));
  const auto senders = [](const Mail& mail) {
    std::vector<int> from;
    for (const Mail::Read& read : mail.read[2]) from.push_back(read.from);
    return from;
  };
  EXPECT_NE(senders(plain), senders(delayed));
  double longest = 0;
  for (const Mail::Read& read : delayed.read[2])
    longest = std::max(longest, read.at - 0.01 * read.number - 2);
  EXPECT_GT(longest, 0.4);
  EXPECT_LT(longest, 0.51);
}

TEST(Post, WhatComesTwiceIsReadOnce) {
  Mail plain, doubled({.seed = 3, .duplicated = 1});
  expect_in_order_and_once(exchange(plain));
  expect_in_order_and_once(exchange(doubled));
  EXPECT_GT(doubled.world.turns(), plain.world.turns()) << "nothing came twice";
}

TEST(Post, ASeedFixesWhatHappensToMessages) {
  const MessageFaults faults{.seed = 3, .delayed = 0.3, .delay = 0.5, .duplicated = 0.2};
  MessageFaults others = faults;
  others.seed = 4;
  Mail first(faults), again(faults), other(others);
  for (Mail* mail : {&first, &again, &other}) exchange(*mail);
  EXPECT_EQ(first.read[2], again.read[2]);
  EXPECT_NE(first.read[2], other.read[2]);
}

TEST(Post, AReceiverIsFullWhileItIsBehindByTheWindow) {
  constexpr std::size_t kHalf = 128 << 10;
  Mail mail;
  mail.send(0, 1, 1, kHalf);
  EXPECT_FALSE(mail.boxes[0]->full({1}));
  mail.send(0, 1, 2, kHalf);
  EXPECT_TRUE(mail.boxes[0]->full({1}));
  EXPECT_FALSE(mail.boxes[0]->full({2})) << "another receiver";
  EXPECT_FALSE(mail.boxes[2]->full({1})) << "another sender";
  mail.send(0, 1, 3);  // taken all the same
  run(mail.world);
  EXPECT_FALSE(mail.boxes[0]->full({1}));
  EXPECT_EQ(mail.read[1].size(), 3U);
}

}  // namespace
}  // namespace paceline::sim
