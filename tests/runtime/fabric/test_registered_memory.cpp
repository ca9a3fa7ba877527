// Which memory UCX has been told of.
#include "runtime/fabric/registered_memory.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>
#include <vector>

#include "tests/runtime/fabric/fake_device.hpp"

namespace paceline::fabric {
namespace {

struct Registered : ::testing::Test {
  UcxContext context{1, true};
  std::vector<std::byte> memory = std::vector<std::byte>(100'000);
  std::span<std::byte> first = std::span(memory).subspan(10'000, 20'000);
  std::span<std::byte> second = std::span(memory).subspan(30'000, 5'000);  // begins where it ends
};

TEST_F(Registered, APieceIsOfTheRegionThatItLiesIn) {
  RegisteredMemory registered(context, nullptr);
  EXPECT_EQ(registered.piece_of(first.data(), 1).registration, nullptr);
  registered.add(second);
  registered.add(first);
  const ucp_mem_h whole = registered.piece_of(first.data(), first.size()).registration;
  ASSERT_NE(whole, nullptr);
  const Piece last = registered.piece_of(&first.back(), 1);
  EXPECT_EQ(last.registration, whole);
  EXPECT_EQ(last.memory, &first.back());
  EXPECT_EQ(last.size, 1U);
  EXPECT_FALSE(last.staged);
  const ucp_mem_h other = registered.piece_of(second.data(), second.size()).registration;
  ASSERT_NE(other, nullptr);
  EXPECT_NE(other, whole);
  // Across an end, and in none.
  for (const auto& [at, size] : {std::pair<std::size_t, std::size_t>{9'999, 1},
                                 {9'999, 2},
                                 {29'999, 2},
                                 {34'999, 2},
                                 {35'000, 1},
                                 {90'000, 10'000}}) {
    EXPECT_EQ(registered.piece_of(&memory[at], size).registration, nullptr) << at;
  }
  registered.remove(first);
  EXPECT_EQ(registered.piece_of(&first.back(), 1).registration, nullptr);
  EXPECT_EQ(registered.piece_of(second.data(), 1).registration, other);
}

TEST_F(Registered, OnlyWhatIsThereCanBeRemoved) {
  RegisteredMemory registered(context, nullptr);
  EXPECT_THROW(registered.remove(first), std::logic_error);
  registered.add(first);
  EXPECT_THROW(registered.remove(first.first(100)), std::logic_error);
  EXPECT_THROW(registered.remove(first.subspan(100)), std::logic_error);
  registered.remove(first);
  EXPECT_THROW(registered.remove(first), std::logic_error);
  registered.add(first);  // and given back at the end, of which leak checkers know
}

// What is prepared for a region that is there already would never be given back.
TEST_F(Registered, NothingIsPreparedForARegionThatIsThere) {
  test::FakeDevice device(4096);
  RegisteredMemory registered(context, &device);
  registered.add(first);
  const ucp_mem_h made = registered.piece_of(first.data(), 1).registration;
  EXPECT_EQ(device.asked, 1);
  EXPECT_THROW(registered.add(first), std::logic_error);
  EXPECT_THROW(registered.add(first.first(100)), std::logic_error);
  EXPECT_EQ(device.asked, 1);
  EXPECT_EQ(registered.piece_of(first.data(), first.size()).registration, made);
  registered.remove(first);
  EXPECT_NO_THROW(registered.add(first));
}

TEST_F(Registered, OfADevicesMemoryUcxIsNotTold) {
  test::FakeDevice device(4096);
  RegisteredMemory registered(context, &device);
  registered.add(first);
  registered.add(device.memory());
  const Piece staged = registered.piece_of(device.memory().data() + 1000, 96);
  EXPECT_TRUE(staged.staged);
  EXPECT_EQ(staged.registration, nullptr);
  EXPECT_FALSE(registered.piece_of(first.data(), 1).staged);
  registered.remove(device.memory());
  EXPECT_FALSE(registered.piece_of(device.memory().data(), 1).staged);
}

}  // namespace
}  // namespace paceline::fabric
