#include "runtime/protocol/messages.hpp"

#include <type_traits>

#include "runtime/core/wire.hpp"

namespace paceline::protocol {
namespace {

// One list of fields per message serves both directions: Wire is a WireWriter or a WireReader.
void put(WireWriter& w, auto&... fields) { (w.put(fields), ...); }
void put(WireReader& r, auto&... fields) { (r.get(fields), ...); }

void put_curve(WireWriter& w, const CostCurve& curve) {
  w.put(curve.points());
  w.put(curve.attention());
}
void put_curve(WireReader& r, CostCurve& curve) {
  std::vector<CostCurve::Point> points;
  std::vector<CostCurve::Attention> attention;
  r.get(points);
  r.get(attention);
  curve = CostCurve(std::move(points), std::move(attention));
}

// A null file is sent as an empty one, for no file is empty.
void put_files(WireWriter& w, const std::vector<PictureBytes>& files, std::size_t /*count*/) {
  const std::vector<std::byte> none;
  for (const PictureBytes& file : files) w.put(file ? *file : none);
}
void put_files(WireReader& r, std::vector<PictureBytes>& files, std::size_t count) {
  files.assign(count, nullptr);
  for (PictureBytes& file : files) {
    std::vector<std::byte> bytes;
    r.get(bytes);
    if (!bytes.empty()) file = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  }
}

template <typename Wire>
void fields(Wire& w, Trajectory& t) {
  put(w, t.id, t.tokens, t.logprob, t.sampling_logprob, t.kept, t.kept_ids, t.top_ids,
      t.top_logprob, t.finish_reason, t.reward, t.weight_version, t.turns, t.reward_extra);
}
template <typename Wire>
void fields(Wire& w, RequestSampling& s) {
  std::int32_t max_tokens = s.max_tokens.value_or(0);
  std::int32_t has_stops = s.stops ? 1 : 0;
  std::int32_t has_draw = s.draw ? 1 : 0;
  std::int32_t has_bias = s.logit_bias ? 1 : 0;
  std::int32_t has_seed = s.seed ? 1 : 0;
  put(w, max_tokens, has_stops, has_draw, has_bias, has_seed);
  if (max_tokens > 0) s.max_tokens = max_tokens;
  if (has_draw != 0) {
    if (!s.draw) s.draw.emplace();
    put(w, *s.draw);
  }
  if (has_bias != 0) {
    if (!s.logit_bias) s.logit_bias.emplace();
    put(w, *s.logit_bias);
  }
  if (has_seed != 0) {
    if (!s.seed) s.seed.emplace();
    put(w, *s.seed);
  }
  if (has_stops == 0) return;
  if (!s.stops) s.stops.emplace();
  put(w, s.stops->ids, s.stops->strings);
}
template <typename Wire>
void fields(Wire& w, Admission& a) {
  fields(w, a.trajectory);
  put(w, a.prompt, a.noise, a.version, a.until);
  fields(w, a.sampling);
  put(w, a.pictures);
  put_files(w, a.files, a.pictures.size());
}
template <typename Wire>
void fields(Wire& w, Lease& m) {
  fields(w, m.request);
  put(w, m.kv.group, m.kv.key, m.kv.positions, m.kv.owner);
}
template <typename Wire>
void fields(Wire& w, Renew& m) {
  put(w, m.id, m.until);
}
template <typename Wire>
void fields(Wire&, Stop&) {}
template <typename Wire>
void fields(Wire&, Finish&) {}
template <typename Wire>
void fields(Wire& w, Place& m) {
  put(w, m.placement.epoch, m.placement.ranks, m.placement.groups, m.placement.drafters);
}
template <typename Wire>
void fields(Wire& w, Ready& m) {
  put(w, m.epoch);
}
template <typename Wire>
void fields(Wire& w, Move& m) {
  put(w, m.id, m.key, m.to);
}
template <typename Wire>
void fields(Wire& w, Returned& m) {
  put(w, m.key, m.positions, m.owner);
  fields(w, m.trajectory);
}
template <typename Wire>
void fields(Wire& w, Offer& m) {
  fields(w, m.request);
  put(w, m.from, m.positions, m.method, m.owner);
}
template <typename Wire>
void fields(Wire& w, Race& m) {
  put(w, m.id, m.key, m.to, m.method);
}
template <typename Wire>
void fields(Wire& w, RaceCommit& m) {
  put(w, m.id, m.key, m.base, m.over, m.tokens);
}
template <typename Wire>
void fields(Wire& w, Pull& m) {
  put(w, m.key, m.first_block, m.to);
}
template <typename Wire>
void fields(Wire& w, Forget& m) {
  put(w, m.keys);
}
template <typename Wire>
void fields(Wire& w, Foresee& m) {
  put(w, m.keys);
}
template <typename Wire>
void fields(Wire& w, engine::Step& s) {
  put(w, s.kv.edits, s.kv.moves, s.kv.copies, s.kv.blocks, s.tokens, s.parts, s.parents, s.samples,
      s.banned, s.draws, s.notes, s.pictures, s.spans, s.rotary);
  put_files(w, s.files, s.pictures.size());
}
template <typename Wire>
void fields(Wire& w, Lead& m) {
  put(w, m.epoch);
}
template <typename Wire>
void fields(Wire& w, RunStep& m) {
  fields(w, m.step);
}
template <typename Wire>
void fields(Wire& w, ReadRouting& m) {
  put(w, m.places);
}
template <typename Wire>
void fields(Wire& w, MoveKv& m) {
  put(w, m.key, m.peer, m.send, m.blocks, m.stored, m.origin, m.first_block, m.owner);
}
template <typename Wire>
void fields(Wire& w, StoreKv& m) {
  put(w, m.key, m.first_block, m.blocks);
}
template <typename Wire>
void fields(Wire& w, RestoreKv& m) {
  put(w, m.key, m.first_block, m.blocks, m.owner);
}
template <typename Wire>
void fields(Wire& w, DropKv& m) {
  put(w, m.keys);
}
template <typename Wire>
void fields(Wire& w, ForeseeKv& m) {
  put(w, m.keys);
}
template <typename Wire>
void fields(Wire& w, KvMoved& m) {
  put(w, m.key, m.complete);
}
template <typename Wire>
void fields(Wire& w, DraftOpen& m) {
  put(w, m.since, m.id, m.prompt, m.response, m.noise, m.version);
  fields(w, m.sampling);
}
template <typename Wire>
void fields(Wire& w, DraftCommits& m) {
  put(w, m.since, m.commits, m.tokens);
}
template <typename Wire>
void fields(Wire& w, DraftFeatures& m) {
  put(w, m.since, m.rows, m.features);
}
template <typename Wire>
void fields(Wire& w, Drafts& m) {
  put(w, m.pieces, m.tokens, m.scores);
}
template <typename Wire>
void fields(Wire& w, DraftUpdate& m) {
  put(w, m.client, m.stretches, m.tokens);
}
template <typename Wire>
void fields(Wire& w, DraftFetch& m) {
  put(w, m.client, m.ticket, m.places, m.earlier);
}
template <typename Wire>
void fields(Wire& w, DraftTexts& m) {
  put(w, m.client, m.ticket, m.left, m.awaited, m.places, m.stretches, m.tokens);
}
template <typename Wire>
void fields(Wire& w, DraftWanted& m) {
  put(w, m.client, m.missing);
}
template <typename Wire>
void fields(Wire& w, EarlierFound& m) {
  put(w, m.found);
}
template <typename Wire>
void fields(Wire& w, Costs& m) {
  put(w, m.epoch);
  put_curve(w, m.costs.table.decode);
  put_curve(w, m.costs.table.prefill);
  put(w, m.costs.table.transfer, m.costs.position_bytes);
}
template <typename Wire>
void fields(Wire& w, Status& m) {
  put(w, m.epoch, m.room, m.active, m.unflushed, m.partial, m.kv_room, m.orders_received, m.steps,
      m.tokens, m.stopped, m.ended, m.finished, m.running, m.ending, m.moved, m.kept, m.drafted,
      m.races_begun, m.races_ended);
}
template <typename Wire>
void fields(Wire& w, StopRequest& m) {
  put(w, m.rank);
}
template <typename Wire>
void fields(Wire& w, Rewarded& m) {
  put(w, m.rewards);
}
template <typename Wire>
void fields(Wire& w, Summary& m) {
  put(w, m.rank);
}

/// The index of a message type in the variant.
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
  // A writer only reads.
  std::visit([&]<typename Kind>(const Kind& m) { fields(writer, const_cast<Kind&>(m)); }, message);
  return writer.take();
}

std::vector<std::byte> encode_step(const engine::Step& step) {
  WireWriter writer;
  writer.put(kind_of<RunStep>());
  fields(writer, const_cast<engine::Step&>(step));  // a writer only reads
  return writer.take();
}

bool may_come_late(const Message& message) {
  return std::holds_alternative<DraftOpen>(message) ||
         std::holds_alternative<DraftCommits>(message) ||
         std::holds_alternative<DraftFeatures>(message) ||
         std::holds_alternative<Drafts>(message) || std::holds_alternative<DraftTexts>(message) ||
         std::holds_alternative<DraftWanted>(message) ||
         std::holds_alternative<RaceCommit>(message);
}

Message decode(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  std::uint8_t kind = 0;
  reader.get(kind);
  Message message = decode_as(kind, reader);
  if (!reader.empty()) throw std::logic_error("message longer than it says");
  return message;
}

std::optional<Message> decode_if_message(std::span<const std::byte> bytes) {
  try {
    return decode(bytes);
  } catch (const std::logic_error&) {
    return std::nullopt;
  }
}

}  // namespace paceline::protocol
