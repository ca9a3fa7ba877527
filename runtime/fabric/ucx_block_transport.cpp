#include "runtime/fabric/ucx_block_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
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

Ticket UcxBlockTransport::send(int to, std::uint64_t key,
                               std::span<const std::span<const std::byte>> pieces) {
  std::vector<Piece> mine;
  mine.reserve(pieces.size());
  for (const auto& p : pieces) mine.push_back(memory_.piece_of(p.data(), p.size()));
  return begin(true, to, key, std::move(mine));
}

Ticket UcxBlockTransport::receive(int from, std::uint64_t key,
                                  std::span<const std::span<std::byte>> pieces) {
  std::vector<Piece> mine;
  mine.reserve(pieces.size());
  for (const auto& p : pieces) mine.push_back(memory_.piece_of(p.data(), p.size()));
  return begin(false, from, key, std::move(mine));
}

void UcxBlockTransport::refuse(int to, std::uint64_t key) {
  tickets_.check();
  check_rank(to);
  Transfer named;
  named.name = {to, key};
  command({Command::What::refuse, std::move(named)});
}

void UcxBlockTransport::check_rank(int rank) const {
  if (rank < 0 || rank >= static_cast<int>(transfers_.places().size()))
    throw std::logic_error(fmt::format("a transfer with rank {}, which there is not", rank));
}

Ticket UcxBlockTransport::begin(bool sends, int rank, std::uint64_t key,
                                std::vector<Piece> pieces) {
  tickets_.check();
  check_rank(rank);
  std::erase_if(pieces, [](const Piece& piece) { return piece.size == 0; });
  if (pieces.empty()) throw std::logic_error("a transfer of nothing");
  const Ticket ticket = tickets_.open();
  Transfer transfer;
  transfer.ticket = ticket;
  transfer.name = {rank, key};
  transfer.sends = sends;
  std::size_t end = 0;
  for (const Piece& piece : pieces) transfer.ends.push_back(end += piece.size);
  transfer.pieces = std::move(pieces);
  command({Command::What::begin, std::move(transfer)});
  return ticket;
}

void UcxBlockTransport::lose(int rank, const std::string& why) {
  Transfer named;
  named.name.first = rank;
  named.failure = fmt::format("lost rank {} on {}: {}", rank, transfers_.places()[rank].host, why);
  command({Command::What::lose, std::move(named)});
}

void UcxBlockTransport::cancel(Ticket ticket) {
  Transfer named;
  named.ticket = ticket;
  command({Command::What::cancel, std::move(named)});
}

void UcxBlockTransport::command(Command command) {
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
    while (obey()) {
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

bool UcxBlockTransport::obey() {
  std::deque<Command> commands;
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return false;
    commands.swap(commands_);
  }
  for (Command& command : commands) {
    if (command.what == Command::What::begin) {
      transfers_.start(std::move(command.transfer));
    } else if (command.what == Command::What::refuse) {
      transfers_.refuse(command.transfer.name);
    } else if (command.what == Command::What::lose) {
      transfers_.abandon(command.transfer.name.first, command.transfer.failure);
    } else {
      transfers_.give_up(command.transfer.ticket);
    }
  }
  return true;
}

}  // namespace paceline::fabric
