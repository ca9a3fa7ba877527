// The mailbox of a drafter rank that stalls, floods or sends garbage, for tests.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <set>
#include <span>

#include "runtime/core/mailbox.hpp"

namespace paceline::chaos {

enum class Misbehaviour : std::uint8_t {
  none,
  stall,    ///< sleeps for seconds within a turn
  flood,    ///< sends thousands of useless drafts a turn
  garbage,  ///< sends random messages, and spoils some of the proper ones
};

/// The mailbox of a drafter rank. It misbehaves towards all ranks that have written to it and
/// towards the coordinator. It sends nothing to peers without room, so as not to fill this rank's
/// memory.
class MisbehavingMailbox final : public Mailbox {
 public:
  /// `sleep`: called to stall, with seconds. `inner` must outlive this object, and be used only
  /// through it.
  MisbehavingMailbox(Mailbox& inner, Misbehaviour how, std::uint64_t seed,
                     std::function<void(double)> sleep)
      : inner_(inner), how_(how), sleep_(std::move(sleep)), random_(seed) {}

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
  /// A random number in [0, end).
  std::uint32_t chance(std::uint32_t end) { return static_cast<std::uint32_t>(random_() % end); }

  Mailbox& inner_;
  Misbehaviour how_;
  std::function<void(double)> sleep_;
  std::mt19937_64 random_;
  std::set<int> heard_;  ///< ranks that have written
  int turns_ = 0;        ///< turns since the first rank has written
};

}  // namespace paceline::chaos
