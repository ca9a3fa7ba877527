#include "runtime/fabric/ticket_book.hpp"

#include <utility>

#include "runtime/core/error.hpp"
#include "runtime/core/stopwatch.hpp"

namespace paceline::fabric {

Ticket TicketBook::open() {
  const std::lock_guard lock(mutex_);
  seconds_.push_back(0);
  ++traffic_.pending;
  const auto ticket = static_cast<Ticket>(seconds_.size());
  pending_.emplace(ticket, steady_seconds());
  return ticket;
}

void TicketBook::close(Ticket ticket, bool sends, std::size_t bytes, const std::string& failure) {
  const std::lock_guard lock(mutex_);
  seconds_[ticket - 1] = static_cast<float>(steady_seconds() - pending_.extract(ticket).mapped());
  --traffic_.pending;
  if (!failure.empty()) {
    ++traffic_.failed;
    failures_.emplace(ticket, failure);
  } else if (sends) {
    ++traffic_.sent;
    traffic_.bytes_sent += bytes;
  } else {
    ++traffic_.received;
    traffic_.bytes_received += bytes;
  }
}

void TicketBook::fail(std::string fault) {
  const std::lock_guard lock(mutex_);
  if (fault_.empty()) fault_ = std::move(fault);
}

void TicketBook::check() const {
  const std::lock_guard lock(mutex_);
  if (!fault_.empty()) throw Error(ExitCode::internal, "block transfers: " + fault_);
}

TransferState TicketBook::state(Ticket ticket) const {
  check();
  const std::lock_guard lock(mutex_);
  if (pending_.contains(ticket)) return TransferState::pending;
  return failures_.contains(ticket) ? TransferState::failed : TransferState::done;
}

std::string TicketBook::failure(Ticket ticket) const {
  const std::lock_guard lock(mutex_);
  const auto found = failures_.find(ticket);
  return found == failures_.end() ? "" : found->second;
}

double TicketBook::seconds(Ticket ticket) const {
  const std::lock_guard lock(mutex_);
  return seconds_.at(ticket - 1);
}

BlockTransport::Traffic TicketBook::traffic() const {
  const std::lock_guard lock(mutex_);
  return traffic_;
}

}  // namespace paceline::fabric
