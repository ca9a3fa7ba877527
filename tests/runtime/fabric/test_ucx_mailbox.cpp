// Mailboxes of several ranks in one process, and a stranger who speaks to them out of turn.
#include "runtime/fabric/ucx_mailbox.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <thread>

#include "runtime/chaos/delaying_mailbox.hpp"
#include "runtime/core/error.hpp"

namespace paceline::fabric {
namespace {

constexpr std::uint64_t kRun = 42;
constexpr unsigned kBatchId = 1;

Address role(int rank) { return {rank, Address::Port::role}; }

std::vector<std::byte> bytes_of(int value, std::size_t size = 8) {
  std::vector<std::byte> bytes(size);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

int value_of(const Envelope& envelope) {
  int value = 0;
  std::memcpy(&value, envelope.bytes.data(), sizeof value);
  return value;
}

class UcxMailboxes : public testing::Test {
 protected:
  void make(int ranks, MailboxSettings settings = {}) {
    std::vector<Address> all;
    for (int r = 0; r < ranks; ++r) all.push_back(role(r));
    make(all, settings);
  }
  void make(const std::vector<Address>& all, MailboxSettings settings = {}) {
    std::vector<MailboxPlace> places;
    for (const Address& at : all) {
      boxes_.push_back(std::make_unique<UcxMailbox>(context_, at, settings));
      places.push_back({at, "host" + std::to_string(at.rank), boxes_.back()->worker().address()});
    }
    for (const auto& box : boxes_) box->open(kRun, places);
  }
  UcxMailbox& box(int index) { return *boxes_[index]; }

  /// Sends `bytes` to rank 0 as they are.
  void intrude(const std::vector<std::byte>& bytes) {
    if (to_ == nullptr) to_ = &stranger_.connect(box(0).worker().address(), 9, "elsewhere");
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_AM_SEND_FLAG_EAGER;
    void* const request =
        ucp_am_send_nbx(to_->handle, kBatchId, nullptr, 0, bytes.data(), bytes.size(), &params);
    ASSERT_FALSE(UCS_PTR_IS_ERR(request));
    if (request == nullptr) return;
    while (ucp_request_check_status(request) == UCS_INPROGRESS) {
      stranger_.progress();
      box(0).worker().progress();
    }
    ucp_request_free(request);
  }
  /// A batch of one message that says it is rank 1's.
  std::vector<std::byte> forged(std::uint64_t sequence, int value, std::uint64_t consumed = 0,
                                std::uint64_t run = kRun, int from = 1) {
    BatchWriter writer;
    writer.add(bytes_of(value));
    return writer.take({.run = run,
                        .sequence = sequence,
                        .consumed = consumed,
                        .from = role(from),
                        .to = role(0)});
  }
  /// All mailboxes of this one thread move on.
  void pump() {
    for (const auto& box : boxes_) box->wait(0.0001);
  }
  Envelope next(Mailbox& mailbox) {
    std::optional<Envelope> e;
    while (!(e = mailbox.poll())) pump();
    return std::move(*e);
  }
  /// What rank 0 throws once it notices.
  std::string fault() {
    try {
      while (true) {
        stranger_.progress();
        box(0).wait(0.01);
        std::ignore = box(0).poll();
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::internal);
      return error.what();
    }
  }
  static void expect_in(const std::string& text, std::string_view part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }

  UcxContext context_{4, true};
  std::vector<std::unique_ptr<UcxMailbox>> boxes_;
  UcxWorker stranger_{context_, context_.detects_failures()};
  UcxEndpoint* to_ = nullptr;
};

TEST_F(UcxMailboxes, CarryMessagesInOrderAndInBatches) {
  make(2);
  for (int i = 0; i < 1000; ++i) box(1).send(role(0), bytes_of(i));
  box(1).flush();
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(value_of(next(box(0))), i);
  EXPECT_LT(box(1).traffic().batches, 20U);
  EXPECT_EQ(box(1).traffic().bytes, 8000U);
  EXPECT_EQ(box(1).traffic().queued, 0U);
}

TEST_F(UcxMailboxes, SayWhenAPeerIsFull) {
  make(2, {.window = 1000});
  EXPECT_FALSE(box(1).full(role(0)));
  for (int i = 0; i < 200; ++i) box(1).send(role(0), bytes_of(i));
  box(1).flush();
  EXPECT_TRUE(box(1).full(role(0)));
  EXPECT_EQ(box(1).traffic().stalls, 1U);
  EXPECT_GT(box(1).traffic().queued, 0U);
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(value_of(next(box(0))), i);
  }
  EXPECT_EQ(box(1).traffic().queued, 0U);
  for (int i = 0; i < 1000 && box(1).full(role(0)); ++i) pump();
  EXPECT_FALSE(box(1).full(role(0)));
}

TEST_F(UcxMailboxes, AMessageLargerThanTheWindowPasses) {
  make(2, {.window = 1000});
  for (int i = 0; i < 5; ++i) {
    box(1).send(role(0), bytes_of(i, 100'000));
    box(1).send(role(0), bytes_of(i + 100));
  }
  box(1).flush();
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(value_of(next(box(0))), i);
    EXPECT_EQ(value_of(next(box(0))), i + 100);
  }
}

// Rank 1 reads nothing: its window is used up, and UCX holds what cannot leave. Rank 2 has its own.
TEST_F(UcxMailboxes, DeliverWaitsForNobodyElse) {
  make(3, {.window = 1000});
  std::atomic<bool> over{false};
  std::atomic<bool> rescued{false};
  std::thread others([&] {
    const auto rescue = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!over) {
      box(2).wait(0.001);
      rescued = rescued || std::chrono::steady_clock::now() > rescue;
      if (rescued) std::ignore = box(1).poll();
    }
  });
  for (int i = 0; i < 200; ++i) box(0).send(role(1), bytes_of(i));
  box(0).send(role(2), bytes_of(7));
  box(0).wake();
  const Address to[] = {role(2)};
  box(0).deliver(to);
  over = true;
  others.join();
  ASSERT_FALSE(rescued);
  EXPECT_GT(box(0).traffic().queued, 0U);
  EXPECT_TRUE(box(0).wait(1000));  // whoever called wake() is still heard
  EXPECT_EQ(value_of(next(box(2))), 7);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(value_of(next(box(1))), i);
}

TEST_F(UcxMailboxes, ToOneselfToo) {
  make(1);
  box(0).send(role(0), bytes_of(7));
  EXPECT_TRUE(box(0).wait(10));
  EXPECT_EQ(value_of(next(box(0))), 7);
}

TEST_F(UcxMailboxes, WaitEndsByTimeByWakeAndByMessage) {
  make(2);
  EXPECT_FALSE(box(0).wait(0.001));
  box(0).wake();
  EXPECT_TRUE(box(0).wait(1000));
  EXPECT_FALSE(box(0).wait(0.001));
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    box(0).wake();
  });
  EXPECT_TRUE(box(0).wait(1000));
  other.join();
  std::atomic<bool> received{false};
  std::thread sender([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    box(1).send(role(0), bytes_of(1));
    while (!received) box(1).wait(0.001);
  });
  EXPECT_TRUE(box(0).wait(1000));
  const std::optional<Envelope> e = box(0).poll();
  ASSERT_TRUE(e);
  EXPECT_EQ(value_of(*e), 1);
  received = true;
  sender.join();
}

TEST_F(UcxMailboxes, NoticeGarbage) {
  make(2);
  intrude(std::vector<std::byte>(100, std::byte{'x'}));
  expect_in(fault(), "no header of a batch");
}

TEST_F(UcxMailboxes, NoticeAnotherRun) {
  make(2);
  intrude(forged(0, 1, 0, kRun + 1));
  expect_in(fault(), "another run");
}

TEST_F(UcxMailboxes, NoticeASenderThatThereIsNot) {
  make(2);
  intrude(forged(0, 1, 0, kRun, 5));
  expect_in(fault(), "rank 5");
}

TEST_F(UcxMailboxes, NoticeRepetition) {
  make(2);
  intrude(forged(0, 1));
  intrude(forged(0, 1));
  expect_in(fault(), "batch 0 from rank 1 on host1 came twice");
}

TEST_F(UcxMailboxes, NoticeCreditForWhatWasNeverSent) {
  make(2);
  intrude(forged(0, 1, 1000));
  expect_in(fault(), "read 1000 bytes of the 0");
}

TEST_F(UcxMailboxes, PutBatchesInOrder) {
  make(2);
  intrude(forged(2, 2));
  intrude(forged(1, 1));
  EXPECT_FALSE(box(0).wait(0.01));
  intrude(forged(0, 0));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(value_of(next(box(0))), i);
}

TEST_F(UcxMailboxes, NoticeLoss) {
  make(2, {.lost_after_seconds = 0.05});
  intrude(forged(0, 0));
  intrude(forged(2, 2));
  expect_in(fault(), "batch 1 from rank 1 on host1 is lost");
}

TEST_F(UcxMailboxes, NamePeersThatCannotBeReached) {
  make(2);
  std::vector<MailboxPlace> places{{role(0), "host0", box(0).worker().address()},
                                   {role(1), "host1", {}}};
  {
    UcxMailbox gone(context_, role(1), {});
    places[1].worker = gone.worker().address();
  }
  box(0).open(kRun, places);
  box(0).send(role(1), bytes_of(1));
  expect_in(fault(), "lost rank 1 on host1");
}

// Messages of one sender stay in order; those of different senders overtake one another, be they of
// one rank.
TEST_F(UcxMailboxes, CanBeDelayed) {
  make({role(1), role(0), Address::coordinator(), role(2)});
  chaos::DelayingMailbox delayed(box(0), {.seed = 1, .longest = 0.002});
  std::map<Address, int> first;
  std::map<Address, int> seen;
  for (int round = 0; round < 60; ++round) {
    for (const int from : {1, 2, 3}) {
      box(from).send(role(1), bytes_of(round));
      box(from).flush();
    }
    for (int i = 0; i < 3; ++i) {
      const Envelope e = next(delayed);
      EXPECT_EQ(value_of(e), seen[e.from]++);
      if (i == 0) ++first[e.from];
    }
  }
  EXPECT_EQ(seen.size(), 3U);
  for (const Address& from : {role(0), Address::coordinator(), role(2)})
    EXPECT_GT(first[from], 5) << from.rank << ' ' << static_cast<int>(from.port);
  delayed.wake();
  EXPECT_TRUE(delayed.wait(1000));
  EXPECT_FALSE(delayed.wait(0.001));
}

}  // namespace
}  // namespace paceline::fabric
