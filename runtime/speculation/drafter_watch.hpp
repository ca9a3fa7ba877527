// A verifier's watch over a drafter rank: it warns the user of a rank that is silent, does not
// read, sends nonsense or floods.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/core/clock.hpp"

namespace paceline::speculation {

/// The user hears of each kind of trouble when it begins, then once a minute at most. sum_up()
/// tells the totals. Not thread-safe.
class DrafterWatch {
 public:
  using Warn = std::function<void(const std::string&)>;
  /// The worth of a message, in rising order.
  enum class Worth : std::uint8_t { none, sign_of_life, drafts };

  /// `patience`: seconds. A rank that was told something and says nothing for so long is called
  /// silent. The clock outlives this.
  DrafterWatch(int rank, double patience, const Clock& clock, Warn warn);

  /// Notes that a step of the verifier has ended. Floods are counted step by step.
  void step_ended();
  /// Notes whether the rank reads its messages; false: its mailbox is full.
  void reads(bool reads);
  /// Notes that the rank was told something, and is to answer.
  void told();

  /// To be called for each message. Returns true if the message belongs to a flood: it was counted,
  /// and is to be dropped unread.
  [[nodiscard]] bool floods();
  /// Notes that a message made no sense, whole or in part. `what`: the words after "sends".
  void nonsense(const char* what);
  /// Notes that a message was read.
  void heard(Worth worth);

  /// Tells the user the total of each kind of trouble, if there was any.
  void sum_up() const;

 private:
  struct Trouble {
    std::uint64_t count = 0;
    double warned = 0;  ///< time at which the user last heard of it
  };
  void trouble(Trouble& what, const std::string& text);
  void warn(const std::string& text) const;

  int rank_;
  double patience_;
  const Clock& clock_;
  Warn warn_;
  double unanswered_since_ = -1;  ///< time at which the rank was told something; -1: answered
  bool silent_ = false;
  bool reads_ = true;
  int useless_ = 0;  ///< useless messages since the last step
  Trouble silences_, overflows_, nonsense_, floods_;
};

}  // namespace paceline::speculation
