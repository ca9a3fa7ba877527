#include "runtime/fabric/block_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace paceline::fabric {
namespace {

constexpr unsigned kMessageId = 2;
constexpr std::uint32_t kMagic = 0x6b6f6c62;
/// Most data parts in flight to one rank: enough to keep a connection busy, and few enough that a
/// transfer that begins later need not wait long.
constexpr int kMostParts = 16;

/// Index of the piece that contains `offset`; ends.size(): none.
std::size_t piece_at(const std::vector<std::size_t>& ends, std::size_t offset) {
  return std::upper_bound(ends.begin(), ends.end(), offset) - ends.begin();
}

}  // namespace

std::size_t contiguous(const std::vector<std::size_t>& ends, std::size_t offset) {
  const std::size_t piece = piece_at(ends, offset);
  return piece < ends.size() ? ends[piece] - offset : 0;
}

Piece Transfer::stretch(std::size_t offset, std::size_t size) const {
  const Piece& piece = pieces[piece_at(ends, offset)];
  return {piece.memory + (piece.size - contiguous(ends, offset)), size, piece.registration,
          piece.staged};
}

BlockParts::BlockParts(const UcxContext& context, int rank, DeviceStaging* staging,
                       PartEvents& events)
    : rank_(rank), staging_(staging), events_(events), worker_(context, false) {
  worker_.set_handler(kMessageId, &BlockParts::on_message, this);
}

void BlockParts::open(std::uint64_t run, std::vector<TransportPlace> places) {
  run_ = run;
  places_ = std::move(places);
  endpoints_.resize(places_.size(), nullptr);
  parts_to_.resize(places_.size(), 0);
  abandoned_.resize(places_.size(), false);
}

void BlockParts::say(int rank, Word word, std::uint64_t key, std::uint64_t at,
                     std::vector<std::byte> body) {
  Part& part = new_part(nullptr);
  part.body = std::move(body);
  part.header = make_header(word, key, at, part.body.size());
  transmit(part, rank, part.body.data(), part.body.size(), true);
}

bool BlockParts::busy(int rank) const { return parts_to_[rank] >= kMostParts; }

void BlockParts::send(Transfer& transfer) {
  const std::size_t size =
      std::min({contiguous(transfer.ends, transfer.moved),
                contiguous(transfer.their_ends, transfer.moved), DeviceStaging::kBytes});
  Part& part = new_part(&transfer);
  part.stretch = transfer.stretch(transfer.moved, size);
  part.header = make_header(Word::data, transfer.name.second, transfer.moved, size);
  if (part.stretch.staged) {
    part.stage = stage();
    staging_->to_host(part.stage, part.stretch.memory, size);
  }
  transfer.moved += size;
  ++transfer.under_way;
  ++parts_to_[transfer.name.first];
  transmit(part, transfer.name.first, part.stretch.staged ? part.stage : part.stretch.memory, size,
           false);
}

void BlockParts::transmit(Part& part, int rank, const std::byte* data, std::size_t size,
                          bool word) {
  UcxEndpoint& to = endpoint(rank);
  if (!to.failure.empty() || abandoned_[rank]) return ended(part, UCS_ERR_CONNECTION_RESET);
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = &BlockParts::on_sent;
  params.user_data = &part;
  if (word) {
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_AM_SEND_FLAG_EAGER;
  } else if (part.stretch.registration != nullptr) {
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    params.memh = part.stretch.registration;
  }
  void* const request =
      ucp_am_send_nbx(to.handle, kMessageId, &part.header, sizeof part.header, data, size, &params);
  if (request == nullptr || UCS_PTR_IS_ERR(request)) ended(part, UCS_PTR_STATUS(request));
}

void BlockParts::on_sent(void* request, ucs_status_t status, void* part) {
  auto& sent = *static_cast<Part*>(part);
  ucp_request_free(request);
  sent.parts->ended(sent, status);
}

ucs_status_t BlockParts::on_message(void* parts, const void* sent_header, std::size_t header_size,
                                    void* data, std::size_t size,
                                    const ucp_am_recv_param_t* params) {
  auto& self = *static_cast<BlockParts*>(parts);
  try {
    TransferHeader header;
    if (header_size != sizeof header) {
      self.events_.fault(fmt::format("a message has a header of {} bytes in place of {}",
                                     header_size, sizeof header));
      return UCS_OK;
    }
    std::memcpy(&header, sent_header, sizeof header);
    return self.read(header, data, size, (params->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0);
  } catch (const std::exception& error) {  // UCX is C
    self.events_.fault(error.what());
    return UCS_OK;
  }
}

ucs_status_t BlockParts::read(const TransferHeader& header, void* data, std::size_t size,
                              bool rendezvous) {
  if (header.magic != kMagic || header.run != run_ || header.size != size || header.from < 0 ||
      header.from >= static_cast<int>(places_.size()) ||
      (rendezvous && header.word != Word::data)) {
    events_.fault("what came is no message of a block transfer of this run");
    return UCS_OK;
  }
  if (header.word == Word::data) return take(header, data, rendezvous);
  events_.heard(header, std::span(static_cast<const std::byte*>(data), size));
  return UCS_OK;
}

ucs_status_t BlockParts::take(const TransferHeader& header, void* data, bool rendezvous) {
  Transfer* const transfer = events_.expected(header);
  if (transfer == nullptr) return UCS_OK;
  Transfer& t = *transfer;
  Part& part = new_part(&t);
  part.stretch = t.stretch(header.at, header.size);
  t.moved += header.size;
  ++t.under_way;
  if (part.stretch.staged) part.stage = stage();
  std::byte* const to = part.stretch.staged ? part.stage : part.stretch.memory;
  if (!rendezvous) {
    std::memcpy(to, data, header.size);
    ended(part, UCS_OK);
    return UCS_OK;
  }
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.recv_am = &BlockParts::on_received;
  params.user_data = &part;
  if (part.stretch.registration != nullptr) {
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    params.memh = part.stretch.registration;
  }
  void* const request = ucp_am_recv_data_nbx(worker_.get(), data, to, header.size, &params);
  if (request == nullptr || UCS_PTR_IS_ERR(request)) ended(part, UCS_PTR_STATUS(request));
  return request == nullptr ? UCS_OK : UCS_INPROGRESS;
}

void BlockParts::on_received(void* request, ucs_status_t status, std::size_t, void* part) {
  auto& received = *static_cast<Part*>(part);
  ucp_request_free(request);
  received.parts->ended(received, status);
}

void BlockParts::ended(Part& part, ucs_status_t status) {
  Transfer* const transfer = part.transfer;
  if (part.stage != nullptr) {
    if (transfer != nullptr && !transfer->sends && status == UCS_OK)
      staging_->to_device(part.stretch.memory, part.stage, part.stretch.size);
    free_stages_.push_back(part.stage);
  }
  parts_.erase(part.self);
  if (transfer == nullptr) return;  // a word: the failure of its connection is reported
  --transfer->under_way;
  if (transfer->sends) --parts_to_[transfer->name.first];
  if (status != UCS_OK && transfer->failure.empty()) {
    transfer->failure = fmt::format("rank {} on {}: {}", transfer->name.first,
                                    places_[transfer->name.first].host, ucs_status_string(status));
  }
  events_.part_ended(*transfer);
}

void BlockParts::abandon(int rank) {
  abandoned_[rank] = true;
  for (Part& part : parts_) {
    if (part.transfer == nullptr || part.transfer->name.first != rank) continue;
    --part.transfer->under_way;
    part.transfer = nullptr;
  }
  parts_to_[rank] = 0;
}

BlockParts::Part& BlockParts::new_part(Transfer* transfer) {
  Part& part = parts_.emplace_front();
  part.parts = this;
  part.self = parts_.begin();
  part.transfer = transfer;
  return part;
}

TransferHeader BlockParts::make_header(Word word, std::uint64_t key, std::uint64_t at,
                                       std::uint64_t size) const {
  return {.magic = kMagic,
          .word = word,
          .run = run_,
          .key = key,
          .at = at,
          .size = size,
          .from = rank_};
}

UcxEndpoint& BlockParts::endpoint(int rank) {
  if (endpoints_[rank] == nullptr)
    endpoints_[rank] = &worker_.connect(places_[rank].worker, rank, places_[rank].host);
  return *endpoints_[rank];
}

std::byte* BlockParts::stage() {
  if (free_stages_.empty()) return staging_->allocate();
  std::byte* const memory = free_stages_.back();
  free_stages_.pop_back();
  return memory;
}

}  // namespace paceline::fabric
