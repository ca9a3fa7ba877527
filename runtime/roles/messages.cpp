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
void fields(Wire& w, Move& m) {
  put(w, m.id, m.key, m.to);
}
template <typename Wire>
void fields(Wire& w, Offer& m) {
  fields(w, m.lease);
  put(w, m.key, m.from, m.positions);
}
template <typename Wire>
void fields(Wire& w, Pull& m) {
  put(w, m.key, m.first_block);
}
template <typename Wire>
void fields(Wire& w, engine::Step& s) {
  put(w, s.kv.edits, s.kv.moves, s.kv.copies, s.tokens, s.parts, s.parents, s.samples);
}
template <typename Wire>
void fields(Wire& w, RunStep& m) {
  fields(w, m.step);
}
template <typename Wire>
void fields(Wire& w, MoveKv& m) {
  put(w, m.key, m.peer, m.send, m.blocks);
}
template <typename Wire>
void fields(Wire& w, KvMoved& m) {
  put(w, m.key, m.complete);
}
template <typename Wire>
void fields(Wire& w, DraftOpen& m) {
  put(w, m.id, m.prompt, m.response, m.noise, m.move);
}
template <typename Wire>
void fields(Wire& w, DraftCommits& m) {
  put(w, m.commits, m.tokens);
}
template <typename Wire>
void fields(Wire& w, Drafts& m) {
  put(w, m.pieces, m.tokens, m.scores);
}
template <typename Wire>
void fields(Wire& w, Status& m) {
  put(w, m.room, m.active, m.unflushed, m.partial, m.leases_received, m.tokens, m.stopped,
      m.finished, m.running, m.moved, m.kept);
}
template <typename Wire>
void fields(Wire&, StopRequest&) {}
template <typename Wire>
void fields(Wire& w, Summary& m) {
  put(w, m.rank);
}

/// A message's place in the variant.
template <typename Kind, std::size_t I = 0>
constexpr std::uint8_t kind_of() {
  if constexpr (std::is_same_v<Kind, std::variant_alternative_t<I, Message>>) {
    return I;
  } else {
    return kind_of<Kind, I + 1>();
  }
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

std::vector<std::byte> encode_step(const engine::Step& step) {
  WireWriter writer;
  writer.put(kind_of<RunStep>());
  fields(writer, const_cast<engine::Step&>(step));  // a writer only reads
  return writer.take();
}

Message decode(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  std::uint8_t kind = 0;
  reader.get(kind);
  return decode_as(kind, reader);
}

}  // namespace paceline::roles
