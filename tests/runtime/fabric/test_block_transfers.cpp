// The protocol of block transfers, without a thread: what each end says happens when a test lets
// it.
#include "runtime/fabric/block_transfers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/runtime/fabric/fake_device.hpp"

namespace paceline::fabric {
namespace {

constexpr std::uint64_t kRun = 42;
constexpr std::uint32_t kMagic = 0x6b6f6c62;

/// The transfers of one rank, and what it was told of them.
struct End {
  End(const UcxContext& context, int rank, DeviceStaging* staging = nullptr)
      : transfers(context, rank, staging,
                  {[this](const Transfer& t) { over[t.ticket] = t.failure; },
                   [this](std::string fault) { faults.push_back(std::move(fault)); }}) {}
  /// One ticket, ended without a failure.
  [[nodiscard]] bool done(Ticket ticket) const {
    const auto at = over.find(ticket);
    return at != over.end() && at->second.empty();
  }
  std::map<Ticket, std::string> over;  ///< and how they failed
  std::vector<std::string> faults;
  BlockTransfers transfers;
};

class Protocol : public testing::Test {
 protected:
  Protocol() { open({&first, &second, &third}); }
  static void open(const std::vector<End*>& ends) {
    std::vector<TransportPlace> places;
    for (End* end : ends)
      places.push_back({"host" + std::to_string(places.size()), end->transfers.worker().address()});
    for (End* end : ends) end->transfers.open(kRun, places);
  }
  void progress() {
    for (End* end : {&first, &second, &third}) {
      end->transfers.worker().progress();
      end->transfers.settle();
    }
  }
  /// Lets everything happen until `ready`, which is then so.
  template <typename Ready>
  bool until(Ready ready) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!ready() && std::chrono::steady_clock::now() < end) progress();
    return ready();
  }
  /// For what is not to happen.
  void a_while() {
    for (int i = 0; i < 10'000; ++i) progress();
  }
  /// The whole of `memory`, in pieces of at most `piece` bytes.
  static Transfer transfer(bool sends, int other, std::uint64_t key, Ticket ticket,
                           std::span<std::byte> memory, std::size_t piece = 1 << 20,
                           bool staged = false) {
    Transfer t;
    t.ticket = ticket;
    t.name = {other, key};
    t.sends = sends;
    for (std::size_t at = 0; at < memory.size(); at += piece) {
      const std::size_t size = std::min(piece, memory.size() - at);
      t.pieces.push_back({memory.data() + at, size, nullptr, staged});
      t.ends.push_back(at + size);
    }
    return t;
  }
  static std::vector<std::byte> pattern(std::size_t size) {
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
    return bytes;
  }

  UcxContext context{3, true};
  End first{context, 0}, second{context, 1}, third{context, 2};
};

/// Speaks to the first rank as if it were the second one.
class Stranger {
 public:
  Stranger(const UcxContext& context, End& to)
      : worker_(context, false),
        listener_(to),
        to_(worker_.connect(to.transfers.worker().address(), 0, "host0")) {
    header.magic = kMagic;
    header.run = kRun;
    header.from = 1;
  }
  void say(Word word, std::uint64_t key, std::uint64_t at, const std::vector<std::byte>& body) {
    header.word = word;
    header.key = key;
    header.at = at;
    header.size = body.size();
    say(body);
  }
  void say(const std::vector<std::byte>& body) {
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_AM_SEND_FLAG_EAGER;
    void* const request =
        ucp_am_send_nbx(to_.handle, 2, &header, sizeof header, body.data(), body.size(), &params);
    ASSERT_FALSE(UCS_PTR_IS_ERR(request));
    if (request == nullptr) return;
    while (ucp_request_check_status(request) == UCS_INPROGRESS) {
      worker_.progress();
      listener_.transfers.worker().progress();
    }
    ucp_request_free(request);
  }
  void progress() { worker_.progress(); }
  TransferHeader header;

 private:
  UcxWorker worker_;
  End& listener_;
  UcxEndpoint& to_;
};

TEST_F(Protocol, DataMovesOnceBothEndsHaveBegunWhicheverWasFirst) {
  std::vector<std::byte> from = pattern(300'000);
  std::vector<std::byte> to(from.size());
  first.transfers.start(transfer(true, 1, 1, 11, from));
  a_while();
  EXPECT_TRUE(first.over.empty());
  EXPECT_TRUE(second.faults.empty()) << "data came that nobody had asked for";
  second.transfers.start(transfer(false, 0, 1, 21, to, 70'001));
  EXPECT_TRUE(until([&] { return first.done(11) && second.done(21); }));
  EXPECT_EQ(from, to);

  std::fill(to.begin(), to.end(), std::byte{});
  second.transfers.start(transfer(false, 0, 2, 22, to));
  a_while();
  EXPECT_EQ(second.over.size(), 1U);
  first.transfers.start(transfer(true, 1, 2, 12, from, 999));
  EXPECT_TRUE(until([&] { return first.done(12) && second.done(22); }));
  EXPECT_EQ(from, to);
  EXPECT_TRUE(first.faults.empty() && second.faults.empty());
}

TEST_F(Protocol, AKeyIsOneTransferInEachDirectionAndWithEachRank) {
  std::vector<std::byte> from = pattern(1000);
  std::vector<std::byte> to(1000);
  std::vector<std::byte> third_to(1000);
  first.transfers.start(transfer(true, 1, 5, 1, from));
  first.transfers.start(transfer(false, 1, 5, 2, to));
  first.transfers.start(transfer(true, 2, 5, 3, from));
  EXPECT_THROW(first.transfers.start(transfer(true, 1, 5, 4, from)), std::logic_error);
  EXPECT_THROW(first.transfers.start(transfer(false, 1, 5, 5, to)), std::logic_error);
  third.transfers.start(transfer(false, 0, 5, 6, third_to));
  EXPECT_TRUE(until([&] { return third.done(6) && first.done(3); }));
  EXPECT_EQ(from, third_to);
  EXPECT_EQ(first.over.size(), 1U);
}

TEST_F(Protocol, ASenderThatGivesUpIsBelievedAlsoWhereTheQuestionCrosses) {
  std::vector<std::byte> from = pattern(1000);
  std::vector<std::byte> to(1000);
  // Before the question.
  first.transfers.start(transfer(true, 1, 1, 1, from));
  first.transfers.give_up(1);
  EXPECT_EQ(first.over[1], "cancelled");
  a_while();
  second.transfers.start(transfer(false, 0, 1, 2, to));
  EXPECT_TRUE(until([&] { return second.over.contains(2); }));
  EXPECT_EQ(second.over[2], "the sender gave it up");
  // While it is on its way.
  first.transfers.start(transfer(true, 1, 2, 3, from));
  second.transfers.start(transfer(false, 0, 2, 4, to));
  first.transfers.give_up(3);
  EXPECT_TRUE(until([&] { return second.over.contains(4); }));
  EXPECT_EQ(second.over[4], "the sender gave it up");
  a_while();
  // Too late: all of it is on its way.
  first.transfers.start(transfer(true, 1, 3, 5, from));
  second.transfers.start(transfer(false, 0, 3, 6, to));
  EXPECT_TRUE(until([&] { return second.over.contains(6); }));
  first.transfers.give_up(5);
  first.transfers.give_up(77);  // there is no such ticket
  EXPECT_TRUE(until([&] { return first.done(5) && second.done(6); }));
  EXPECT_EQ(from, to);
  EXPECT_TRUE(first.faults.empty() && second.faults.empty());
}

TEST_F(Protocol, ARefusalMeetsWhateverTheReceiverHasSaid) {
  std::vector<std::byte> to(1000);
  // It has asked.
  second.transfers.start(transfer(false, 0, 1, 1, to));
  a_while();
  first.transfers.refuse({1, 1});
  EXPECT_TRUE(until([&] { return second.over.contains(1); }));
  EXPECT_EQ(second.over[1], "the sender has nothing to send");
  // It has yet to ask.
  first.transfers.refuse({1, 2});
  a_while();
  second.transfers.start(transfer(false, 0, 2, 2, to));
  EXPECT_EQ(second.over[2], "the sender has nothing to send");
  // Question and refusal cross.
  second.transfers.start(transfer(false, 0, 3, 3, to));
  first.transfers.refuse({1, 3});
  EXPECT_TRUE(until([&] { return second.over.contains(3); }));
  // It has given up.
  second.transfers.start(transfer(false, 0, 4, 4, to));
  second.transfers.give_up(4);
  EXPECT_TRUE(until([&] { return second.over.contains(4); }));
  EXPECT_EQ(second.over[4], "cancelled");
  first.transfers.refuse({1, 4});
  a_while();
  EXPECT_TRUE(first.faults.empty() && second.faults.empty());
}

TEST_F(Protocol, AReceiverThatGivesUpHearsWhetherDataWasOnItsWay) {
  std::vector<std::byte> from = pattern(1000);
  std::vector<std::byte> to(1000);
  // The sender has not begun, and learns it when it does.
  second.transfers.start(transfer(false, 0, 1, 1, to));
  second.transfers.give_up(1);
  EXPECT_TRUE(second.over.empty()) << "data might still come";
  EXPECT_TRUE(until([&] { return second.over.contains(1); }));
  EXPECT_EQ(second.over[1], "cancelled");
  first.transfers.start(transfer(true, 1, 1, 2, from));
  EXPECT_EQ(first.over[2], "the receiver gave it up");
  // The sender has begun: the transfer is made.
  first.transfers.start(transfer(true, 1, 2, 3, from));
  second.transfers.start(transfer(false, 0, 2, 4, to));
  EXPECT_TRUE(until([&] { return first.over.contains(3) || second.over.contains(4); }));
  second.transfers.give_up(4);
  EXPECT_TRUE(until([&] { return first.done(3) && second.done(4); }));
  // Both at once.
  first.transfers.start(transfer(true, 1, 3, 5, from));
  second.transfers.start(transfer(false, 0, 3, 6, to));
  first.transfers.give_up(5);
  second.transfers.give_up(6);
  EXPECT_TRUE(until([&] { return first.over.contains(5) && second.over.contains(6); }));
  EXPECT_FALSE(first.done(5) || second.done(6));
  a_while();
  EXPECT_TRUE(first.faults.empty() && second.faults.empty());
}

TEST_F(Protocol, WithARankThatHasGoneAllFailsAndOthersGoOn) {
  std::vector<std::byte> from = pattern(1000);
  std::vector<std::byte> to(1000);
  first.transfers.start(transfer(true, 1, 1, 1, from));
  first.transfers.start(transfer(false, 1, 1, 2, to));
  first.transfers.start(transfer(true, 2, 1, 3, from));
  first.transfers.abandon(1, "it went");
  EXPECT_EQ(first.over, (std::map<Ticket, std::string>{{1, "it went"}, {2, "it went"}}));
  first.transfers.start(transfer(true, 1, 2, 4, from));
  first.transfers.start(transfer(false, 1, 2, 5, to));
  EXPECT_EQ(first.over.at(4), "it went");
  EXPECT_EQ(first.over.at(5), "it went");
  third.transfers.start(transfer(false, 0, 1, 6, to));
  EXPECT_TRUE(until([&] { return first.done(3) && third.done(6); }));
  EXPECT_EQ(from, to);
  // What it sent before it went may still come, and is no fault.
  Stranger ghost(context, first);
  for (const std::uint64_t key : {1, 2}) ghost.say(Word::data, key, 0, from);
  for (int i = 0; i < 10'000 && first.faults.empty(); ++i) {
    ghost.progress();
    progress();
  }
  EXPECT_EQ(first.faults, std::vector<std::string>{});
}

TEST_F(Protocol, WhatMakesNoSenseIsAFaultAndTouchesNothing) {
  const std::vector<std::byte> data = pattern(1000);
  std::vector<std::byte> to(600);
  Stranger stranger(context, first);
  first.transfers.start(transfer(false, 1, 1, 1, to, 300));
  const auto fault = [&](const std::string& expected) {
    EXPECT_TRUE(until([&] {
      stranger.progress();
      return !first.faults.empty();
    })) << expected;
    if (!first.faults.empty()) {
      EXPECT_NE(first.faults.front().find(expected), std::string::npos) << first.faults.front();
    }
    first.faults.clear();
  };
  const auto some = [&](std::size_t size) {
    return std::vector<std::byte>(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(size));
  };
  stranger.say(Word::data, 9, 0, some(10));
  fault("rank 1 sent data of key 9, for which nobody has asked");
  stranger.say(Word::data, 1, 600, some(1));
  fault("where they do not fit");
  stranger.say(Word::data, 1, 200, some(101));  // over the end of a piece
  fault("rank 1 sent 101 bytes at 200 of key 1, where they do not fit");
  stranger.say(Word::data, 1, 0, {});
  fault("where they do not fit");
  stranger.say(static_cast<Word>(17), 1, 0, {});
  fault("an unknown word 17 from rank 1");
  const TransferHeader sound = stranger.header;
  for (const std::function<void(TransferHeader&)>& spoil :
       std::vector<std::function<void(TransferHeader&)>>{
           [](TransferHeader& h) { h.magic = 1; }, [](TransferHeader& h) { h.run = kRun + 1; },
           [](TransferHeader& h) { h.from = 3; }, [](TransferHeader& h) { h.from = -1; },
           [](TransferHeader& h) { h.size = 11; }}) {
    stranger.header = sound;
    stranger.header.word = Word::data;
    stranger.header.size = 10;
    spoil(stranger.header);
    stranger.say(some(10));
    fault("no message of a block transfer of this run");
  }
  EXPECT_EQ(to, std::vector<std::byte>(600));
  EXPECT_TRUE(first.over.empty());
  // It has lost nothing: what fits is taken, in any order.
  stranger.header = sound;
  const auto part = [&](std::size_t at) {
    const auto begin = data.begin() + static_cast<std::ptrdiff_t>(at);
    stranger.say(Word::data, 1, at, {begin, begin + 300});
  };
  part(300);
  part(0);
  EXPECT_TRUE(until([&] {
    stranger.progress();
    return first.done(1);
  }));
  EXPECT_EQ(to, some(600));
}

// A question for other bytes than there are, or one that makes no sense, ends the transfer.
TEST_F(Protocol, AQuestionMustBeForAllThereIs) {
  std::vector<std::byte> from = pattern(1000);
  Stranger stranger(context, first);
  std::uint64_t key = 0;
  for (const std::vector<std::uint64_t>& cuts : std::vector<std::vector<std::uint64_t>>{
           {999, 1}, {1001, 1}, {1, 999}, {1, UINT64_MAX}, {UINT64_MAX, 1}, {500, 3}, {0, 5}, {}}) {
    const Ticket ticket = ++key;
    first.transfers.start(transfer(true, 1, key, ticket, from));
    std::vector<std::byte> body(cuts.size() * sizeof(std::uint64_t));
    if (!body.empty()) std::memcpy(body.data(), cuts.data(), body.size());
    stranger.say(Word::ask, key, 1000, body);
    EXPECT_TRUE(until([&] {
      stranger.progress();
      return first.over.contains(ticket);
    }));
    EXPECT_EQ(first.over[ticket], "rank 0 has 1000 bytes to send, rank 1 room for another number");
  }
  EXPECT_TRUE(first.faults.empty());
}

TEST(StagedTransfers, GoThroughPinnedMemoryAtEitherEnd) {
  const std::size_t size = 40 * DeviceStaging::kBytes + 12'345;
  const UcxContext context(2, true);
  test::FakeDevice from(size);
  test::FakeDevice to(size);
  End sender(context, 0, &from);
  End receiver(context, 1, &to);
  std::vector<TransportPlace> places{{"host0", sender.transfers.worker().address()},
                                     {"host1", receiver.transfers.worker().address()}};
  for (End* end : {&sender, &receiver}) end->transfers.open(kRun, places);
  for (std::size_t i = 0; i < size; ++i) from.contents[i] = static_cast<std::byte>(i * 7 + i / 251);
  const auto whole = [&](bool sends, std::span<std::byte> memory, std::size_t first_piece) {
    Transfer t;
    t.ticket = 1;
    t.name = {sends ? 1 : 0, 8};
    t.sends = sends;
    t.pieces = {{memory.data(), first_piece, nullptr, true},
                {memory.data() + first_piece, size - first_piece, nullptr, true}};
    t.ends = {first_piece, size};
    return t;
  };
  sender.transfers.start(whole(true, from.memory(), 5'000'001));
  receiver.transfers.start(whole(false, to.memory(), 20'000'003));
  for (int i = 0; i < 1'000'000 && !(sender.done(1) && receiver.done(1)); ++i) {
    for (End* end : {&sender, &receiver}) {
      end->transfers.worker().progress();
      end->transfers.settle();
    }
  }
  EXPECT_TRUE(sender.done(1) && receiver.done(1));
  EXPECT_TRUE(from.contents == to.contents);
  EXPECT_EQ(from.copied, size);
  EXPECT_EQ(to.copied, size);
  // Pinned memory is used again: much less of it than the transfer is long.
  EXPECT_LE(from.stages(), 16U);
  EXPECT_LE(to.stages(), 16U);
}

}  // namespace
}  // namespace paceline::fabric
