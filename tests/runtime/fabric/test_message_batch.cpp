#include "runtime/fabric/message_batch.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace paceline::fabric {
namespace {

constexpr std::uint64_t kRun = 77;
const Address kMe{3, Address::Port::role};
const BatchHeader kHeader{
    .run = kRun, .sequence = 5, .consumed = 1234, .from = Address::coordinator(), .to = kMe};

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto* at = reinterpret_cast<const std::byte*>(text.data());
  return {at, at + text.size()};
}

std::vector<std::byte> batch_of(std::initializer_list<std::string_view> messages) {
  BatchWriter writer;
  for (const auto message : messages) writer.add(bytes_of(message));
  return writer.take(kHeader);
}

std::string fault_of(std::span<const std::byte> batch, std::uint64_t run = kRun, Address me = kMe) {
  std::string fault;
  return read_batch(batch, run, me, fault) ? "" : fault;
}

TEST(MessageBatch, IsReadAsWritten) {
  BatchWriter writer;
  for (const auto message : {"one", "", "three"}) writer.add(bytes_of(message));
  EXPECT_EQ(writer.cost(), cost_of(3) + cost_of(0) + cost_of(5));
  const std::vector<std::byte> batch = writer.take(kHeader);
  EXPECT_EQ(writer.messages(), 0U);
  EXPECT_EQ(writer.cost(), 0U);
  std::string fault;
  const auto read = read_batch(batch, kRun, kMe, fault);
  ASSERT_TRUE(read) << fault;
  EXPECT_EQ(read->header.sequence, 5U);
  EXPECT_EQ(read->header.consumed, 1234U);
  EXPECT_EQ(read->header.from.rank, 0);
  EXPECT_EQ(read->header.from.port, Address::Port::coordinator);
  ASSERT_EQ(read->messages.size(), 3U);
  EXPECT_EQ(std::vector(read->messages[2].begin(), read->messages[2].end()), bytes_of("three"));
}

TEST(MessageBatch, SaysWhatIsWrong) {
  const std::vector<std::byte> batch = batch_of({"one", "two"});
  EXPECT_EQ(fault_of(batch), "");
  EXPECT_NE(fault_of(std::span(batch).first(10)).find("too few for a header"), std::string::npos);
  EXPECT_NE(fault_of(bytes_of(std::string(200, 'x'))).find("no header"), std::string::npos);
  EXPECT_NE(fault_of(batch, kRun + 1).find("another run"), std::string::npos);
  EXPECT_NE(fault_of(batch, kRun, {2, Address::Port::role}).find("for rank 3"), std::string::npos);
  EXPECT_NE(fault_of(std::span(batch).first(batch.size() - 1)).find("bytes came"),
            std::string::npos);
  std::vector<std::byte> longer = batch;
  longer[batch.size() - cost_of(3)] = std::byte{9};  // the size of the last message
  EXPECT_NE(fault_of(longer).find("do not add up"), std::string::npos);
}

TEST(MessageBatch, NoDamageToTheHeaderPasses) {
  const std::vector<std::byte> batch = batch_of({"message"});
  const std::size_t header = batch.size() - cost_of(7);
  for (std::size_t bit = 0; bit < header * 8; ++bit) {
    std::vector<std::byte> damaged = batch;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_NE(fault_of(damaged), "") << "bit " << bit;
  }
}

TEST(MessageBatch, DamagedBodiesAreReadWithinBounds) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::byte> damaged = batch_of({"some", "messages", "", "in a batch"});
    const std::size_t header = damaged.size() - cost_of(4) - cost_of(8) - cost_of(0) - cost_of(10);
    for (int k = 0; k < 4; ++k)
      damaged[header + random() % (damaged.size() - header)] = static_cast<std::byte>(random());
    std::string fault;
    if (const auto read = read_batch(damaged, kRun, kMe, fault)) {
      std::size_t cost = 0;
      for (const auto message : read->messages) cost += cost_of(message.size());
      EXPECT_EQ(cost, read->header.bytes);
    }
  }
}

TEST(BatchOrder, KeepsWhatIsEarlyAndKnowsWhatIsRepeated) {
  BatchOrder order;
  using Place = BatchOrder::Place;
  EXPECT_EQ(order.place(0), Place::next);
  EXPECT_EQ(order.place(2), Place::early);
  order.keep(2, bytes_of("2"));
  EXPECT_EQ(order.place(2), Place::repeated);
  EXPECT_TRUE(order.incomplete());
  EXPECT_FALSE(order.take_kept());
  order.accept_next();
  EXPECT_EQ(order.place(0), Place::repeated);
  EXPECT_FALSE(order.take_kept());
  order.accept_next();
  EXPECT_EQ(order.take_kept(), bytes_of("2"));
  EXPECT_FALSE(order.incomplete());
}

}  // namespace
}  // namespace paceline::fabric
