#include "io/hdf5/shard_writer.hpp"

#include <cassert>
#include <vector>

#include "io/hdf5/atomic_file.hpp"
#include "io/hdf5/file.hpp"
#include "io/hdf5/shard_format.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

constexpr std::uint64_t kTokenChunk = 16384;    // elements: 64 KiB
constexpr std::uint64_t kIndexChunk = 1024;     // rows: 41 KiB
constexpr std::size_t kBufferedTokens = 87382;  // of 12 bytes: 1 MiB

}  // namespace

struct ShardWriter::State {
  h5::File file;
  h5::Dataset tokens, logprob, sampling_logprob, index;
  std::uint64_t next_offset = 0;  // tokens appended so far

  // Appended, not yet written.
  std::vector<TokenId> token_buffer;
  std::vector<float> logprob_buffer, sampling_buffer;
  // Appended, not yet committed; their tokens may be written already.
  std::vector<IndexRow> rows;

  bool open = true;
  std::string failure;  // message of the write that failed; empty while all is well

  void write_tokens() {
    tokens.append<TokenId>(token_buffer);
    logprob.append<float>(logprob_buffer);
    sampling_logprob.append<float>(sampling_buffer);
    token_buffer.clear();
    logprob_buffer.clear();
    sampling_buffer.clear();
  }

  void commit() {
    if (rows.empty()) return;
    write_tokens();
    tokens.flush();
    logprob.flush();
    sampling_logprob.flush();
    // Only now may the index speak of them: a reader, or a crash here, sees whole responses.
    index.append<IndexRow>(rows);
    index.flush();
    rows.clear();
  }

  void close_datasets() {
    for (h5::Dataset* dataset : {&tokens, &logprob, &sampling_logprob, &index}) dataset->close();
  }

  /// Runs a step that writes; when it fails, the file stays as the last flush left it.
  template <typename Step>
  void guarded(const Step& step) {
    if (!failure.empty()) throw IoError(failure);
    const auto lock = h5::lock_hdf5();
    try {
      step();
    } catch (const IoError& error) {
      failure = error.what();
      failure += " (what was flushed before stays readable)";
      open = false;
      file.abandon();
      close_datasets();
      throw IoError(failure);
    }
  }
};

ShardWriter::ShardWriter(const std::string& directory, std::uint32_t attempt, std::uint32_t rank)
    : state_(std::make_unique<State>()) {
  const auto lock = h5::lock_hdf5();
  const std::string path = shard_path(directory, "trajectories", attempt, rank);
  State& s = *state_;
  s.file = h5::File::create(path, h5::File::Kind::shard);
  try {
    const h5::Shape shape{0, true, kTokenChunk};
    s.tokens = h5::Dataset::create<TokenId>(s.file, "tokens", shape);
    s.logprob = h5::Dataset::create<float>(s.file, "logprob", shape);
    s.sampling_logprob = h5::Dataset::create<float>(s.file, "sampling_logprob", shape);
    const h5::Handle row = index_row_type();
    s.index = h5::Dataset::create(s.file, "index", row.get(), h5::packed(row).get(),
                                  {0, true, kIndexChunk});
    h5::write_attribute(s.file.id(), path, "attempt", attempt);
    h5::write_attribute(s.file.id(), path, "rank", rank);
    publish_shard(s.file);
  } catch (...) {
    s.file.abandon();
    s.close_datasets();
    discard_temporary(path);
    throw;
  }
}

ShardWriter::~ShardWriter() {
  const auto lock = h5::lock_hdf5();
  try {
    close();
  } catch (...) {  // close() is there for those who want to know
  }
  state_.reset();
}

void ShardWriter::append(const Trajectory& trajectory) {
  assert(trajectory.tokens.size() == trajectory.logprob.size());
  assert(trajectory.tokens.size() == trajectory.sampling_logprob.size());
  State& s = *state_;
  if (!s.failure.empty()) throw IoError(s.failure);
  assert(s.open);
  IndexRow row;
  row.offset = s.next_offset;
  row.weight_version = trajectory.weight_version;
  row.prompt = trajectory.id.prompt;
  row.sample = trajectory.id.sample;
  row.length = static_cast<std::uint32_t>(trajectory.tokens.size());
  row.reward = trajectory.reward;
  row.finish_reason = static_cast<std::uint8_t>(trajectory.finish_reason);
  row.checksum =
      checksum_of(row, trajectory.tokens, trajectory.logprob, trajectory.sampling_logprob);
  const auto add = [](auto& buffer, const auto& values) {
    buffer.insert(buffer.end(), values.begin(), values.end());
  };
  add(s.token_buffer, trajectory.tokens);
  add(s.logprob_buffer, trajectory.logprob);
  add(s.sampling_buffer, trajectory.sampling_logprob);
  s.rows.push_back(row);
  s.next_offset += row.length;
  if (s.token_buffer.size() >= kBufferedTokens) s.guarded([&] { s.write_tokens(); });
}

void ShardWriter::flush() {
  state_->guarded([&] { state_->commit(); });
}

void ShardWriter::close() {
  State& s = *state_;
  if (!s.open) return;
  s.guarded([&] {
    s.commit();
    s.file.sync();
    s.open = false;
    s.close_datasets();
    s.file.close();
  });
}

const std::string& ShardWriter::path() const { return state_->file.path(); }

}  // namespace paceline::io
