// For tests: a drafter rank that does what none should.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <set>
#include <span>

#include "runtime/core/mailbox.hpp"

namespace paceline::roles {

enum class Misbehaviour : std::uint8_t {
  none,
  stall,    ///< sleeps for seconds within a turn
  flood,    ///< sends thousands of drafts a turn, of no use
  garbage,  ///< sends anything, and spoils some of what it should send
};

/// PACELINE_TEST_DRAFTER=stall|flood|garbage:SEED in the environment, and for draft servers, which
/// stall alone, PACELINE_TEST_DRAFT_SERVER=stall:SEED.
struct TestDrafter {
  Misbehaviour how = Misbehaviour::none;
  std::uint64_t seed = 0;
};
/// `text`: of the variable; null where it is not set. Throws UsageError.
[[nodiscard]] TestDrafter test_drafter(const char* variable, const char* text);

/// The mailbox of a drafter rank: misbehaves towards all that have written to it, and the
/// coordinator. It keeps to what its peers have room for, so as not to fill its own memory.
class MisbehavingMailbox final : public Mailbox {
 public:
  /// `sleep`: of a stall. `inner` must outlive this, and be used through it alone.
  MisbehavingMailbox(Mailbox& inner, const TestDrafter& test, std::function<void(double)> sleep)
      : inner_(inner), test_(test), sleep_(std::move(sleep)), random_(test.seed) {}

  void send(Address to, std::span<const std::byte> bytes) override;
  void flush() override { inner_.flush(); }
  void deliver(std::span<const Address> to) override { inner_.deliver(to); }
  [[nodiscard]] std::optional<Envelope> poll() override;
  bool wait(double seconds) override;
  void wake() override { inner_.wake(); }
  [[nodiscard]] bool full(Address to) const override { return inner_.full(to); }
  [[nodiscard]] Traffic traffic() const override { return inner_.traffic(); }

 private:
  void misbehave();
  [[nodiscard]] std::vector<std::byte> stale();
  [[nodiscard]] std::vector<std::byte> garbage();
  /// In [0, end).
  std::uint32_t chance(std::uint32_t end) { return static_cast<std::uint32_t>(random_() % end); }

  Mailbox& inner_;
  TestDrafter test_;
  std::function<void(double)> sleep_;
  std::mt19937_64 random_;
  std::set<int> heard_;  ///< ranks that have written
  int turns_ = 0;        ///< since the first of them
};

}  // namespace paceline::roles
