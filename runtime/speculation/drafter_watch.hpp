// A verifier's watch over one drafter rank. It warns the user if the rank is silent, does not read
// its messages, sends nonsense, or floods the verifier with useless messages.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/core/clock.hpp"

namespace paceline::speculation {

/// Warns the user of each kind of trouble when it first happens, then at most once a minute. Not
/// thread-safe.
class DrafterWatch {
 public:
  using Warn = std::function<void(const std::string&)>;
  /// The worth of a message, from the lowest to the highest.
  enum class Worth : std::uint8_t { none, sign_of_life, drafts };

  /// `patience`: the rank counts as silent when it has left a message unanswered for this number of
  /// seconds. The clock must outlive this object.
  DrafterWatch(int rank, double patience, const Clock& clock, Warn warn);

  /// To be called between steps of the verifier. Ends a flood. Warns if the rank has become silent.
  void step_ended();
  /// Notes whether the rank reads its messages, as far as its mailbox shows.
  void reads(bool reads);
  /// Notes that the rank was sent a message, which it must answer.
  void told();

  /// Call for each message before it is read. Returns true if the message belongs to a flood. The
  /// caller then drops the message unread.
  [[nodiscard]] bool floods();
  /// Notes that a message, or a part of it, made no sense. `what`: follows "sends" in the warning.
  void nonsense(const char* what);
  /// Notes that a message of this worth was read.
  void heard(Worth worth);

  /// Tells the user how often each kind of trouble happened, if any did.
  void sum_up() const;

 private:
  struct Trouble {
    std::uint64_t count = 0;
    double warned = 0;  ///< time of the last warning
  };
  void trouble(Trouble& what, const std::string& text);
  void warn(const std::string& text) const;

  int rank_;
  double patience_;
  const Clock& clock_;
  Warn warn_;
  double unanswered_since_ = -1;  ///< time of the first unanswered message; -1: all are answered
  bool silent_ = false;
  bool reads_ = true;
  int useless_ = 0;  ///< messages without usable drafts since step_ended()
  Trouble silences_, overflows_, nonsense_, floods_;
};

}  // namespace paceline::speculation
