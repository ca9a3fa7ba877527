// The role of a spare rank, which has no work.
#pragma once

#include <optional>

#include "runtime/core/mailbox.hpp"
#include "runtime/policy/place/placement.hpp"
#include "runtime/protocol/participant.hpp"

namespace paceline::roles {

/// A spare rank waits until the coordinator gives it another role or ends the run.
class Spare final : public protocol::Participant {
 public:
  Spare(Mailbox& mailbox, int rank) : mailbox_(mailbox), rank_(rank) {}
  protocol::Turn turn() override;
  [[nodiscard]] bool over() const override { return over_; }
  [[nodiscard]] std::optional<policy::Placement> next() const override { return next_; }

 private:
  Mailbox& mailbox_;
  int rank_;
  bool over_ = false;
  std::optional<policy::Placement> next_;
};

}  // namespace paceline::roles
