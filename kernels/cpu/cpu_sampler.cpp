#include "kernels/cpu/cpu_sampler.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "runtime/core/error.hpp"

namespace paceline::kernels::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr Ranked kNoToken = {-1, -kInfinity};

int spans_of(int vocab) { return (vocab + kSpan - 1) / kSpan; }
int chunks_of(int vocab) { return (vocab + kChunk - 1) / kChunk; }

/// A key that sorts tokens by largest s first, lowest id on ties. (-0 and +0 must have equal keys.)
std::uint64_t order_key(float s, TokenId id) {
  const auto bits = std::bit_cast<std::uint32_t>(s + 0.0F);
  const std::uint32_t ascending = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return std::uint64_t{~ascending} << 32 | static_cast<std::uint32_t>(id);
}
float value_of(std::uint64_t key) {
  const auto ascending = ~static_cast<std::uint32_t>(key >> 32);
  return std::bit_cast<float>((ascending & 0x80000000U) != 0 ? ascending & 0x7FFFFFFFU
                                                             : ~ascending);
}
TokenId id_of(std::uint64_t key) { return static_cast<TokenId>(static_cast<std::uint32_t>(key)); }

/// The smallest float that is not below x.
float float_at_least(double x) {
  const auto f = static_cast<float>(x);
  return static_cast<double>(f) < x ? std::nextafter(f, kInfinity) : f;
}

float log_probability(float s, float max, double sum) {
  return static_cast<float>(static_cast<double>(s) - static_cast<double>(max) - std::log(sum));
}

}  // namespace

Sampler::Sampler(const KernelTable& kernels, ThreadPool& pool)
    : kernels_(kernels), pool_(pool), scratch_(static_cast<std::size_t>(pool.size())) {}

Sampler::Fault Sampler::scan_row(const float* logits, int vocab, float scale, Scratch& scratch,
                                 bool split, Distribution& found) {
  const int spans = spans_of(vocab);
  scratch.chunk_max.resize(static_cast<std::size_t>(chunks_of(vocab)));
  scratch.spans.resize(static_cast<std::size_t>(spans));
  const auto scan_span = [&](int i) {
    scratch.spans[i] = kernels_.scan(logits, i * kSpan, std::min(vocab, (i + 1) * kSpan), scale,
                                     scratch.chunk_max.data());
  };
  if (!split) {
    for (int i = 0; i < spans; ++i) scan_span(i);
  } else {
    pool_.for_units(spans, [&](int, int i) { scan_span(i); });
  }
  for (const ScanResult& span : scratch.spans) {
    if (span.bad) return Fault::not_finite;
  }
  found = join(spans, scratch);
  return found.max == -kInfinity ? Fault::nothing_left : Fault::none;
}

Sampler::Distribution Sampler::join(int spans, const Scratch& scratch) {
  Distribution found{-kInfinity, 0.0};
  const std::span<const ScanResult> scanned(scratch.spans.data(), static_cast<std::size_t>(spans));
  for (const ScanResult& span : scanned) found.max = std::max(found.max, span.max);
  if (found.max == -kInfinity) return found;
  for (const ScanResult& span : scanned) {
    if (span.sum > 0) {
      found.sum += span.sum * std::exp(static_cast<double>(span.max) - found.max);
    }
  }
  return found;
}

/// Most vocabularies are padded at their end: where the padding is banned, the row is shortened.
/// Otherwise only spans with an edited or banned token are scanned again.
Sampler::Fault Sampler::change(const float* logits, const SampleRow& row, Scratch& scratch,
                               Choice& choice) {
  const int whole = choice.vocab;
  std::span<const TokenId> banned = row.banned;
  for (; !banned.empty() && banned.back() >= choice.vocab - 1;
       banned = banned.first(banned.size() - 1))
    choice.vocab = std::min<int>(choice.vocab, banned.back());
  if (choice.vocab < 1) return Fault::nothing_left;
  std::span<const LogitEdit> edits = row.edits;
  while (!edits.empty() && edits.back().token >= choice.vocab)
    edits = edits.first(edits.size() - 1);
  if (!banned.empty() || !edits.empty()) {
    scratch.logits.assign(logits, logits + choice.vocab);
    for (const LogitEdit& edit : edits)
      scratch.logits[edit.token] = edited(edit, logits[edit.token]);
    for (const TokenId id : banned) scratch.logits[id] = -kInfinity;
    choice.allowed = scratch.logits.data();
  }
  const int last = spans_of(choice.vocab) - 1;
  auto ban = banned.begin();
  auto edit = edits.begin();
  for (int i = 0; i <= last; ++i) {
    const int end = std::min(choice.vocab, (i + 1) * kSpan);
    const auto next_ban = std::lower_bound(ban, banned.end(), end);
    const auto next_edit = std::lower_bound(
        edit, edits.end(), end, [](const LogitEdit& e, int token) { return e.token < token; });
    const bool same = next_ban == ban && next_edit == edit && (i < last || choice.vocab == whole);
    ban = next_ban;
    edit = next_edit;
    if (same) continue;
    scratch.spans[i] =
        kernels_.scan(choice.allowed, i * kSpan, end, choice.scale, scratch.chunk_max.data());
    if (scratch.spans[i].bad) return Fault::not_finite;
  }
  scratch.chunk_max.resize(static_cast<std::size_t>(chunks_of(choice.vocab)));
  choice.all = join(last + 1, scratch);
  return choice.all.max == -kInfinity ? Fault::nothing_left : Fault::none;
}

void Sampler::filter(const SampleRow& row, const Choice& choice, Scratch& scratch, Kept& kept) {
  const int vocab = choice.vocab;
  const Distribution& all = choice.all;
  const bool by_count = row.top_k > 0 && row.top_k < vocab;
  const bool by_mass = row.top_p < 1.0F;
  const float min_p_cut =
      row.min_p > 0.0F
          ? float_at_least(static_cast<double>(all.max) + std::log(static_cast<double>(row.min_p)))
          : -kInfinity;
  const std::vector<float>& chunk_max = scratch.chunk_max;
  scratch.ids.resize(static_cast<std::size_t>(vocab));
  scratch.values.resize(static_cast<std::size_t>(vocab));
  scratch.weights.resize(static_cast<std::size_t>(vocab));
  const auto gather = [&](float cut) {
    return kernels_.gather(choice.allowed, chunk_max.data(), 0, vocab, choice.scale, cut,
                           scratch.ids.data(), scratch.values.data());
  };

  if (!by_count && !by_mass) {
    const int count = gather(min_p_cut);
    kernels_.exponentials(scratch.values.data(), all.max, count, scratch.weights.data());
    kept = {min_p_cut, vocab - 1, 0.0};
    for (int i = 0; i < count; ++i) kept.sum += scratch.weights[i];
    return;
  }

  // Candidates are the most probable tokens down to a cut, enough to contain the kept set. For
  // top-k the cut is the k-th largest chunk maximum, a lower bound of the k-th largest value; for
  // top-p the cut falls until the candidates have the mass.
  int count = 0;
  if (by_count && row.top_k <= static_cast<int>(chunk_max.size())) {
    count = gather(largest_chunk(row.top_k, scratch));
  } else {
    for (const float depth : {8.0F, 16.0F, 32.0F, kInfinity}) {
      count = gather(all.max - depth);
      if (by_count) {
        if (count >= row.top_k) break;
      } else {
        kernels_.exponentials(scratch.values.data(), all.max, count, scratch.weights.data());
        double mass = 0;
        for (int i = 0; i < count; ++i) mass += scratch.weights[i];
        // The margin covers the rounding of the sorted sum below, which has another order.
        if (mass > static_cast<double>(row.top_p) * all.sum * (1 + 1e-6)) break;
      }
    }
  }

  // Candidates stay ordered by id, so that sums over them have one order.
  std::uint64_t last = std::numeric_limits<std::uint64_t>::max();  // key of the last kept token
  double total = all.sum;
  if (by_count) {
    std::vector<std::uint64_t>& keys = scratch.keys;
    keys.resize(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) keys[i] = order_key(scratch.values[i], scratch.ids[i]);
    std::nth_element(keys.begin(), keys.begin() + (row.top_k - 1), keys.end());
    last = keys[row.top_k - 1];
    int kept_count = 0;
    for (int i = 0; i < count; ++i) {
      if (order_key(scratch.values[i], scratch.ids[i]) > last) continue;
      scratch.ids[kept_count] = scratch.ids[i];
      scratch.values[kept_count++] = scratch.values[i];
    }
    count = kept_count;
    total = 0;
  }
  kernels_.exponentials(scratch.values.data(), all.max, count, scratch.weights.data());
  if (by_count) {
    for (int i = 0; i < count; ++i) total += scratch.weights[i];
  }
  kept = {value_of(last), id_of(last), total};
  if (by_mass) mass_prefix(static_cast<double>(row.top_p) * total, all.max, count, scratch, kept);
  if (kept.value < min_p_cut) {
    kept = {min_p_cut, vocab - 1, 0.0};
    for (int i = 0; i < count; ++i) {
      if (scratch.values[i] >= min_p_cut) kept.sum += scratch.weights[i];
    }
  }
}

void Sampler::mass_prefix(double target, float max, int count, Scratch& scratch, Kept& kept) {
  // Tokens go into bins by value, and only the bin in which the mass reaches its target is sorted
  // (and further ones, if rounding requires it).
  constexpr int kBins = 2048;
  constexpr float kBinsPerUnit = 64;
  const int bins = count <= 512 ? 1 : kBins;
  const auto bin_of = [bins, max](float s) {
    const float depth = (max - s) * kBinsPerUnit;  // monotonically falling in s
    return depth < static_cast<float>(bins - 1) ? static_cast<int>(depth) : bins - 1;
  };
  scratch.bin_mass.assign(static_cast<std::size_t>(bins), 0.0);
  for (int i = 0; i < count; ++i) scratch.bin_mass[bin_of(scratch.values[i])] += scratch.weights[i];
  double mass = 0;
  int bin = 0;
  for (; bin < bins - 1 && mass + scratch.bin_mass[bin] < target; ++bin) {
    mass += scratch.bin_mass[bin];
  }
  std::vector<std::uint64_t>& keys = scratch.keys;
  bool first = mass == 0;
  for (; bin < bins; ++bin) {
    keys.clear();
    for (int i = 0; i < count; ++i) {
      if (bin_of(scratch.values[i]) == bin) {
        keys.push_back(order_key(scratch.values[i], scratch.ids[i]));
      }
    }
    std::sort(keys.begin(), keys.end());
    scratch.sorted.resize(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) scratch.sorted[i] = value_of(keys[i]);
    kernels_.exponentials(scratch.sorted.data(), max, static_cast<int>(keys.size()),
                          scratch.sorted.data());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (!first && mass >= target) return;
      first = false;
      mass += scratch.sorted[i];
      kept = {value_of(keys[i]), id_of(keys[i]), mass};
    }
  }
}

float Sampler::largest_chunk(int k, Scratch& scratch) {
  scratch.maxima = scratch.chunk_max;
  std::nth_element(scratch.maxima.begin(), scratch.maxima.begin() + (k - 1), scratch.maxima.end(),
                   std::greater<>());
  return scratch.maxima[k - 1];
}

float Sampler::first_cut(int wanted, const Choice& choice, Scratch& scratch) {
  if (wanted == 1) return choice.all.max;
  return wanted <= chunks_of(choice.vocab) ? largest_chunk(wanted, scratch) : -kInfinity;
}

void Sampler::best(const SampleRow& row, const Choice& choice, Scratch& scratch, bool split,
                   std::span<Ranked> out) {
  if (row.temperature == 0.0F) {
    best_logits(choice, scratch, out);
  } else {
    best_scores(row, choice, scratch, split, out);
  }
}

void Sampler::best_logits(const Choice& choice, Scratch& scratch, std::span<Ranked> out) {
  const int vocab = choice.vocab;
  const int wanted = static_cast<int>(out.size());
  const float lowest = std::numeric_limits<float>::lowest();  // excludes banned tokens
  const float cut = std::max(lowest, first_cut(wanted, choice, scratch));
  scratch.ids.resize(static_cast<std::size_t>(vocab));
  scratch.values.resize(static_cast<std::size_t>(vocab));
  const int count = kernels_.gather(choice.allowed, scratch.chunk_max.data(), 0, vocab,
                                    choice.scale, cut, scratch.ids.data(), scratch.values.data());
  std::vector<std::uint64_t>& keys = scratch.keys;
  keys.resize(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) keys[i] = order_key(scratch.values[i], scratch.ids[i]);
  const int found = std::min(count, wanted);
  std::partial_sort(keys.begin(), keys.begin() + found, keys.end());
  std::fill(out.begin() + found, out.end(), kNoToken);
  for (int i = 0; i < found; ++i) out[i] = {id_of(keys[i]), value_of(keys[i])};
}

void Sampler::best_scores(const SampleRow& row, const Choice& choice, Scratch& scratch, bool split,
                          std::span<Ranked> out) {
  const int vocab = choice.vocab;
  struct List {
    std::array<float, kMaxRanked> values;
    std::array<TokenId, kMaxRanked> ids;
  };
  RankArgs args;
  args.logits = choice.allowed;
  args.chunk_max = scratch.chunk_max.data();
  args.inverse_temperature = choice.scale;
  args.keep_value = choice.kept.value;
  args.keep_id = choice.kept.id;
  args.noise = {
      {static_cast<std::uint32_t>(row.noise.key), static_cast<std::uint32_t>(row.noise.key >> 32)},
      static_cast<std::uint32_t>(row.step),
      {static_cast<std::uint32_t>(row.noise.stream),
       static_cast<std::uint32_t>(row.noise.stream >> 32)}};
  const int wanted = static_cast<int>(out.size());
  const auto improve = [&](List& list, int begin, int end) {
    kernels_.rank(args, begin, std::min(vocab, end), wanted, list.values.data(), list.ids.data());
  };

  List list;
  list.values.fill(-kInfinity);
  list.ids.fill(std::numeric_limits<TokenId>::max());
  // The chunks of the largest logits come first, as many as tokens are wanted: thanks to their
  // scores most other chunks can be skipped.
  const int chunks = chunks_of(vocab);
  const float cut = first_cut(wanted, choice, scratch);
  int firsts = 0;
  for (int chunk = 0; chunk < chunks && firsts < wanted; ++chunk) {
    if (args.chunk_max[chunk] < cut) continue;
    improve(list, chunk * kChunk, (chunk + 1) * kChunk);
    ++firsts;
  }
  if (!split) {
    improve(list, 0, vocab);
  } else {
    std::vector<List> lists(static_cast<std::size_t>(pool_.size()), list);
    pool_.for_units(spans_of(vocab),
                    [&](int thread, int i) { improve(lists[thread], i * kSpan, (i + 1) * kSpan); });
    // Lists of different threads have their first tokens in common.
    std::vector<std::uint64_t>& keys = scratch.keys;
    keys.clear();
    for (const List& part : lists) {
      for (int i = 0; i < wanted && part.values[i] != -kInfinity; ++i) {
        keys.push_back(order_key(part.values[i], part.ids[i]));
      }
    }
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    const int found = std::min(wanted, static_cast<int>(keys.size()));
    for (int i = 0; i < found; ++i) {
      list.values[i] = value_of(keys[i]);
      list.ids[i] = id_of(keys[i]);
    }
  }
  for (int i = 0; i < wanted; ++i) {
    out[i] = list.values[i] == -kInfinity ? kNoToken : Ranked{list.ids[i], list.values[i]};
  }
}

Sampler::Fault Sampler::prepare(const float* logits, int vocab, const SampleRow& row,
                                Scratch& scratch, bool split, Choice& choice) {
  const bool greedy = row.temperature == 0.0F;
  choice.scale = greedy ? 1.0F : 1.0F / row.temperature;
  choice.vocab = vocab;
  Fault fault = scan_row(logits, vocab, choice.scale, scratch, split, choice.full);
  if (fault != Fault::none) return fault;

  choice.all = choice.full;
  choice.allowed = logits;
  if (!row.banned.empty() || !row.edits.empty()) {
    fault = change(logits, row, scratch, choice);
    if (fault != Fault::none) return fault;
  }

  choice.kept = {-kInfinity, -1, choice.all.sum};
  if (!greedy && (row.top_k > 0 || row.top_p < 1.0F || row.min_p > 0.0F)) {
    filter(row, choice, scratch, choice.kept);
  }
  return Fault::none;
}

bool Sampler::is_kept(const Choice& choice, TokenId token) {
  if (token >= choice.vocab) return false;
  const float s = choice.allowed[token] * choice.scale;
  return s > choice.kept.value ||
         (s == choice.kept.value && token <= choice.kept.id && s > -kInfinity);
}

int Sampler::write_kept(const Choice& choice, Scratch& scratch, std::span<TokenId> kept) {
  scratch.ids.resize(static_cast<std::size_t>(choice.vocab));
  scratch.values.resize(static_cast<std::size_t>(choice.vocab));
  const int count =
      kernels_.gather(choice.allowed, scratch.chunk_max.data(), 0, choice.vocab, choice.scale,
                      choice.kept.value, scratch.ids.data(), scratch.values.data());
  int written = 0;
  for (int i = 0; i < count; ++i) {
    if (is_kept(choice, scratch.ids[i])) kept[written++] = scratch.ids[i];
  }
  return written;
}

Sampler::Fault Sampler::sample_row(const float* logits, int vocab, const SampleRow& row,
                                   Scratch& scratch, bool split, Sampled& out,
                                   std::span<TokenId> kept) {
  Choice choice;
  const Fault fault = prepare(logits, vocab, row, scratch, split, choice);
  if (fault != Fault::none) return fault;
  const bool greedy = row.temperature == 0.0F;
  Ranked first{row.given};
  if (row.given < 0 || greedy) best(row, choice, scratch, split, {&first, 1});
  out.token = row.given < 0 ? first.token : row.given;
  const float s = logits[out.token] * choice.scale;
  out.logprob = log_probability(s, choice.full.max, choice.full.sum);
  const bool possible =
      row.given < 0 || (greedy ? row.given == first.token : is_kept(choice, row.given));
  out.sampling_logprob = -kInfinity;
  if (possible && greedy) out.sampling_logprob = 0;
  if (possible && !greedy)
    out.sampling_logprob =
        log_probability(choice.allowed[out.token] * choice.scale, choice.all.max, choice.kept.sum);
  if (kept.empty()) return Fault::none;
  if (greedy) {
    kept[0] = out.token;
    out.kept = 1;
  } else {
    out.kept = write_kept(choice, scratch, kept);
  }
  return Fault::none;
}

Sampler::Fault Sampler::rank_row(const float* logits, int vocab, const SampleRow& row,
                                 Scratch& scratch, bool split, std::span<Ranked> out) {
  Choice choice;
  const Fault fault = prepare(logits, vocab, row, scratch, split, choice);
  if (fault == Fault::none) best(row, choice, scratch, split, out);
  return fault;
}

template <class Work>
void Sampler::for_rows(int count, const Work& work) {
  std::atomic<int> bad_row{-1};
  std::atomic<Fault> bad_fault{Fault::none};
  const auto run = [&](int r, int thread, bool split) {
    const Fault fault = work(r, scratch_[thread], split);
    if (fault != Fault::none) {
      bad_row = r;
      bad_fault = fault;
    }
  };
  if (count < pool_.size()) {
    for (int r = 0; r < count; ++r) run(r, 0, true);
  } else {
    pool_.for_units(count, [&](int thread, int r) { run(r, thread, false); });
  }
  if (bad_fault.load() == Fault::none) return;
  const std::string row = "sampling: row " + std::to_string(bad_row.load());
  if (bad_fault.load() == Fault::not_finite)
    throw UnusableLogits(row + " has a NaN or infinite logit");
  throw Error(ExitCode::internal, row + " has no token left to sample");
}

void Sampler::sample(const float* logits, std::size_t stride, int vocab,
                     std::span<const SampleRow> rows, std::span<Sampled> out,
                     std::span<TokenId> kept) {
  const std::size_t most = rows.empty() ? 0 : kept.size() / rows.size();
  for_rows(static_cast<int>(rows.size()), [&](int r, Scratch& scratch, bool split) {
    return sample_row(logits + r * stride, vocab, rows[r], scratch, split, out[r],
                      kept.subspan(r * most, most));
  });
}

void Sampler::top(const float* logits, std::size_t stride, int vocab, int rows, int count,
                  std::span<Ranked> out) {
  SampleRow plain;
  plain.temperature = 0;
  for_rows(rows, [&](int r, Scratch& scratch, bool split) {
    const float* row = logits + r * stride;
    const std::span<Ranked> best = out.subspan(static_cast<std::size_t>(r) * count, count);
    Choice choice;
    const Fault fault = prepare(row, vocab, plain, scratch, split, choice);
    if (fault != Fault::none) return fault;
    best_logits(choice, scratch, best);
    for (Ranked& token : best) {
      if (token.token >= 0)
        token.score = log_probability(row[token.token], choice.full.max, choice.full.sum);
    }
    return Fault::none;
  });
}

void Sampler::rank(const float* logits, std::size_t stride, int vocab,
                   std::span<const SampleRow> rows, int count, std::span<Ranked> out) {
  for_rows(static_cast<int>(rows.size()), [&](int r, Scratch& scratch, bool split) {
    return rank_row(logits + r * stride, vocab, rows[r], scratch, split,
                    out.subspan(static_cast<std::size_t>(r) * count, count));
  });
}

}  // namespace paceline::kernels::cpu
