#include "runtime/fabric/mpi_mailbox.hpp"

#include <mutex>

#include "runtime/fabric/backoff.hpp"

namespace paceline::fabric {

MpiMailbox::~MpiMailbox() {
  reap();
  // MPI may read an abandoned send's bytes until the process ends.
  static std::mutex mutex;
  static std::list<Pending> abandoned;
  const std::lock_guard lock(mutex);
  abandoned.splice(abandoned.end(), pending_);
}

void MpiMailbox::drain() {
  Backoff backoff;
  while (!pending_.empty()) {
    reap();
    backoff.pause();
  }
}

void MpiMailbox::reap() {
  for (auto it = pending_.begin(); it != pending_.end();) {
    int done = 0;
    MPI_Test(&it->request, &done, MPI_STATUS_IGNORE);
    it = done != 0 ? pending_.erase(it) : std::next(it);
  }
}

void MpiMailbox::send(Address to, std::span<const std::byte> bytes) {
  reap();
  Pending& pending = pending_.emplace_back();
  pending.bytes.assign(bytes.begin(), bytes.end());
  MPI_Isend(pending.bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, to.rank,
            static_cast<int>(to.port), comm_, &pending.request);
  ++traffic_.messages;
  traffic_.bytes += bytes.size();
}

std::optional<Envelope> MpiMailbox::poll() {
  reap();
  int there = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  MPI_Improbe(MPI_ANY_SOURCE, static_cast<int>(port_), comm_, &there, &message, &status);
  if (there == 0) return std::nullopt;
  int size = 0;
  MPI_Get_count(&status, MPI_BYTE, &size);
  Envelope envelope{status.MPI_SOURCE, std::vector<std::byte>(size)};
  MPI_Mrecv(envelope.bytes.data(), size, MPI_BYTE, &message, MPI_STATUS_IGNORE);
  return envelope;
}

}  // namespace paceline::fabric
