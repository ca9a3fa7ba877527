#include "runtime/fabric/message_batch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "runtime/core/types.hpp"

namespace paceline::fabric {
namespace {

/// The header on the wire. All ranks run one executable on machines of one kind.
struct PackedHeader {
  std::uint32_t magic;
  std::uint32_t messages;
  std::uint64_t run, sequence, consumed;
  std::int32_t from_rank, from_port, to_rank, to_port;
  std::uint32_t bytes;
  std::uint32_t check;  ///< FNV-1a of the fields above
};
static_assert(std::is_trivially_copyable_v<PackedHeader> && sizeof(PackedHeader) == 56);

constexpr std::uint32_t kMagic = 0x6c656361;
using Size = std::uint32_t;

std::uint32_t check_of(const PackedHeader& packed) {
  std::uint32_t hash = 2166136261U;  // FNV-1a
  const auto* bytes = reinterpret_cast<const unsigned char*>(&packed);
  for (std::size_t i = 0; i < offsetof(PackedHeader, check); ++i)
    hash = (hash ^ bytes[i]) * 16777619U;
  return hash;
}

const char* name_of(Address::Port port) {
  return name_in(std::array{"unknown", "role", "coordinator", "draft server"}, port);
}

}  // namespace

std::size_t cost_of(std::size_t message_bytes) { return message_bytes + sizeof(Size); }

BatchWriter::BatchWriter() : bytes_(sizeof(PackedHeader)) {}

void BatchWriter::add(std::span<const std::byte> message) {
  if (message.size() > UINT32_MAX - bytes_.size() - sizeof(Size))
    throw std::length_error("a message of 4 GiB or more");
  const auto size = static_cast<Size>(message.size());
  const std::size_t at = bytes_.size();
  bytes_.resize(at + sizeof size + message.size());
  std::memcpy(bytes_.data() + at, &size, sizeof size);
  if (!message.empty())
    std::memcpy(bytes_.data() + at + sizeof size, message.data(), message.size());
  ++messages_;
}

std::size_t BatchWriter::cost() const { return bytes_.size() - sizeof(PackedHeader); }

std::vector<std::byte> BatchWriter::take(BatchHeader header) {
  PackedHeader packed{.magic = kMagic,
                      .messages = messages_,
                      .run = header.run,
                      .sequence = header.sequence,
                      .consumed = header.consumed,
                      .from_rank = header.from.rank,
                      .from_port = static_cast<std::int32_t>(header.from.port),
                      .to_rank = header.to.rank,
                      .to_port = static_cast<std::int32_t>(header.to.port),
                      .bytes = static_cast<std::uint32_t>(cost()),
                      .check = 0};
  packed.check = check_of(packed);
  std::memcpy(bytes_.data(), &packed, sizeof packed);
  messages_ = 0;
  return std::exchange(bytes_, std::vector<std::byte>(sizeof(PackedHeader)));
}

std::optional<ReadBatch> read_batch(std::span<const std::byte> batch, std::uint64_t run, Address me,
                                    std::string& fault) {
  if (batch.size() < sizeof(PackedHeader)) {
    fault =
        fmt::format("{} bytes are too few for a header of {}", batch.size(), sizeof(PackedHeader));
    return std::nullopt;
  }
  PackedHeader packed;
  std::memcpy(&packed, batch.data(), sizeof packed);
  if (packed.magic != kMagic || packed.check != check_of(packed)) {
    fault = "what came is no header of a batch";
    return std::nullopt;
  }
  if (packed.run != run) {
    fault = fmt::format("it is of another run ({:016x}, this one is {:016x})", packed.run, run);
    return std::nullopt;
  }
  if (packed.to_rank != me.rank || packed.to_port != static_cast<int>(me.port)) {
    fault = fmt::format("it is for rank {}, port {}; this is rank {}, port {} ({})", packed.to_rank,
                        packed.to_port, me.rank, static_cast<int>(me.port), name_of(me.port));
    return std::nullopt;
  }
  ReadBatch read{{.run = packed.run,
                  .sequence = packed.sequence,
                  .consumed = packed.consumed,
                  .from = {packed.from_rank, static_cast<Address::Port>(packed.from_port)},
                  .to = me,
                  .messages = packed.messages,
                  .bytes = packed.bytes},
                 {}};
  std::span<const std::byte> rest = batch.subspan(sizeof packed);
  if (rest.size() != packed.bytes || packed.messages > packed.bytes / sizeof(Size)) {
    fault = fmt::format("its header says {} messages in {} bytes, but {} bytes came",
                        packed.messages, packed.bytes, rest.size());
    return std::nullopt;
  }
  read.messages.reserve(packed.messages);
  for (std::uint32_t i = 0; i < packed.messages; ++i) {
    Size size = 0;
    if (rest.size() < sizeof size) break;
    std::memcpy(&size, rest.data(), sizeof size);
    rest = rest.subspan(sizeof size);
    if (size > rest.size()) break;
    read.messages.push_back(rest.first(size));
    rest = rest.subspan(size);
  }
  if (!rest.empty() || read.messages.size() != packed.messages) {
    fault = fmt::format("the sizes of its {} messages do not add up to its {} bytes",
                        packed.messages, packed.bytes);
    return std::nullopt;
  }
  return read;
}

BatchOrder::Place BatchOrder::place(std::uint64_t sequence) const {
  if (sequence == next_) return Place::next;
  if (sequence < next_) return Place::repeated;
  const auto same = [&](const Kept& kept) { return kept.sequence == sequence; };
  return std::ranges::any_of(kept_, same) ? Place::repeated : Place::early;
}

void BatchOrder::keep(std::uint64_t sequence, std::vector<std::byte> batch) {
  kept_.push_back({sequence, std::move(batch)});
}

std::optional<std::vector<std::byte>> BatchOrder::take_kept() {
  const auto found = std::ranges::find(kept_, next_, &Kept::sequence);
  if (found == kept_.end()) return std::nullopt;
  std::vector<std::byte> batch = std::move(found->batch);
  kept_.erase(found);
  return batch;
}

}  // namespace paceline::fabric
