#include "runtime/fabric/ucx_block_transport.hpp"

#include <fmt/format.h>

#include <stdexcept>

namespace paceline::fabric {

UcxBlockTransport::UcxBlockTransport(const UcxContext& context, int rank, Mailbox& participant)
    : participant_(participant),
      staging_(context.reaches_cuda_memory() ? nullptr : make_device_staging()),
      transfers_(context, rank, staging_.get(),
                 {[this](const Transfer& transfer) {
                    tickets_.close(transfer.ticket, transfer.sends, transfer.total(),
                                   transfer.failure);
                    participant_.wake();
                  },
                  [this](std::string fault) { fail(std::move(fault)); }}),
      memory_(context, staging_.get()) {}

UcxBlockTransport::~UcxBlockTransport() { stop(); }

void UcxBlockTransport::open(std::uint64_t run, std::vector<TransportPlace> places) {
  transfers_.open(run, std::move(places));
  thread_ = std::thread([this] { this->run(); });
}

void UcxBlockTransport::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  worker().wake();
  thread_.join();
}

// ---- Functions of the participant's thread.

void UcxBlockTransport::check_rank(int rank) const {
  if (rank < 0 || rank >= static_cast<int>(transfers_.places().size()))
    throw std::logic_error(fmt::format("a transfer with rank {}, which there is not", rank));
}

template <typename Byte>
Ticket UcxBlockTransport::begin(bool sends, int rank, std::uint64_t key,
                                std::span<const std::span<Byte>> pieces) {
  tickets_.check();
  check_rank(rank);
  Transfer transfer;
  transfer.name = {rank, key};
  transfer.sends = sends;
  std::size_t end = 0;
  for (const std::span<Byte> piece : pieces) {
    if (piece.empty()) continue;
    transfer.pieces.push_back(memory_.piece_of(piece.data(), piece.size()));
    transfer.ends.push_back(end += piece.size());
  }
  if (transfer.pieces.empty()) throw std::logic_error("a transfer of nothing");
  const Ticket ticket = transfer.ticket = tickets_.open();
  command(
      [this, transfer = std::move(transfer)]() mutable { transfers_.start(std::move(transfer)); });
  return ticket;
}

Ticket UcxBlockTransport::send(int to, std::uint64_t key,
                               std::span<const std::span<const std::byte>> pieces) {
  return begin(true, to, key, pieces);
}

Ticket UcxBlockTransport::receive(int from, std::uint64_t key,
                                  std::span<const std::span<std::byte>> pieces) {
  return begin(false, from, key, pieces);
}

void UcxBlockTransport::refuse(int to, std::uint64_t key) {
  tickets_.check();
  check_rank(to);
  command([this, to, key] { transfers_.refuse({to, key}); });
}

void UcxBlockTransport::lose(int rank, const std::string& why) {
  command([this, rank,
           failure = fmt::format("lost rank {} on {}: {}", rank, transfers_.places()[rank].host,
                                 why)] { transfers_.abandon(rank, failure); });
}

void UcxBlockTransport::cancel(Ticket ticket) {
  command([this, ticket] { transfers_.give_up(ticket); });
}

void UcxBlockTransport::command(std::function<void()> command) {
  {
    const std::lock_guard lock(mutex_);
    commands_.push_back(std::move(command));
  }
  worker().wake();
}

// ---- Functions of the transport's thread.

void UcxBlockTransport::run() {
  constexpr double kLong = 1000;  // seconds; commands and the network end the wait
  try {
    while (run_commands()) {
      worker().wait(kLong, [this] {
        transfers_.settle();
        return false;
      });
    }
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

void UcxBlockTransport::fail(std::string fault) {
  tickets_.fail(std::move(fault));
  participant_.wake();
}

bool UcxBlockTransport::run_commands() {
  std::deque<std::function<void()>> commands;
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return false;
    commands.swap(commands_);
  }
  for (const std::function<void()>& command : commands) command();
  return true;
}

}  // namespace paceline::fabric
