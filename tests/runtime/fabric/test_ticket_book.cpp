// Tickets of transfers, from the call that gave one to the end.
#include "runtime/fabric/ticket_book.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "runtime/core/error.hpp"

namespace paceline::fabric {
namespace {

TEST(TicketBook, TellsWhatBecameOfEachTicket) {
  TicketBook book;
  const Ticket sent = book.open();
  const Ticket received = book.open();
  const Ticket failed = book.open();
  EXPECT_EQ((std::vector{sent, received, failed}), (std::vector<Ticket>{1, 2, 3}));
  EXPECT_EQ(book.traffic().pending, 3U);
  book.close(received, false, 500, "");
  book.close(failed, true, 7000, "it broke");
  EXPECT_EQ(book.state(sent), TransferState::pending);
  EXPECT_EQ(book.state(received), TransferState::done);
  EXPECT_EQ(book.state(failed), TransferState::failed);
  EXPECT_EQ(book.failure(sent) + book.failure(received), "");
  EXPECT_EQ(book.failure(failed), "it broke");
  book.close(sent, true, 60, "");
  EXPECT_EQ(book.state(sent), TransferState::done);

  const BlockTransport::Traffic traffic = book.traffic();
  EXPECT_EQ(traffic.sent, 1U);
  EXPECT_EQ(traffic.received, 1U);
  EXPECT_EQ(traffic.failed, 1U);
  EXPECT_EQ(traffic.pending, 0U);
  EXPECT_EQ(traffic.bytes_sent, 60U) << "what failed has moved nothing";
  EXPECT_EQ(traffic.bytes_received, 500U);
}

TEST(TicketBook, TimesEachTicketFromItsOpeningOn) {
  TicketBook book;
  const Ticket early = book.open();
  EXPECT_EQ(book.seconds(early), 0) << "it is pending";
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const Ticket late = book.open();
  book.close(late, true, 1, "");
  book.close(early, true, 1, "");
  EXPECT_GE(book.seconds(early), 0.02);
  EXPECT_GE(book.seconds(late), 0);
  EXPECT_GE(book.seconds(early) - book.seconds(late), 0.02 * (1 - 1e-6));  // they are floats
  EXPECT_THROW((void)book.seconds(3), std::out_of_range);
}

TEST(TicketBook, AfterAFaultNoStateIsToldAndTheFirstFaultIs) {
  TicketBook book;
  const Ticket ticket = book.open();
  EXPECT_NO_THROW(book.check());
  book.fail("the network fell over");
  book.fail("and so did everything else");
  for (const auto& call :
       {+[](const TicketBook& b) { b.check(); }, +[](const TicketBook& b) { (void)b.state(1); }}) {
    try {
      call(book);
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::internal);
      EXPECT_STREQ(error.what(), "block transfers: the network fell over");
    }
  }
  book.close(ticket, true, 1, "");  // its thread may still get that far
  EXPECT_EQ(book.traffic().sent, 1U);
}

// The transport's thread closes what the participant opens and looks at.
TEST(TicketBook, IsForTwoThreads) {
  constexpr Ticket kTickets = 2000;
  TicketBook book;
  std::thread transport([&] {
    for (Ticket next = 1; next <= kTickets;) {
      if (book.traffic().sent + book.traffic().failed + book.traffic().pending < next) {
        std::this_thread::yield();
        continue;
      }
      book.close(next, true, next, next % 3 == 0 ? "every third" : "");
      ++next;
    }
  });
  for (Ticket t = 1; t <= kTickets; ++t) {
    EXPECT_EQ(book.open(), t);
    (void)book.state(t);
  }
  for (Ticket t = 1; t <= kTickets; ++t) {
    while (book.state(t) == TransferState::pending) std::this_thread::yield();
    EXPECT_EQ(book.state(t), t % 3 == 0 ? TransferState::failed : TransferState::done);
    EXPECT_EQ(book.failure(t), t % 3 == 0 ? "every third" : "");
  }
  transport.join();
  EXPECT_EQ(book.traffic().failed, kTickets / 3);
}

}  // namespace
}  // namespace paceline::fabric
