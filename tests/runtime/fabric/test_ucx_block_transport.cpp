// Block transports of several ranks in one process.
#include "runtime/fabric/ucx_block_transport.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>

#include "runtime/fabric/ucx_mailbox.hpp"

namespace paceline::fabric {
namespace {

constexpr std::uint64_t kRun = 42;

class UcxBlocks : public testing::Test {
 protected:
  void SetUp() override {
    std::vector<TransportPlace> places;
    for (int r = 0; r < 3; ++r) {
      boxes_.push_back(std::make_unique<UcxMailbox>(context_, Address{r, Address::Port::role},
                                                    MailboxSettings{}));
      blocks_.push_back(std::make_unique<UcxBlockTransport>(context_, r, *boxes_.back()));
      places.push_back({"host" + std::to_string(r), blocks_.back()->worker().address()});
    }
    for (const auto& blocks : blocks_) blocks->open(kRun, places);
  }
  void TearDown() override { blocks_.clear(); }

  UcxBlockTransport& at(int rank) { return *blocks_[rank]; }
  TransferState end(int rank, Ticket ticket) {
    while (at(rank).state(ticket) == TransferState::pending) boxes_[rank]->wait(10);
    return at(rank).state(ticket);
  }
  static std::vector<std::byte> pattern(std::size_t size) {
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
    return bytes;
  }
  /// Cut after every `piece` bytes.
  static std::vector<std::span<std::byte>> cut(std::vector<std::byte>& memory, std::size_t piece) {
    std::vector<std::span<std::byte>> pieces;
    for (std::size_t at = 0; at < memory.size(); at += piece)
      pieces.push_back(std::span(memory).subspan(at, std::min(piece, memory.size() - at)));
    return pieces;
  }
  Ticket send(int from, int to, std::uint64_t key, std::vector<std::byte>& memory,
              std::size_t piece = 100'000) {
    const auto pieces = cut(memory, piece);
    return at(from).send(to, key,
                         std::vector<std::span<const std::byte>>(pieces.begin(), pieces.end()));
  }
  Ticket receive(int at_rank, int from, std::uint64_t key, std::vector<std::byte>& memory,
                 std::size_t piece = 100'000) {
    return at(at_rank).receive(from, key, cut(memory, piece));
  }

  UcxContext context_{3, true};
  std::vector<std::unique_ptr<UcxMailbox>> boxes_;
  std::vector<std::unique_ptr<UcxBlockTransport>> blocks_;
};

TEST_F(UcxBlocks, AreCutAsEachEndLikes) {
  const std::size_t total = 3'000'000;
  std::uint64_t key = 0;
  for (const auto& [theirs, mine] : {std::pair<std::size_t, std::size_t>{4096, 4096},
                                     {total, 1000},
                                     {64'000, total},
                                     {70'001, 130'003},
                                     {1, 1 << 20}}) {
    const std::size_t size = theirs == 1 ? 3000 : total;
    std::vector<std::byte> from = pattern(size);
    std::vector<std::byte> to(size);
    const Ticket in = receive(1, 0, ++key, to, mine);
    const Ticket out = send(0, 1, key, from, theirs);
    EXPECT_EQ(end(1, in), TransferState::done);
    EXPECT_EQ(end(0, out), TransferState::done);
    EXPECT_EQ(from, to);
  }
  EXPECT_EQ(at(0).traffic().sent, 5U);
  EXPECT_EQ(at(1).traffic().bytes_received, 4 * total + 3000);
}

TEST_F(UcxBlocks, PiecesMayLieAnywhere) {
  std::vector<std::byte> from = pattern(1'000'000);
  std::vector<std::byte> to(from.size());
  at(0).register_memory(from);
  auto sources = cut(from, 50'000);
  auto targets = cut(to, 50'000);
  std::reverse(sources.begin(), sources.end());
  std::reverse(targets.begin(), targets.end());
  const Ticket out =
      at(0).send(1, 1, std::vector<std::span<const std::byte>>(sources.begin(), sources.end()));
  EXPECT_EQ(end(1, at(1).receive(0, 1, targets)), TransferState::done);
  EXPECT_EQ(end(0, out), TransferState::done);
  EXPECT_EQ(from, to);
  at(0).unregister_memory(from);
}

// One rank never posts its end; others go on, in both orders of posting.
TEST_F(UcxBlocks, NobodyWaitsForAnothersTransfer) {
  std::vector<std::byte> from = pattern(500'000);
  std::vector<std::byte> to(from.size());
  std::vector<std::byte> elsewhere(from.size());
  const Ticket never_received = send(0, 1, 1, from);
  const Ticket never_sent = receive(1, 2, 1, elsewhere);
  for (std::uint64_t key = 2; key < 12; ++key) {
    const Ticket out = send(0, 1, key, from);
    EXPECT_EQ(end(1, receive(1, 0, key, to)), TransferState::done);
    EXPECT_EQ(end(0, out), TransferState::done);
    EXPECT_EQ(from, to);
    std::fill(to.begin(), to.end(), std::byte{});
  }
  EXPECT_EQ(at(0).state(never_received), TransferState::pending);
  EXPECT_EQ(at(1).state(never_sent), TransferState::pending);
  EXPECT_EQ(at(0).traffic().pending, 1U);
}

TEST_F(UcxBlocks, AReceiverGivesUp) {
  std::vector<std::byte> from = pattern(100'000);
  std::vector<std::byte> to(from.size());
  const Ticket in = receive(1, 0, 1, to);
  at(1).cancel(in);
  EXPECT_EQ(end(1, in), TransferState::failed);
  EXPECT_EQ(at(1).failure(in), "cancelled");
  const Ticket out = send(0, 1, 1, from);  // comes too late
  EXPECT_EQ(end(0, out), TransferState::failed);
  EXPECT_EQ(at(0).failure(out), "the receiver gave it up");
  EXPECT_TRUE(std::all_of(to.begin(), to.end(), [](std::byte b) { return b == std::byte{}; }));
}

TEST_F(UcxBlocks, ASenderGivesUp) {
  std::vector<std::byte> from = pattern(100'000);
  std::vector<std::byte> to(from.size());
  const Ticket out = send(0, 1, 1, from);
  at(0).cancel(out);
  EXPECT_EQ(end(0, out), TransferState::failed);
  const Ticket in = receive(1, 0, 1, to);
  EXPECT_EQ(end(1, in), TransferState::failed);
  EXPECT_EQ(at(1).failure(in), "the sender gave it up");
  at(0).cancel(out);  // over: nothing happens
  EXPECT_EQ(at(0).state(out), TransferState::failed);
}

TEST_F(UcxBlocks, ASenderHasNothingToSend) {
  std::vector<std::byte> to(100'000);
  at(0).refuse(1, 1);
  const Ticket late = receive(1, 0, 1, to);
  EXPECT_EQ(end(1, late), TransferState::failed);
  EXPECT_EQ(at(1).failure(late), "the sender has nothing to send");
  const Ticket early = receive(1, 0, 2, to);
  at(0).refuse(1, 2);
  EXPECT_EQ(end(1, early), TransferState::failed);
  EXPECT_EQ(at(1).failure(early), "the sender has nothing to send");
  EXPECT_EQ(at(0).traffic().failed, 0U);
  EXPECT_THROW(at(0).refuse(99, 3), std::logic_error);
}

// A stranger speaks as rank 1 whose withdrawal comes before its question. Nothing may be sent then.
TEST_F(UcxBlocks, AWithdrawalMayOvertakeItsQuestion) {
  enum : std::uint32_t { ask, withdraw };
  struct {
    std::uint32_t magic = 0x6b6f6c62, word = 0;
    std::uint64_t run = kRun, key = 0, at = 0, size = 0;
    std::int32_t from = 1;
    std::uint32_t reserved = 0;
  } wire;
  UcxWorker stranger(context_, false);
  UcxEndpoint& to_rank_0 = stranger.connect(at(0).worker().address(), 0, "host0");
  const auto say = [&](std::uint32_t word, std::uint64_t key) {
    constexpr std::uint64_t kCuts[] = {1000, 1};
    wire.word = word;
    wire.key = key;
    wire.size = word == ask ? sizeof kCuts : 0;
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_AM_SEND_FLAG_EAGER;
    void* const request = ucp_am_send_nbx(to_rank_0.handle, 2, &wire, sizeof wire, kCuts,
                                          static_cast<std::size_t>(wire.size), &params);
    ASSERT_FALSE(UCS_PTR_IS_ERR(request));
    if (request == nullptr) return;
    while (ucp_request_check_status(request) == UCS_INPROGRESS) stranger.progress();
    ucp_request_free(request);
  };
  std::vector<std::byte> from = pattern(1000);
  std::vector<std::byte> to(1000);
  say(withdraw, 1);
  say(ask, 1);
  const Ticket heard = receive(1, 0, 2, to);
  say(withdraw, 2);
  EXPECT_EQ(end(1, heard), TransferState::failed);  // so rank 0 has heard all of it
  const Ticket out = send(0, 1, 1, from);
  EXPECT_EQ(end(0, out), TransferState::failed);
  EXPECT_EQ(at(0).failure(out), "the receiver gave it up");
  const Ticket after = send(0, 1, 3, from);
  EXPECT_EQ(end(1, receive(1, 0, 3, to)), TransferState::done);  // and nobody has found a fault
  EXPECT_EQ(end(0, after), TransferState::done);
}

TEST_F(UcxBlocks, BothEndsMustNameAsManyBytes) {
  std::vector<std::byte> from = pattern(1000);
  std::vector<std::byte> to(999);
  const Ticket in = receive(1, 0, 1, to);
  const Ticket out = send(0, 1, 1, from);
  EXPECT_EQ(end(0, out), TransferState::failed);
  EXPECT_EQ(end(1, in), TransferState::failed);
  EXPECT_NE(at(1).failure(in).find("1000 bytes"), std::string::npos) << at(1).failure(in);
}

// Cancelled at any moment by either end: both tickets end, done or failed, and what is done is
// whole.
TEST_F(UcxBlocks, EndHoweverCancellingRaces) {
  std::vector<std::byte> from = pattern(2'000'000);
  for (std::uint64_t key = 1; key <= 60; ++key) {
    std::vector<std::byte> to(from.size());
    const Ticket out = send(0, 1, key, from);
    const Ticket in = receive(1, 0, key, to);
    std::this_thread::sleep_for(std::chrono::microseconds(key * 10));
    if (key % 3 != 0) at(0).cancel(out);
    if (key % 3 != 1) at(1).cancel(in);
    const TransferState sent = end(0, out);
    const TransferState received = end(1, in);
    EXPECT_EQ(sent, received) << at(0).failure(out) << "; " << at(1).failure(in);
    EXPECT_TRUE(received == TransferState::failed || from == to);
  }
}

TEST_F(UcxBlocks, ATransferWithAPeerThatHasGoneFails) {
  std::vector<std::byte> from = pattern(1000);
  std::vector<std::byte> to(1000);
  blocks_[2].reset();
  const Ticket in = receive(1, 2, 1, to);
  at(1).lose(2, "it has gone");  // as a mailbox tells
  EXPECT_EQ(end(1, in), TransferState::failed);
  EXPECT_EQ(end(1, receive(1, 2, 2, to)), TransferState::failed);
  EXPECT_NE(at(1).failure(in).find("rank 2 on host2"), std::string::npos) << at(1).failure(in);
  const Ticket out = send(0, 1, 1, from);  // others go on
  EXPECT_EQ(end(1, receive(1, 0, 1, to)), TransferState::done);
  EXPECT_EQ(end(0, out), TransferState::done);
}

}  // namespace
}  // namespace paceline::fabric
