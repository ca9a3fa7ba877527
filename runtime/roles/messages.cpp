#include "runtime/roles/messages.hpp"

#include <type_traits>

#include "runtime/core/wire.hpp"

namespace paceline::roles {
namespace {

// One list of fields per message serves both directions: Wire is a WireWriter or a WireReader.
void put(WireWriter& w, auto&... fields) { (w.put(fields), ...); }
void put(WireReader& r, auto&... fields) { (r.get(fields), ...); }

template <typename Wire>
void fields(Wire& w, Lease& m) {
  put(w, m.trajectory.id, m.trajectory.tokens, m.trajectory.logprob, m.trajectory.sampling_logprob,
      m.trajectory.finish_reason, m.trajectory.reward, m.trajectory.weight_version, m.prompt,
      m.noise);
}
template <typename Wire>
void fields(Wire&, Stop&) {}
template <typename Wire>
void fields(Wire&, Finish&) {}
template <typename Wire>
void fields(Wire& w, Status& m) {
  put(w, m.room, m.active, m.leases_received, m.tokens, m.stopped, m.finished);
}
template <typename Wire>
void fields(Wire&, StopRequest&) {}
template <typename Wire>
void fields(Wire& w, Summary& m) {
  put(w, m.rank);
}

template <std::size_t I = 0>
Message decode_as(std::size_t kind, WireReader& reader) {
  if constexpr (I < std::variant_size_v<Message>) {
    if (kind != I) return decode_as<I + 1>(kind, reader);
    std::variant_alternative_t<I, Message> message;
    fields(reader, message);
    return message;
  } else {
    throw std::logic_error("message of an unknown kind");
  }
}

}  // namespace

std::vector<std::byte> encode(const Message& message) {
  WireWriter writer;
  writer.put(static_cast<std::uint8_t>(message.index()));
  std::visit([&](auto copy) { fields(writer, copy); }, message);
  return writer.take();
}

Message decode(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  std::uint8_t kind = 0;
  reader.get(kind);
  return decode_as(kind, reader);
}

}  // namespace paceline::roles
