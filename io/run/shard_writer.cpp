#include "io/run/shard_writer.hpp"

#include <cassert>
#include <cmath>
#include <filesystem>
#include <tuple>
#include <utility>
#include <vector>

#include "io/hdf5/shard_file.hpp"
#include "io/run/routing.hpp"
#include "io/run/shard_format.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

constexpr std::uint64_t kTokenChunk = 16384;  // elements: 64 KiB
constexpr std::uint64_t kIndexChunk = 1024;   // rows: 41 KiB
constexpr std::size_t kTokenBytes = 12;
constexpr std::size_t kBufferedBytes = std::size_t{1} << 20;

/// A dataset with the values that are appended, but not written yet.
template <typename T>
struct Column {
  h5::Dataset* dataset = nullptr;  ///< null: the shard has no such values
  std::vector<T> buffer = {};

  void add(const auto& values) { buffer.insert(buffer.end(), values.begin(), values.end()); }
  void write() {
    if (dataset != nullptr) dataset->append<T>(buffer);
    buffer.clear();
  }
  void flush() {
    if (dataset != nullptr) dataset->flush();
  }
  void commit() {
    if (buffer.empty()) return;
    write();
    flush();
  }
};

}  // namespace

struct ShardWriter::State {
  State(const std::string& directory, std::uint32_t attempt, std::uint32_t rank,
        const ShardContents& contents)
      : shard(directory, "trajectories", attempt, rank) {
    add("tokens", tokens);
    add("logprob", logprob);
    add("sampling_logprob", sampling_logprob);
    add("index", rows, index_row_fields());
    add("rewards", rewards, reward_row_fields());
    add("reward_extra", extra);
    if (contents.turns) add("turns", turns, turn_row_fields());
    if (contents.routing) {
      add("routed_experts", experts);
      add("routing", routing, routing_row_fields());
    }
    if (contents.masks) {
      add("kept_ids", kept_ids);
      add("kept_offsets", kept_offsets);
      kept_offsets.buffer.push_back(0);
    }
    if (contents.logprobs > 0) {
      add("top_ids", top_ids);
      add("top_logprob", top_logprob);
      h5::write_attribute(top_ids.dataset->id(), shard.file().path(), "width", contents.logprobs);
    }
    shard.publish();
  }

  ShardFile shard;
  Column<TokenId> tokens;
  Column<float> logprob, sampling_logprob;
  Column<std::int16_t> experts;
  Column<TokenId> top_ids;
  Column<float> top_logprob;
  Column<TokenId> kept_ids;
  Column<std::int64_t> kept_offsets;
  // Not committed yet; tokens of these rows may be written already.
  Column<IndexRow> rows;
  Column<TurnRow> turns;  ///< without a dataset responses are of one turn
  Column<RoutingRow> routing;
  Column<RewardRow> rewards;
  Column<std::uint8_t> extra;
  std::uint64_t next_offset = 0;  ///< tokens appended so far
  std::int64_t next_kept = 0;     ///< ids appended so far
  std::uint64_t next_expert = 0;  ///< experts appended so far
  std::uint64_t next_extra = 0;   ///< bytes of rewards' extras appended so far

  template <typename T>
  void add(const char* name, Column<T>& column) {
    column.dataset = &shard.add(name, h5::native<T>(), kTokenChunk);
  }
  template <typename Row>
  void add(const char* name, Column<Row>& column, const std::vector<h5::Field>& fields) {
    column.dataset = &shard.add(name, fields, sizeof(Row), kIndexChunk);
  }
  /// The columns of tokens' values.
  auto of_tokens() {
    return std::tie(tokens, logprob, sampling_logprob, experts, top_ids, top_logprob, kept_ids,
                    kept_offsets);
  }
  void write_tokens() {
    std::apply([](auto&... column) { (column.write(), ...); }, of_tokens());
  }
  [[nodiscard]] std::size_t buffered() const {
    return tokens.buffer.size() * kTokenBytes + kept_ids.buffer.size() * sizeof(TokenId) +
           top_ids.buffer.size() * (sizeof(TokenId) + sizeof(float)) +
           experts.buffer.size() * sizeof(std::int16_t);
  }
  void commit() {
    // Rewards come before the index, so that a reader who sees a response sees its own reward too.
    extra.commit();
    rewards.commit();
    if (rows.buffer.empty()) return;
    write_tokens();
    std::apply([](auto&... column) { (column.flush(), ...); }, of_tokens());
    turns.commit();
    routing.commit();
    // The index comes last, so that a reader sees whole responses, even after a crash here.
    rows.commit();
  }
};

ShardWriter::ShardWriter(const std::string& directory, std::uint32_t attempt, std::uint32_t rank,
                         std::function<void(double seconds)> watch, const ShardContents& contents) {
  const auto lock = h5::lock_hdf5();
  state_ = std::make_unique<State>(directory, attempt, rank, contents);
  state_->shard.set_watch(std::move(watch));
}

ShardWriter::~ShardWriter() {
  const auto lock = h5::lock_hdf5();
  try {
    close();
  } catch (...) {  // callers who want errors call close()
  }
  state_.reset();
}

void ShardWriter::append(const Trajectory& trajectory) {
  assert(trajectory.tokens.size() == trajectory.logprob.size());
  assert(trajectory.tokens.size() == trajectory.sampling_logprob.size());
  State& s = *state_;
  assert(trajectory.kept.size() == (s.kept_ids.dataset == nullptr ? 0 : trajectory.tokens.size()));
  assert(trajectory.turns.empty() || s.turns.dataset != nullptr);
  assert(trajectory.top_ids.empty() || s.top_ids.dataset != nullptr);
  assert(trajectory.top_ids.size() == trajectory.top_logprob.size());
  s.shard.check();
  assert(s.shard.is_open());
  IndexRow row;
  row.offset = s.next_offset;
  row.weight_version = trajectory.weight_version;
  row.prompt = trajectory.id.prompt;
  row.sample = trajectory.id.sample;
  row.length = static_cast<std::uint32_t>(trajectory.tokens.size());
  row.finish_reason = static_cast<std::uint8_t>(trajectory.finish_reason);
  row.checksum = checksum_of(row, trajectory.tokens, trajectory.logprob,
                             trajectory.sampling_logprob, {trajectory.kept, trajectory.kept_ids},
                             trajectory.turns, {trajectory.top_ids, trajectory.top_logprob});
  s.tokens.add(trajectory.tokens);
  s.logprob.add(trajectory.logprob);
  s.sampling_logprob.add(trajectory.sampling_logprob);
  s.kept_ids.add(trajectory.kept_ids);
  s.top_ids.add(trajectory.top_ids);
  s.top_logprob.add(trajectory.top_logprob);
  if (s.experts.dataset != nullptr && trajectory.finish_reason != FinishReason::partial) {
    s.routing.buffer.emplace_back(trajectory.id, trajectory.routing, s.next_expert);
    s.next_expert += trajectory.routing.size();
    s.experts.add(trajectory.routing);
  }
  for (const std::int32_t count : trajectory.kept) {
    s.next_kept += count;
    s.kept_offsets.buffer.push_back(s.next_kept);
  }
  for (const AnsweredTurn& turn : trajectory.turns) s.turns.buffer.push_back({row.offset, turn});
  s.rows.buffer.push_back(row);
  s.next_offset += row.length;
  if (trajectory.finish_reason != FinishReason::partial && !std::isnan(trajectory.reward))
    reward({trajectory.id, trajectory.reward}, trajectory.reward_extra);
  if (s.buffered() >= kBufferedBytes) s.shard.guarded([&] { s.write_tokens(); });
}

void ShardWriter::reward(const Reward& reward, std::string_view extra) {
  assert(!std::isnan(reward.value));
  State& s = *state_;
  s.shard.check();
  s.rewards.buffer.emplace_back(reward, extra, s.next_extra);
  s.extra.add(extra);
  s.next_extra += extra.size();
}

void ShardWriter::flush() {
  state_->shard.guarded([&] { state_->commit(); });
  // Writing to a deleted file gives no error, and hours of work would be lost.
  if (!std::filesystem::exists(path())) throw IoError("cannot write " + path() + ": it is gone");
}

void ShardWriter::close() {
  State& s = *state_;
  s.shard.close([&] {
    s.commit();
    s.shard.file().sync();
  });
}

const std::string& ShardWriter::path() const { return state_->shard.file().path(); }

}  // namespace paceline::io
