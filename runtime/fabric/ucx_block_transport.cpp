#include "runtime/fabric/ucx_block_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>

#include "runtime/core/error.hpp"

namespace paceline::fabric {
namespace {

constexpr unsigned kMessageId = 2;
constexpr std::uint32_t kMagic = 0x6b6f6c62;
/// Parts of data under way to one rank: enough to keep a connection busy, few enough that a
/// transfer that begins later is not far behind.
constexpr int kMostParts = 16;

/// Sizes of pieces, equal neighbours together: most transfers have pieces of one size.
struct Cut {
  std::uint64_t size, count;
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

enum class UcxBlockTransport::Word : std::uint32_t {
  ask,       ///< receiver: ready; its cuts
  withdraw,  ///< receiver: gives up; answered by `refuse` unless data is on its way
  refuse,    ///< sender: no data will come; why
  data,
};

UcxBlockTransport::UcxBlockTransport(const UcxContext& context, int rank, Mailbox& participant)
    : context_(context),
      rank_(rank),
      participant_(participant),
      staging_(context.reaches_cuda_memory() ? nullptr : make_device_staging()),
      worker_(context, false) {
  worker_.set_handler(kMessageId, &UcxBlockTransport::on_message, this);
}

UcxBlockTransport::~UcxBlockTransport() {
  stop();
  for (const auto& [memory, region] : regions_) {
    if (region.registration != nullptr) ucp_mem_unmap(context_.get(), region.registration);
  }
}

void UcxBlockTransport::open(std::uint64_t run, std::vector<TransportPlace> places) {
  run_ = run;
  places_ = std::move(places);
  endpoints_.resize(places_.size(), nullptr);
  parts_to_.resize(places_.size(), 0);
  lost_.resize(places_.size());
  thread_ = std::thread([this] { this->run(); });
}

void UcxBlockTransport::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  worker_.wake();
  thread_.join();
}

// ---- The participant's thread.

void UcxBlockTransport::register_memory(std::span<std::byte> region) {
  Region made{.size = region.size(), .registration = nullptr, .staged = false};
  made.staged = staging_ && staging_->is_device(region.data());
  if (!made.staged) {
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address = region.data();
    params.length = region.size();
    check_ucx(
        ucp_mem_map(context_.get(), &params, &made.registration),
        fmt::format("registering {} bytes of memory (is `ulimit -l` too small?)", region.size()));
  }
  if (!regions_.emplace(region.data(), made).second)
    throw std::logic_error("memory is registered already");
}

void UcxBlockTransport::unregister_memory(std::span<std::byte> region) {
  const auto found = regions_.find(region.data());
  if (found == regions_.end() || found->second.size != region.size())
    throw std::logic_error("no such region is registered");
  if (found->second.registration != nullptr)
    check_ucx(ucp_mem_unmap(context_.get(), found->second.registration), "forgetting memory");
  regions_.erase(found);
}

UcxBlockTransport::Piece UcxBlockTransport::piece_of(const std::byte* memory,
                                                     std::size_t size) const {
  Piece piece{const_cast<std::byte*>(memory), size, nullptr, false};  // as UCX's calls have it
  auto region = regions_.upper_bound(memory);
  if (region == regions_.begin()) return piece;
  --region;
  if (memory + size > region->first + region->second.size) return piece;
  piece.registration = region->second.registration;
  piece.staged = region->second.staged;
  return piece;
}

Ticket UcxBlockTransport::send(int to, std::uint64_t key,
                               std::span<const std::span<const std::byte>> pieces) {
  std::vector<Piece> mine;
  mine.reserve(pieces.size());
  for (const auto& p : pieces) mine.push_back(piece_of(p.data(), p.size()));
  return begin(true, to, key, std::move(mine));
}

Ticket UcxBlockTransport::receive(int from, std::uint64_t key,
                                  std::span<const std::span<std::byte>> pieces) {
  std::vector<Piece> mine;
  mine.reserve(pieces.size());
  for (const auto& p : pieces) mine.push_back(piece_of(p.data(), p.size()));
  return begin(false, from, key, std::move(mine));
}

Ticket UcxBlockTransport::begin(bool sends, int rank, std::uint64_t key,
                                std::vector<Piece> pieces) {
  check();
  if (rank < 0 || rank >= static_cast<int>(places_.size()))
    throw std::logic_error(fmt::format("a transfer with rank {}, which there is not", rank));
  std::erase_if(pieces, [](const Piece& piece) { return piece.size == 0; });
  if (pieces.empty()) throw std::logic_error("a transfer of nothing");
  Transfer transfer;
  transfer.ticket = ++last_ticket_;
  transfer.name = {rank, key};
  transfer.sends = sends;
  std::size_t end = 0;
  for (const Piece& piece : pieces) transfer.ends.push_back(end += piece.size);
  transfer.pieces = std::move(pieces);
  command({Command::What::begin, std::move(transfer)});
  return last_ticket_;
}

void UcxBlockTransport::lose(int rank, const std::string& why) {
  Transfer named;
  named.name.first = rank;
  named.failure = fmt::format("lost rank {} on {}: {}", rank, places_[rank].host, why);
  command({Command::What::lose, std::move(named)});
}

double UcxBlockTransport::seconds(Ticket ticket) const {
  const std::lock_guard lock(mutex_);
  return seconds_.at(ticket - 1);
}

void UcxBlockTransport::cancel(Ticket ticket) {
  Transfer named;
  named.ticket = ticket;
  command({Command::What::cancel, std::move(named)});
}

void UcxBlockTransport::command(Command command) {
  {
    const std::lock_guard lock(mutex_);
    if (command.what == Command::What::begin) {
      pending_.emplace(command.transfer.ticket, seconds_now());
      seconds_.push_back(0);
      ++traffic_.pending;
    }
    commands_.push_back(std::move(command));
  }
  worker_.wake();
}

void UcxBlockTransport::check() const {
  const std::lock_guard lock(mutex_);
  if (!fault_.empty()) throw Error(ExitCode::internal, "block transfers: " + fault_);
}

TransferState UcxBlockTransport::state(Ticket ticket) const {
  check();
  const std::lock_guard lock(mutex_);
  if (pending_.contains(ticket)) return TransferState::pending;
  return failures_.contains(ticket) ? TransferState::failed : TransferState::done;
}

std::string UcxBlockTransport::failure(Ticket ticket) const {
  const std::lock_guard lock(mutex_);
  const auto found = failures_.find(ticket);
  return found == failures_.end() ? "" : found->second;
}

BlockTransport::Traffic UcxBlockTransport::traffic() const {
  const std::lock_guard lock(mutex_);
  return traffic_;
}

// ---- The transport's thread.

void UcxBlockTransport::run() {
  constexpr double kLong = 1000;  // seconds; commands and the network end the sleep
  try {
    while (obey()) {
      worker_.wait(kLong, [this] {
        settle();
        return false;
      });
    }
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

void UcxBlockTransport::fail(std::string fault) {
  {
    const std::lock_guard lock(mutex_);
    if (fault_.empty()) fault_ = std::move(fault);
  }
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
      start(std::move(command.transfer));
    } else if (command.what == Command::What::lose) {
      abandon(command.transfer.name.first, command.transfer.failure);
    } else {
      give_up(command.transfer.ticket);
    }
  }
  return true;
}

void UcxBlockTransport::start(Transfer transfer) {
  const Name name = transfer.name;
  auto& over = transfer.sends ? outgoing_over_ : incoming_over_;
  const auto [entry, is_new] =
      (transfer.sends ? outgoing_ : incoming_).emplace(name, std::move(transfer));
  if (!is_new)
    throw std::logic_error(fmt::format("key {} of rank {} is in use", name.second, name.first));
  Transfer& t = entry->second;
  if (const auto end = over.extract(name)) {
    t.failure = end.mapped();
  } else if (!lost_[name.first].empty()) {
    t.failure = lost_[name.first];
  } else if (!t.sends) {
    std::vector<Cut> cuts;
    for (const Piece& piece : t.pieces) {
      if (cuts.empty() || cuts.back().size != piece.size) cuts.push_back({piece.size, 0});
      ++cuts.back().count;
    }
    std::vector<std::byte> body(cuts.size() * sizeof(Cut));
    std::memcpy(body.data(), cuts.data(), body.size());
    say(name.first, Word::ask, name.second, t.total(), std::move(body));
  } else if (const auto ask = early_asks_.extract(name)) {
    begin_sending(t, ask.mapped());
  }
  conclude_if_over(t);
}

void UcxBlockTransport::give_up(Ticket ticket) {
  const auto has_ticket = [&](const auto& entry) { return entry.second.ticket == ticket; };
  if (const auto t = std::find_if(incoming_.begin(), incoming_.end(), has_ticket);
      t != incoming_.end()) {
    say(t->first.first, Word::withdraw, t->first.second, 0, {});
    return;
  }
  const auto t = std::find_if(outgoing_.begin(), outgoing_.end(), has_ticket);
  if (t == outgoing_.end() || t->second.begun) return;  // over, or soon
  const std::string_view why = "the sender gave it up";
  const auto* text = reinterpret_cast<const std::byte*>(why.data());
  say(t->first.first, Word::refuse, t->first.second, 0, {text, text + why.size()});
  outgoing_over_[t->first] = "cancelled";
  t->second.failure = "cancelled";
  conclude_if_over(t->second);
}

// What UCX was given for a rank that is no more stays with it: nobody is left who would touch the
// memory.
void UcxBlockTransport::abandon(int rank, const std::string& why) {
  lost_[rank] = why;
  for (Part& part : parts_) {
    if (part.transfer == nullptr || part.transfer->name.first != rank) continue;
    --part.transfer->under_way;
    part.transfer = nullptr;
  }
  parts_to_[rank] = 0;
  for (Transfers* side : {&outgoing_, &incoming_}) {
    for (auto t = side->begin(); t != side->end();) {
      Transfer& transfer = (t++)->second;
      if (transfer.name.first != rank) continue;
      transfer.failure = why;
      conclude_if_over(transfer);
    }
  }
}

// What callbacks may not do themselves, for they run within progress().
void UcxBlockTransport::settle() {
  for (auto t = outgoing_.begin(); t != outgoing_.end();) push((t++)->second);
}

ucs_status_t UcxBlockTransport::on_message(void* transport, const void* header,
                                           std::size_t header_size, void* data, std::size_t size,
                                           const ucp_am_recv_param_t* params) {
  auto& self = *static_cast<UcxBlockTransport*>(transport);
  try {
    Wire wire;
    if (header_size != sizeof wire) {
      self.fail(fmt::format("a message has a header of {} bytes in place of {}", header_size,
                            sizeof wire));
      return UCS_OK;
    }
    std::memcpy(&wire, header, sizeof wire);
    return self.read(wire, data, size, (params->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0);
  } catch (const std::exception& error) {  // UCX is C
    self.fail(error.what());
    return UCS_OK;
  }
}

ucs_status_t UcxBlockTransport::read(const Wire& wire, void* data, std::size_t size,
                                     bool rendezvous) {
  if (wire.magic != kMagic || wire.run != run_ || wire.size != size || wire.from < 0 ||
      wire.from >= static_cast<int>(places_.size()) || (rendezvous && wire.word != Word::data)) {
    fail("what came is no message of a block transfer of this run");
    return UCS_OK;
  }
  const Name name{wire.from, wire.key};
  const std::span body(static_cast<const std::byte*>(data), rendezvous ? 0 : size);
  switch (wire.word) {
    case Word::ask:
      asked(name, body);
      return UCS_OK;
    case Word::withdraw:
      withdrawn(name);
      return UCS_OK;
    case Word::refuse:
      refused(name, {reinterpret_cast<const char*>(body.data()), body.size()});
      return UCS_OK;
    case Word::data:
      return take(wire, data, rendezvous);
  }
  fail(fmt::format("an unknown word {} from rank {}", static_cast<unsigned>(wire.word), wire.from));
  return UCS_OK;
}

void UcxBlockTransport::asked(Name name, std::span<const std::byte> body) {
  if (overtaken_.erase(name) != 0) return;
  if (outgoing_over_.erase(name) != 0) return;  // our refusal crossed the question
  if (const auto t = outgoing_.find(name); t != outgoing_.end()) {
    begin_sending(t->second, body);
    conclude_if_over(t->second);
  } else {
    early_asks_.emplace(name, std::vector(body.begin(), body.end()));
  }
}

void UcxBlockTransport::begin_sending(Transfer& transfer, std::span<const std::byte> body) {
  std::vector<Cut> cuts(body.size() / sizeof(Cut));
  if (!cuts.empty()) std::memcpy(cuts.data(), body.data(), cuts.size() * sizeof(Cut));
  std::size_t end = 0;
  for (const Cut& cut : cuts) {
    if (cut.size == 0 || cut.size > transfer.total()) break;
    for (std::uint64_t i = 0; i < cut.count && end <= transfer.total(); ++i)
      transfer.their_ends.push_back(end += cut.size);
  }
  if (end == transfer.total()) {
    transfer.begun = true;  // settle() sends
    return;
  }
  transfer.failure = fmt::format("rank {} has {} bytes to send, rank {} room for another number",
                                 rank_, transfer.total(), transfer.name.first);
  const auto* text = reinterpret_cast<const std::byte*>(transfer.failure.data());
  say(transfer.name.first, Word::refuse, transfer.name.second, 0,
      {text, text + transfer.failure.size()});
}

// UCX promises no order, and a long question may go over several ways: this word may overtake it.
void UcxBlockTransport::withdrawn(Name name) {
  const std::string why = "the receiver gave it up";
  if (const auto t = outgoing_.find(name); t != outgoing_.end()) {
    if (t->second.begun) return;  // all of it is on its way, which ends the receiver's ticket too
    overtaken_.insert(name);
    t->second.failure = why;
    conclude_if_over(t->second);
  } else if (early_asks_.erase(name) != 0) {
    outgoing_over_[name] = why;
  } else if (outgoing_over_.emplace(name, why).second) {  // or the transfer is over: no harm then
    overtaken_.insert(name);
  }
  say(name.first, Word::refuse, name.second, 0, {});
}

void UcxBlockTransport::refused(Name name, const std::string& why) {
  const auto t = incoming_.find(name);
  if (t == incoming_.end()) {
    // An empty answer is to a withdrawal of a transfer that has ended since.
    if (!why.empty()) incoming_over_[name] = why;
    return;
  }
  if (t->second.moved > 0) return;  // the answer to a withdrawal that came too late
  t->second.failure = why.empty() ? "cancelled" : why;
  conclude_if_over(t->second);
}

ucs_status_t UcxBlockTransport::take(const Wire& wire, void* data, bool rendezvous) {
  const auto found = incoming_.find({wire.from, wire.key});
  if (found == incoming_.end()) {
    if (broken_.contains({wire.from, wire.key})) return UCS_OK;
    fail(fmt::format("rank {} sent data of key {}, for which nobody has asked", wire.from,
                     wire.key));
    return UCS_OK;
  }
  Transfer& t = found->second;
  const auto end = std::upper_bound(t.ends.begin(), t.ends.end(), wire.at);
  if (end == t.ends.end() || wire.size == 0 || wire.size > *end - wire.at ||
      wire.size > t.total() - t.moved) {
    fail(fmt::format("rank {} sent {} bytes at {} of key {}, where they do not fit", wire.from,
                     wire.size, wire.at, wire.key));
    return UCS_OK;
  }
  const Piece& piece = t.pieces[static_cast<std::size_t>(end - t.ends.begin())];
  Part& part = new_part(&t);
  part.at = {piece.memory + (piece.size - (*end - wire.at)), wire.size, piece.registration,
             piece.staged};
  t.moved += wire.size;
  ++t.under_way;
  if (part.at.staged) part.stage = stage();
  std::byte* const to = part.at.staged ? part.stage : part.at.memory;
  if (!rendezvous) {
    std::memcpy(to, data, wire.size);
    ended(part, UCS_OK);
    return UCS_OK;
  }
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.recv_am = &UcxBlockTransport::on_received;
  params.user_data = &part;
  if (part.at.registration != nullptr) {
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    params.memh = part.at.registration;
  }
  void* const request = ucp_am_recv_data_nbx(worker_.get(), data, to, wire.size, &params);
  if (request == nullptr || UCS_PTR_IS_ERR(request)) ended(part, UCS_PTR_STATUS(request));
  return request == nullptr ? UCS_OK : UCS_INPROGRESS;
}

void UcxBlockTransport::on_received(void* request, ucs_status_t status, std::size_t, void* part) {
  auto& received = *static_cast<Part*>(part);
  ucp_request_free(request);
  received.transport->ended(received, status);
}

void UcxBlockTransport::push(Transfer& transfer) {
  const int to = transfer.name.first;
  while (transfer.begun && transfer.failure.empty() && transfer.moved < transfer.total() &&
         parts_to_[to] < kMostParts) {
    push_part(transfer);
  }
  conclude_if_over(transfer);
}

void UcxBlockTransport::push_part(Transfer& transfer) {
  const auto left = [&](const std::vector<std::size_t>& ends) {
    return *std::upper_bound(ends.begin(), ends.end(), transfer.moved) - transfer.moved;
  };
  const std::size_t size =
      std::min({left(transfer.ends), left(transfer.their_ends), DeviceStaging::kBytes});
  const auto end = std::upper_bound(transfer.ends.begin(), transfer.ends.end(), transfer.moved);
  const Piece& piece = transfer.pieces[static_cast<std::size_t>(end - transfer.ends.begin())];
  Part& part = new_part(&transfer);
  part.at = {piece.memory + (piece.size - (*end - transfer.moved)), size, piece.registration,
             piece.staged};
  part.header = {.magic = kMagic,
                 .word = Word::data,
                 .run = run_,
                 .key = transfer.name.second,
                 .at = transfer.moved,
                 .size = size,
                 .from = rank_};
  if (part.at.staged) {
    part.stage = stage();
    staging_->to_host(part.stage, part.at.memory, size);
  }
  transfer.moved += size;
  ++transfer.under_way;
  ++parts_to_[transfer.name.first];
  transmit(part, transfer.name.first, part.at.staged ? part.stage : part.at.memory, size, false);
}

void UcxBlockTransport::say(int rank, Word word, std::uint64_t key, std::uint64_t at,
                            std::vector<std::byte> body) {
  Part& part = new_part(nullptr);
  part.body = std::move(body);
  part.header = {.magic = kMagic,
                 .word = word,
                 .run = run_,
                 .key = key,
                 .at = at,
                 .size = part.body.size(),
                 .from = rank_};
  transmit(part, rank, part.body.data(), part.body.size(), true);
}

void UcxBlockTransport::transmit(Part& part, int rank, const std::byte* data, std::size_t size,
                                 bool word) {
  UcxEndpoint& to = endpoint(rank);
  if (!to.failure.empty() || !lost_[rank].empty()) return ended(part, UCS_ERR_CONNECTION_RESET);
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = &UcxBlockTransport::on_sent;
  params.user_data = &part;
  if (word) {
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_AM_SEND_FLAG_EAGER;
  } else if (part.at.registration != nullptr) {
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    params.memh = part.at.registration;
  }
  void* const request =
      ucp_am_send_nbx(to.handle, kMessageId, &part.header, sizeof part.header, data, size, &params);
  if (request == nullptr || UCS_PTR_IS_ERR(request)) ended(part, UCS_PTR_STATUS(request));
}

void UcxBlockTransport::on_sent(void* request, ucs_status_t status, void* part) {
  auto& sent = *static_cast<Part*>(part);
  ucp_request_free(request);
  sent.transport->ended(sent, status);
}

void UcxBlockTransport::ended(Part& part, ucs_status_t status) {
  Transfer* const transfer = part.transfer;
  if (part.stage != nullptr) {
    if (transfer != nullptr && !transfer->sends && status == UCS_OK)
      staging_->to_device(part.at.memory, part.stage, part.at.size);
    free_stages_.push_back(part.stage);
  }
  parts_.erase(part.self);
  if (transfer == nullptr) return;  // a word; where it failed the connection has, which is told
  --transfer->under_way;
  if (transfer->sends) --parts_to_[transfer->name.first];
  if (status != UCS_OK && transfer->failure.empty()) {
    transfer->failure = fmt::format("rank {} on {}: {}", transfer->name.first,
                                    places_[transfer->name.first].host, ucs_status_string(status));
  }
  if (!transfer->sends)
    conclude_if_over(*transfer);  // a sender's by settle(), which may be pushing
}

void UcxBlockTransport::conclude_if_over(Transfer& transfer) {
  const bool whole = transfer.moved == transfer.total();
  if (transfer.under_way > 0 || (transfer.failure.empty() && !whole)) return;
  {
    const std::lock_guard lock(mutex_);
    seconds_[transfer.ticket - 1] =
        static_cast<float>(seconds_now() - pending_.extract(transfer.ticket).mapped());
    --traffic_.pending;
    if (!transfer.failure.empty()) {
      ++traffic_.failed;
      failures_.emplace(transfer.ticket, transfer.failure);
    } else if (transfer.sends) {
      ++traffic_.sent;
      traffic_.bytes_sent += transfer.total();
    } else {
      ++traffic_.received;
      traffic_.bytes_received += transfer.total();
    }
  }
  const Name name = transfer.name;
  const bool more_may_come = transfer.moved > 0 || !lost_[name.first].empty();
  if (!transfer.sends && !transfer.failure.empty() && more_may_come) broken_.insert(name);
  (transfer.sends ? outgoing_ : incoming_).erase(name);
  participant_.wake();
}

UcxBlockTransport::Part& UcxBlockTransport::new_part(Transfer* transfer) {
  Part& part = parts_.emplace_front();
  part.transport = this;
  part.self = parts_.begin();
  part.transfer = transfer;
  return part;
}

UcxEndpoint& UcxBlockTransport::endpoint(int rank) {
  if (endpoints_[rank] == nullptr)
    endpoints_[rank] = &worker_.connect(places_[rank].worker, rank, places_[rank].host);
  return *endpoints_[rank];
}

std::byte* UcxBlockTransport::stage() {
  if (free_stages_.empty()) return staging_->allocate();
  std::byte* const memory = free_stages_.back();
  free_stages_.pop_back();
  return memory;
}

}  // namespace paceline::fabric
