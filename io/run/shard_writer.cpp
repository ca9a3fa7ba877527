#include "io/run/shard_writer.hpp"

#include <cassert>
#include <cmath>
#include <filesystem>
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

}  // namespace

struct ShardWriter::State {
  State(const std::string& directory, std::uint32_t attempt, std::uint32_t rank,
        const ShardContents& contents)
      : shard(directory, "trajectories", attempt, rank) {
    if (contents.turns)
      turns = &shard.add("turns", turn_row_fields(), sizeof(TurnRow), kIndexChunk);
    if (contents.routing) {
      experts = &shard.add("routed_experts", h5::native<std::int16_t>(), kTokenChunk);
      routing = &shard.add("routing", routing_row_fields(), sizeof(RoutingRow), kIndexChunk);
    }
    if (contents.masks) {
      kept_ids = &shard.add("kept_ids", h5::native<TokenId>(), kTokenChunk);
      kept_offsets = &shard.add("kept_offsets", h5::native<std::int64_t>(), kTokenChunk);
      offset_buffer.push_back(0);
    }
    if (contents.logprobs > 0) {
      top_ids = &shard.add("top_ids", h5::native<TokenId>(), kTokenChunk);
      top_logprob = &shard.add("top_logprob", h5::native<float>(), kTokenChunk);
      h5::write_attribute(top_ids->id(), shard.file().path(), "width", contents.logprobs);
    }
    shard.publish();
  }

  ShardFile shard;
  h5::Dataset& tokens = shard.add("tokens", h5::native<TokenId>(), kTokenChunk);
  h5::Dataset& logprob = shard.add("logprob", h5::native<float>(), kTokenChunk);
  h5::Dataset& sampling_logprob = shard.add("sampling_logprob", h5::native<float>(), kTokenChunk);
  h5::Dataset& index = shard.add("index", index_row_fields(), sizeof(IndexRow), kIndexChunk);
  h5::Dataset& rewards = shard.add("rewards", reward_row_fields(), sizeof(RewardRow), kIndexChunk);
  h5::Dataset& extra = shard.add("reward_extra", h5::native<std::uint8_t>(), kTokenChunk);
  h5::Dataset* turns = nullptr;     // null: responses are of one turn
  h5::Dataset* kept_ids = nullptr;  // null: no masks are kept
  h5::Dataset* kept_offsets = nullptr;
  h5::Dataset* top_ids = nullptr;  // null: no top tokens
  h5::Dataset* top_logprob = nullptr;
  h5::Dataset* experts = nullptr;  // null: no experts
  h5::Dataset* routing = nullptr;
  std::uint64_t next_offset = 0;  // tokens appended so far
  std::int64_t next_kept = 0;     // ids appended so far
  std::uint64_t next_expert = 0;  // experts appended so far
  std::uint64_t next_extra = 0;   // bytes of rewards' extras appended so far

  // Appended, but not written yet.
  std::vector<TokenId> token_buffer;
  std::vector<float> logprob_buffer, sampling_buffer;
  std::vector<TokenId> kept_buffer;
  std::vector<std::int64_t> offset_buffer;
  std::vector<TokenId> top_buffer;
  std::vector<float> top_logprob_buffer;
  std::vector<std::int16_t> expert_buffer;
  // Appended, but not committed yet; tokens of these rows may be written already.
  std::vector<IndexRow> rows;
  std::vector<TurnRow> turn_rows;
  std::vector<RoutingRow> routing_rows;
  std::vector<RewardRow> reward_rows;
  std::string extra_buffer;

  void write_tokens() {
    tokens.append<TokenId>(token_buffer);
    logprob.append<float>(logprob_buffer);
    sampling_logprob.append<float>(sampling_buffer);
    token_buffer.clear();
    logprob_buffer.clear();
    sampling_buffer.clear();
    if (experts != nullptr) {
      experts->append<std::int16_t>(expert_buffer);
      expert_buffer.clear();
    }
    if (top_ids != nullptr) {
      top_ids->append<TokenId>(top_buffer);
      top_logprob->append<float>(top_logprob_buffer);
      top_buffer.clear();
      top_logprob_buffer.clear();
    }
    if (kept_ids == nullptr) return;
    kept_ids->append<TokenId>(kept_buffer);
    kept_offsets->append<std::int64_t>(offset_buffer);
    kept_buffer.clear();
    offset_buffer.clear();
  }

  [[nodiscard]] std::size_t buffered() const {
    return token_buffer.size() * kTokenBytes + kept_buffer.size() * sizeof(TokenId) +
           top_buffer.size() * (sizeof(TokenId) + sizeof(float)) +
           expert_buffer.size() * sizeof(std::int16_t);
  }

  void commit() {
    // Rewards come before the index, so that a reader who sees a response sees its own reward too.
    if (!reward_rows.empty()) {
      if (!extra_buffer.empty()) {
        extra.append(extra_buffer.size(), extra_buffer.data());
        extra.flush();
        extra_buffer.clear();
      }
      rewards.append<RewardRow>(reward_rows);
      rewards.flush();
      reward_rows.clear();
    }
    if (rows.empty()) return;
    write_tokens();
    tokens.flush();
    logprob.flush();
    sampling_logprob.flush();
    if (kept_ids != nullptr) {
      kept_ids->flush();
      kept_offsets->flush();
    }
    if (top_ids != nullptr) {
      top_ids->flush();
      top_logprob->flush();
    }
    if (!turn_rows.empty()) {
      turns->append<TurnRow>(turn_rows);
      turns->flush();
      turn_rows.clear();
    }
    if (experts != nullptr) {
      experts->flush();
      routing->append<RoutingRow>(routing_rows);
      routing->flush();
      routing_rows.clear();
    }
    // The index comes last, so that a reader sees whole responses, even after a crash here.
    index.append<IndexRow>(rows);
    index.flush();
    rows.clear();
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
  assert(trajectory.kept.size() == (s.kept_ids == nullptr ? 0 : trajectory.tokens.size()));
  assert(trajectory.turns.empty() || s.turns != nullptr);
  assert(trajectory.top_ids.empty() || s.top_ids != nullptr);
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
  const auto add = [](auto& buffer, const auto& values) {
    buffer.insert(buffer.end(), values.begin(), values.end());
  };
  add(s.token_buffer, trajectory.tokens);
  add(s.logprob_buffer, trajectory.logprob);
  add(s.sampling_buffer, trajectory.sampling_logprob);
  add(s.kept_buffer, trajectory.kept_ids);
  add(s.top_buffer, trajectory.top_ids);
  add(s.top_logprob_buffer, trajectory.top_logprob);
  if (s.experts != nullptr && trajectory.finish_reason != FinishReason::partial) {
    s.routing_rows.emplace_back(trajectory.id, trajectory.routing, s.next_expert);
    s.next_expert += trajectory.routing.size();
    add(s.expert_buffer, trajectory.routing);
  }
  for (const std::int32_t count : trajectory.kept) {
    s.next_kept += count;
    s.offset_buffer.push_back(s.next_kept);
  }
  for (const AnsweredTurn& turn : trajectory.turns) s.turn_rows.push_back({row.offset, turn});
  s.rows.push_back(row);
  s.next_offset += row.length;
  if (trajectory.finish_reason != FinishReason::partial && !std::isnan(trajectory.reward))
    reward({trajectory.id, trajectory.reward}, trajectory.reward_extra);
  if (s.buffered() >= kBufferedBytes) s.shard.guarded([&] { s.write_tokens(); });
}

void ShardWriter::reward(const Reward& reward, std::string_view extra) {
  assert(!std::isnan(reward.value));
  State& s = *state_;
  s.shard.check();
  s.reward_rows.emplace_back(reward, extra, s.next_extra);
  s.extra_buffer += extra;
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
