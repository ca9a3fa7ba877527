#include "io/run/window_reader.hpp"

#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

// Cache of two chunks: reads go front to back. Unfiltered chunks larger than the cache bypass it.
constexpr std::size_t kChunkCache = std::size_t{512} << 10;

/// Resizes. resize() alone would double the memory if a window is a little larger than the last.
template <typename T>
void for_size(std::vector<T>& values, std::size_t size, std::size_t usual) {
  if (values.capacity() < size) {
    values = {};
    values.reserve(std::max(size, usual));
  }
  values.resize(size);
}

/// Whether a file has a dataset of this name.
bool has(const h5::File& file, const std::string& name) {
  return H5Lexists(file.id(), name.c_str(), H5P_DEFAULT) > 0;
}

}  // namespace

KeptSpans Kept::of(std::size_t first, std::size_t count) const {
  if (counts.empty()) return {};
  return {std::span(counts).subspan(first, count),
          std::span(ids).subspan(start[first], start[first + count] - start[first])};
}

void Kept::set_start() {
  start.assign(1, 0);
  for (const std::int32_t count : counts)
    start.push_back(start.back() + static_cast<std::size_t>(count));
}

std::span<const AnsweredTurn> StoredTurns::of(std::uint64_t offset) const {
  const auto [first, last] = std::equal_range(offsets.begin(), offsets.end(), offset);
  return std::span(turns).subspan(static_cast<std::size_t>(first - offsets.begin()),
                                  static_cast<std::size_t>(last - first));
}

TokenColumns::TokenColumns(const std::string& path, const std::string& prefix)
    : prefix_(prefix),
      file_(h5::File::open(path)),
      tokens_(h5::Dataset::open(file_, prefix + "tokens", h5::native<TokenId>(), kChunkCache)),
      logprob_(h5::Dataset::open(file_, prefix + "logprob", h5::native<float>(), kChunkCache)),
      sampling_logprob_(
          h5::Dataset::open(file_, prefix + "sampling_logprob", h5::native<float>(), kChunkCache)),
      has_kept_(has(file_, prefix + "kept_offsets")) {
  if (has(file_, prefix + "top_ids")) {
    top_ids_ = h5::Dataset::open(file_, prefix + "top_ids", h5::native<TokenId>(), kChunkCache);
    top_logprob_ =
        h5::Dataset::open(file_, prefix + "top_logprob", h5::native<float>(), kChunkCache);
    std::int32_t width = 0;
    h5::read_attribute(top_ids_.id(), file_.path(), "width", h5::native<std::int32_t>(), &width);
    if (width < 1 || width > SamplingParams::kMostLogprobs)
      throw IoError("cannot read " + file_.path() + ": its top_ids are damaged");
    top_width_ = static_cast<std::size_t>(width);
  }
  if (!has_kept_) return;
  kept_ids_ = h5::Dataset::open(file_, prefix + "kept_ids", h5::native<TokenId>(), kChunkCache);
  kept_offsets_ =
      h5::Dataset::open(file_, prefix + "kept_offsets", h5::native<std::int64_t>(), kChunkCache);
}

std::uint64_t TokenColumns::size() const {
  std::uint64_t size = std::min({tokens_.size(), logprob_.size(), sampling_logprob_.size()});
  if (top_width_ > 0)
    size = std::min(size, std::min(top_ids_.size(), top_logprob_.size()) / top_width_);
  if (!has_kept_) return size;
  return std::min(size, kept_offsets_.size() - std::min<std::uint64_t>(kept_offsets_.size(), 1));
}

std::size_t TokenColumns::token_bytes() const {
  const std::size_t plain =
      sizeof(TokenId) + 2 * sizeof(float) + top_width_ * (sizeof(TokenId) + sizeof(float));
  if (!has_kept_) return plain;
  const std::uint64_t tokens = std::max<std::uint64_t>(size(), 1);
  // Ids are held twice while a window is assembled.
  return plain + sizeof(std::size_t) + sizeof(std::int32_t) +
         2 * sizeof(TokenId) * (kept_ids_.size() / tokens + 1);
}

void TokenColumns::read_kept(std::uint64_t first, std::uint64_t count, Kept& kept) const {
  if (!has_kept_ || count == 0) return;
  std::vector<std::int64_t> offsets(count + 1);
  kept_offsets_.read(first, count + 1, offsets.data());
  const bool sound = offsets.front() >= 0 && std::is_sorted(offsets.begin(), offsets.end()) &&
                     static_cast<std::uint64_t>(offsets.back()) <= kept_ids_.size();
  if (!sound) throw IoError("cannot read " + file_.path() + ": its kept_offsets are damaged");
  for (std::size_t i = 0; i < count; ++i)
    kept.counts.push_back(static_cast<std::int32_t>(offsets[i + 1] - offsets[i]));
  const auto ids = static_cast<std::size_t>(offsets.back() - offsets.front());
  const std::size_t before = kept.ids.size();
  kept.ids.resize(before + ids);
  kept_ids_.read(static_cast<std::uint64_t>(offsets.front()), ids, kept.ids.data() + before);
}

void TokenColumns::read_top(std::uint64_t first, std::uint64_t count, TokenId* ids,
                            float* logprob) const {
  if (top_width_ == 0 || count == 0) return;
  top_ids_.read(first * top_width_, count * top_width_, ids);
  top_logprob_.read(first * top_width_, count * top_width_, logprob);
}

/// Reads /turns of a shard, or the turn columns of a final file.
void TokenColumns::read_turns() const {
  StoredTurns stored;
  if (prefix_.empty()) {
    if (!has(file_, "turns")) {
      turns_.emplace();
      return;
    }
    const h5::Handle type = h5::compound(turn_row_fields(), sizeof(TurnRow));
    const h5::Dataset dataset = h5::Dataset::open(file_, "turns", type.get(), 0);
    std::vector<TurnRow> rows(dataset.size());
    dataset.read(0, rows.size(), rows.data());
    for (const TurnRow& row : rows) {
      if (row.turn.end == 0) continue;  // a hole left by a kill: a turn has tokens
      stored.offsets.push_back(row.offset);
      stored.turns.push_back(row.turn);
    }
  } else {
    if (!has(file_, prefix_ + "turn_offsets")) {
      turns_.emplace();
      return;
    }
    const auto read = [this]<typename T>(T /*type*/, const char* name) {
      return h5::read_all<T>(file_, prefix_ + name);
    };
    const auto responses = read(std::int64_t{}, "offsets");
    const auto firsts = read(std::int64_t{}, "turn_offsets");
    const auto given = read(std::int32_t{}, "turn_given");
    const auto end = read(std::int32_t{}, "turn_end");
    const auto seconds = read(float{}, "turn_seconds");
    const auto reward = read(float{}, "turn_reward");
    const auto by = read(std::uint8_t{}, "turn_by");
    const auto reason = read(std::uint8_t{}, "turn_reason");
    const std::size_t count = given.size();
    const bool sound = firsts.size() == responses.size() && firsts.front() == 0 &&
                       firsts.back() == static_cast<std::int64_t>(count) &&
                       std::is_sorted(firsts.begin(), firsts.end()) && end.size() == count &&
                       seconds.size() == count && reward.size() == count && by.size() == count &&
                       reason.size() == count;
    if (!sound)
      throw IoError("cannot read " + file_.path() + ":/" + prefix_ + "turn_*: they are damaged");
    for (std::size_t i = 0; i + 1 < firsts.size(); ++i) {
      for (auto t = static_cast<std::size_t>(firsts[i]);
           t < static_cast<std::size_t>(firsts[i + 1]); ++t) {
        stored.offsets.push_back(static_cast<std::uint64_t>(responses[i]));
        stored.turns.push_back({.given = static_cast<std::uint32_t>(given[t]),
                                .end = static_cast<std::uint32_t>(end[t]),
                                .seconds = seconds[t],
                                .reward = reward[t],
                                .by = static_cast<GivenBy>(by[t]),
                                .reason = static_cast<FinishReason>(reason[t])});
      }
    }
  }
  if (!std::is_sorted(stored.offsets.begin(), stored.offsets.end()))
    throw IoError("cannot read " + file_.path() + ": its turns are damaged");
  turns_ = std::move(stored);
}

std::span<const AnsweredTurn> TokenColumns::turns(std::uint64_t offset,
                                                  std::uint64_t length) const {
  if (length == 0) return {};  // the next response begins at the same offset
  if (!turns_) read_turns();
  const std::span<const AnsweredTurn> turns = turns_->of(offset);
  std::uint64_t before = 0;
  for (const AnsweredTurn& turn : turns) {
    if (turn.given < before || turn.end < turn.given || turn.end > length)
      throw IoError("cannot read " + file_.path() + ": its turns are damaged");
    before = turn.end;
  }
  return turns;
}

void TokenColumns::read(std::uint64_t first, std::uint64_t count, TokenId* tokens, float* logprob,
                        float* sampling_logprob) const {
  tokens_.read(first, count, tokens);
  logprob_.read(first, count, logprob);
  sampling_logprob_.read(first, count, sampling_logprob);
}

Trajectory Window::trajectory(std::size_t i) const {
  const StoredResponse& entry = entries[i];
  const auto part = [&](const auto& values) {
    return std::vector(values.begin() + start[i], values.begin() + (start[i + 1]));
  };
  Trajectory result;
  result.id = entry.id();
  result.tokens = part(tokens);
  result.logprob = part(logprob);
  result.sampling_logprob = part(sampling_logprob);
  const KeptSpans spans = kept_of(i);
  result.kept.assign(spans.counts.begin(), spans.counts.end());
  result.kept_ids.assign(spans.ids.begin(), spans.ids.end());
  const TopSpans top = top_of(i);
  result.top_ids.assign(top.ids.begin(), top.ids.end());
  result.top_logprob.assign(top.logprob.begin(), top.logprob.end());
  result.turns = turns[i];
  result.finish_reason = static_cast<FinishReason>(entry.finish_reason);
  result.reward = entry.reward;
  result.weight_version = entry.weight_version;
  return result;
}

std::uint64_t Window::checksum(std::size_t i, const IndexRow& row) const {
  const auto part = [&]<typename T>(const std::vector<T>& values) {
    return std::span<const T>(values).subspan(start[i], start[i + 1] - start[i]);
  };
  return checksum_of(row, part(tokens), part(logprob), part(sampling_logprob), kept_of(i), turns[i],
                     top_of(i));
}

void read_in_order(std::span<const std::string> paths, const std::string& prefix,
                   std::span<const StoredResponse> entries, std::size_t window_bytes,
                   const std::function<void(const Window&)>& use) {
  if (entries.empty()) return;
  Window window;
  std::vector<std::size_t> by_place;
  std::size_t total = 0;
  for (const StoredResponse& entry : entries) total += entry.length;
  std::size_t token_bytes = 0;
  {
    const TokenColumns any(paths[entries[0].source], prefix);
    token_bytes = any.token_bytes();
    window.top_width = any.top_width();
  }
  const std::size_t most = std::min(total, window_bytes / token_bytes);
  std::size_t first = 0;
  while (first < entries.size()) {
    window.start.assign(1, 0);
    std::size_t last = first;
    do {
      window.start.push_back(window.start.back() + entries[last].length);
      ++last;
    } while (last < entries.size() &&
             (window.start.back() + entries[last].length) * token_bytes <= window_bytes);
    window.entries = entries.subspan(first, last - first);
    window.turns.assign(window.entries.size(), {});
    for_size(window.tokens, window.start.back(), most);
    for_size(window.logprob, window.start.back(), most);
    for_size(window.sampling_logprob, window.start.back(), most);
    for_size(window.top_ids, window.start.back() * window.top_width, most * window.top_width);
    for_size(window.top_logprob, window.start.back() * window.top_width, most * window.top_width);

    by_place.resize(window.entries.size());
    std::iota(by_place.begin(), by_place.end(), std::size_t{0});
    std::ranges::sort(by_place, {}, [&](std::size_t i) {
      return std::tuple(window.entries[i].source, window.entries[i].offset, i);
    });
    std::optional<TokenColumns> columns;
    std::uint32_t source = 0;
    std::map<std::size_t, Kept> kept;  // kept ids of one read, by its first response
    for (std::size_t k = 0; k < by_place.size();) {
      const StoredResponse& entry = window.entries[by_place[k]];
      // Responses that are neighbours both in the file and in the window are read at once.
      std::size_t run = 1;
      std::uint64_t count = entry.length;
      while (k + run < by_place.size() && by_place[k + run] == by_place[k] + run &&
             window.entries[by_place[k + run]].source == entry.source &&
             window.entries[by_place[k + run]].offset == entry.offset + count) {
        count += window.entries[by_place[k + run]].length;
        ++run;
      }
      if (!columns || source != entry.source) {
        columns.reset();  // closed before the next is opened
        source = entry.source;
        columns.emplace(paths[source], prefix);
      }
      const std::size_t to = window.start[by_place[k]];
      columns->read(entry.offset, count, window.tokens.data() + to, window.logprob.data() + to,
                    window.sampling_logprob.data() + to);
      if (columns->top_width() != window.top_width)
        throw IoError("cannot read " + paths[source] + ": its top_ids are damaged");
      columns->read_top(entry.offset, count, window.top_ids.data() + to * window.top_width,
                        window.top_logprob.data() + to * window.top_width);
      for (std::size_t i = by_place[k]; i < by_place[k] + run; ++i) {
        const StoredResponse& response = window.entries[i];
        const std::span<const AnsweredTurn> turns =
            columns->turns(response.offset, response.length);
        window.turns[i].assign(turns.begin(), turns.end());
      }
      if (columns->has_kept()) columns->read_kept(entry.offset, count, kept[by_place[k]]);
      k += run;
    }
    window.kept.clear();
    for (const auto& [response, part] : kept) {
      window.kept.counts.insert(window.kept.counts.end(), part.counts.begin(), part.counts.end());
      window.kept.ids.insert(window.kept.ids.end(), part.ids.begin(), part.ids.end());
    }
    window.kept.set_start();
    use(window);
    first = last;
  }
}

}  // namespace paceline::io
