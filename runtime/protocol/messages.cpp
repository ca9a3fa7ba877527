#include "runtime/protocol/messages.hpp"

#include <type_traits>

#include "runtime/core/fields.hpp"
#include "runtime/core/wire.hpp"

namespace paceline::protocol {
namespace {

// Messages travel field by field, in order. Wire is a WireWriter or a WireReader.
template <typename Wire, typename T>
void put(Wire& w, T& value);

template <typename Wire, typename... Fields>
void put_all(Wire& w, Fields&... fields) {
  (put(w, fields), ...);
}

// Types whose fields are not all sent as they are.

void put_special(WireWriter& w, CostCurve& curve) {
  w.put(curve.points());
  w.put(curve.attention());
  w.put(curve.context());
}
void put_special(WireReader& r, CostCurve& curve) {
  std::vector<CostCurve::Point> points;
  std::vector<CostCurve::Attention> attention;
  r.get(points);
  r.get(attention);
  double context = 0;
  r.get(context);
  curve = CostCurve(std::move(points), std::move(attention), context);
}
// Moves and races need only these costs of a group.
template <typename Wire>
void put_special(Wire& w, policy::MoveCosts& costs) {
  put_all(w, costs.table.decode, costs.table.prefill, costs.table.transfer, costs.position_bytes);
}

// A null file is sent as an empty file, because no file is empty.
void put_special(WireWriter& w, PictureBytes& file) {
  const std::vector<std::byte> none;
  w.put(file ? *file : none);
}
void put_special(WireReader& r, PictureBytes& file) {
  std::vector<std::byte> bytes;
  r.get(bytes);
  file = bytes.empty() ? nullptr : std::make_shared<const std::vector<std::byte>>(std::move(bytes));
}

// Leaves out the routing: the verifier reads and stores it when the response has finished.
template <typename Wire>
void put_special(Wire& w, Trajectory& trajectory) {
  auto& [id, tokens, logprob, sampling_logprob, kept, kept_ids, top_ids, top_logprob, routing,
         finish_reason, reward, weight_version, turns, reward_extra] = trajectory;
  put_all(w, id, tokens, logprob, sampling_logprob, kept, kept_ids, top_ids, top_logprob,
          finish_reason, reward, weight_version, turns, reward_extra);
}

template <typename T>
void put_special(WireWriter& w, std::optional<T>& value) {
  w.put(value.has_value());
  if (value) put(w, *value);
}
template <typename T>
void put_special(WireReader& r, std::optional<T>& value) {
  bool there = false;
  r.get(there);
  value.reset();
  if (there) put(r, value.emplace());
}

template <typename T>
requires(!std::is_trivially_copyable_v<T>) void put_special(WireWriter& w, std::vector<T>& values) {
  w.put(static_cast<std::uint64_t>(values.size()));
  for (T& value : values) put(w, value);
}
template <typename T>
requires(!std::is_trivially_copyable_v<T>) void put_special(WireReader& r, std::vector<T>& values) {
  values.clear();
  for (std::size_t left = r.count(1); left > 0; --left) put(r, values.emplace_back());
}

template <typename Wire, typename T>
void put(Wire& w, T& value) {
  if constexpr (requires { put_special(w, value); }) {
    put_special(w, value);
  } else if constexpr (std::is_same_v<Wire, WireWriter> && requires { w.put(value); }) {
    w.put(value);
  } else if constexpr (std::is_same_v<Wire, WireReader> && requires { w.get(value); }) {
    w.get(value);
  } else {
    with_fields(value, [&](auto&... fields) { put_all(w, fields...); });
  }
}

template <typename... Kinds>
bool is_one_of(const Message& message) {
  return (std::holds_alternative<Kinds>(message) || ...);
}

template <std::size_t... I>
Message made(std::size_t kind, std::index_sequence<I...> /*kinds*/) {
  Message message;
  (void)((kind == I && (message.emplace<I>(), true)) || ...);
  return message;
}

}  // namespace

std::vector<std::byte> encode(const Message& message) {
  WireWriter writer;
  writer.put(static_cast<std::uint8_t>(message.index()));
  // A writer does not change the message.
  std::visit([&]<typename Kind>(const Kind& m) { put(writer, const_cast<Kind&>(m)); }, message);
  return writer.take();
}

std::vector<std::byte> encode_step(const engine::Step& step) {
  WireWriter writer;
  static const auto kind = static_cast<std::uint8_t>(Message(RunStep()).index());
  writer.put(kind);
  put(writer, const_cast<engine::Step&>(step));  // a writer only reads
  return writer.take();
}

bool may_come_late(const Message& message) {
  return is_one_of<DraftOpen, DraftCommits, DraftFeatures, Drafts, DraftTexts, DraftWanted,
                   RaceCommit>(message);
}

bool may_precede_drafting(const Message& message) {
  return is_one_of<RaceCommit, Pull, DropKv>(message);
}

Message of_kind(std::size_t kind) {
  constexpr std::size_t count = std::variant_size_v<Message>;
  if (kind >= count) throw std::logic_error("message of an unknown kind");
  return made(kind, std::make_index_sequence<count>());
}

Message decode(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  std::uint8_t kind = 0;
  reader.get(kind);
  Message message = of_kind(kind);
  std::visit([&](auto& m) { put(reader, m); }, message);
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
