// How fast suffix trees draft, and how much of it a target accepts.
//   bench_draft                      appending, speculating, memory, batches (synthetic text)
//   bench_draft --responses FILE     Seer's table 2 over groups of responses
//   bench_draft --history            trees of 4 earlier steps, of 512 prompts x 16 x 2,048 tokens
//   bench_draft --versions FILE [N]  version after version of responses, by drafts of N tokens (8)
// FILE: see tests/bench/response_texts.hpp. Versions: edited_texts.py makes them, arctic_bench.py
// has another program's trees.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "runtime/core/earlier_responses.hpp"
#include "runtime/draft/draft_store.hpp"
#include "runtime/draft/ngram_drafter.hpp"
#include "runtime/draft/suffix_drafter.hpp"
#include "tests/bench/machine.hpp"
#include "tests/bench/response_texts.hpp"

namespace {

using namespace paceline;
using namespace paceline::draft;
using bench::Responses;
using bench::Text;

constexpr int kDepth = 64;

/// Seconds this thread has computed: on a shared machine the steadier figure.
double cpu_now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Buffers {
  explicit Buffers(int capacity) : tokens(capacity), parents(capacity), scores(capacity) {}
  DraftOutput output() { return {tokens, parents, scores}; }
  Text tokens;
  std::vector<std::int32_t> parents;
  std::vector<float> scores;
};

/// Siblings grow by turns of 3 tokens, as accepted drafts make them.
void grow_by_turns(SuffixTree& tree, const std::vector<Text>& group) {
  for (std::size_t s = 0; s < group.size(); ++s) static_cast<void>(tree.add_sequence());
  for (std::size_t at = 0; at < group[0].size(); at += 3) {
    for (std::size_t s = 0; s < group.size(); ++s) {
      const std::size_t count = std::min<std::size_t>(3, group[s].size() - at);
      tree.append(static_cast<SuffixTree::Sequence>(s), std::span(group[s]).subspan(at, count));
    }
  }
}

void one_tree(std::size_t tokens, int shared) {
  const std::vector<Text> group = bench::make_group(16, tokens / 16, shared, 1);
  SuffixTree tree(kDepth);
  const double start = cpu_now();
  grow_by_turns(tree, group);
  const double append = cpu_now() - start;

  // Drafts after every place of fresh text that is like the group's: contexts of 64 tokens.
  const std::vector<Text> fresh = bench::make_group(1, 200'000, shared, 1);
  SpeculationScratch scratch;
  Buffers buffers(32);
  std::printf("%9zu tokens, %2d %% shared: append %6.0f ns a token, %5.1f bytes a token;", tokens,
              shared, 1e9 * append / tokens, static_cast<double>(tree.bytes()) / tokens);
  for (const int paths : {1, 4}) {
    SpeculationOptions options;
    options.limits = {8 * paths, 8, paths};
    options.offset = 8;
    std::size_t drafted = 0;
    int calls = 0;
    const double before = cpu_now();
    for (std::size_t at = kDepth; at < fresh[0].size(); at += 7, ++calls) {
      drafted += speculate(tree, std::span(fresh[0]).subspan(at - kDepth, kDepth), options,
                           buffers.output(), scratch)
                     .count;
    }
    const double time = cpu_now() - before;
    std::printf(" k=%d %4.0f ns a call, %3.0f ns a drafted token%s", paths, 1e9 * time / calls,
                1e9 * time / static_cast<double>(drafted), paths == 1 ? ";" : "\n");
  }
}

/// 16 groups of 16 requests, 4096 tokens each; every request drafts up to 8 tokens.
void batch(bool current) {
  DraftStore store({.depth = kDepth});
  std::vector<std::vector<Text>> groups;
  std::vector<SpeculationSlot> slots;
  std::vector<Buffers> buffers(256, Buffers(8));
  for (GroupId g = 0; g < 16; ++g) groups.push_back(bench::make_group(16, 4096, 60, g));
  for (GroupId g = 0; g < 16; ++g) {
    for (std::uint32_t s = 0; s < 16; ++s) {
      const Text& text = groups[g][s];
      store.update(g, s, 0, text, 0);
      SpeculationSlot& slot = slots.emplace_back();
      slot.group = g;
      slot.sample = current ? s : 99;
      slot.size = text.size();
      // A client that lags a little: the end of the text is not the end of the tree's.
      slot.text = std::span(text).subspan(text.size() - kDepth - (current ? 0 : 100), kDepth);
      slot.options.limits = {8, 8, 1};
      slot.options.offset = 8;
      slot.output = buffers[slots.size() - 1].output();
    }
  }
  SpeculationScratch scratch;
  const double time = bench::best_time([&] {
    for (SpeculationSlot& slot : slots) store.speculate(slot, scratch);
  });
  int drafted = 0;
  for (const SpeculationSlot& slot : slots) drafted += slot.result.count;
  std::printf("256 requests, %s: %6.1f us a batch, %d tokens drafted\n",
              current ? "up to date" : "from text ", 1e6 * time, drafted);
}

/// Takes in what 4 steps said to 512 prompts, within the default memory, and drafts for 64 requests
/// of the last 4 prompts with and without it.
void history() {
  constexpr std::uint32_t kPrompts = 512, kSamples = 16, kSteps = 4, kRequests = 64;
  constexpr std::size_t kTokens = 2048;
  constexpr GroupId kFirst = kPrompts - kRequests / kSamples;
  ThreadPool pool(1);
  SuffixDrafterOptions options;
  SuffixDrafter drafter(options, pool);
  SuffixDrafter alone(options, pool);
  double taking = 0;
  std::vector<Text> now;  // of the last prompts
  std::size_t after_one = 0;
  for (GroupId g = 0; g < kPrompts; ++g) {
    const std::vector<Text> texts = bench::make_group(kSamples * (kSteps + 1), kTokens, 60, g);
    for (std::uint32_t s = 0; s < kSamples; ++s) {
      const Text& own = texts[s + kSamples * kSteps];
      for (SuffixDrafter* d : {&drafter, &alone}) d->start({{g, s}, Text{1}, {}, {}}, g);
      if (g >= kFirst) now.push_back(own);
    }
    const double before = cpu_now();
    for (std::uint32_t t = 0; t < kSamples * kSteps; ++t)
      drafter.recall({g, t % kSamples}, 1 + t / kSamples, 0, texts[t], true, g);
    taking += cpu_now() - before;
    if (g == 0) after_one = drafter.bytes();
    for (std::uint32_t s = 0; s < kSamples && g < kFirst; ++s) drafter.finish({g, s}, g);
  }
  const double tokens = double{kPrompts} * kSamples * kSteps * kTokens;
  std::printf(
      "4 steps of 512 prompts x 16 x 2,048: %.0f s, %.0f ns a token, %.0f ms a prompt;\n"
      "%.1f MiB a prompt, %.1f bytes a token; held at last: %.0f MiB\n",
      taking, 1e9 * taking / tokens, 1e3 * taking / kPrompts,
      static_cast<double>(after_one) / (1 << 20),
      static_cast<double>(after_one) * kPrompts / tokens,
      static_cast<double>(drafter.bytes()) / (1 << 20));

  std::vector<Buffers> buffers(kRequests, Buffers(8));
  std::vector<DraftSlot> slots(kRequests);
  for (const bool with : {false, true}) {
    SuffixDrafter& d = with ? drafter : alone;
    double time = 0;
    double steps = 0;
    double said = 0;
    std::vector<std::size_t> at(kRequests);
    for (int step = 0; step < 200; ++step) {
      for (std::uint32_t r = 0; r < kRequests; ++r) {
        slots[r].id = {kFirst + r / kSamples, r % kSamples};
        slots[r].limits = {8, 8, 1};
        slots[r].output = buffers[r].output();
      }
      const double before = cpu_now();
      d.propose(slots, kPrompts, nullptr);
      time += cpu_now() - before;
      for (std::uint32_t r = 0; r < kRequests; ++r) {
        const std::span<const TokenId> next = std::span(now[r]).subspan(at[r]);
        const std::size_t count = std::min<std::size_t>(
            next.size(),
            bench::accepted(buffers[r].output(), slots[r].count, next) + std::size_t{1});
        d.commit(slots[r].id, next.first(count), kPrompts);
        at[r] += count;
        said += static_cast<double>(count);
      }
      ++steps;
    }
    std::printf("64 requests, %s: %.0f us a batch, %.2f tokens a step\n",
                with ? "with 4 earlier steps" : "this step alone    ", 1e6 * time / steps,
                said / steps / kRequests);
  }
}

struct Tally {
  double tokens = 0;
  double steps = 0;
  double drafted = 0;
};

/// Decodes `text` with drafts from a tree that holds `references` whole and itself as it grows.
void decode(const Responses& group, std::size_t target, int references,
            const SpeculationOptions& options, Tally& tally) {
  SuffixTree tree(kDepth);
  const auto own = tree.add_sequence();
  tree.append(own, group.prompt);
  for (int i = 1; i <= references; ++i) {
    tree.append(tree.add_sequence(), group.texts[(target + i) % group.texts.size()]);
  }
  SpeculationScratch scratch;
  Buffers buffers(options.limits.max_tokens);
  const Text& text = group.texts[target];
  for (std::size_t at = 0; at < text.size();) {
    const DraftResult draft = speculate(tree, own, options, buffers.output(), scratch);
    const std::span<const TokenId> next = std::span(text).subspan(at);
    const std::size_t count = std::min<std::size_t>(
        next.size(), bench::accepted(buffers.output(), draft.count, next) + std::size_t{1});
    tree.append(own, next.first(count));
    at += count;
    tally.tokens += static_cast<double>(count);
    tally.drafted += draft.count;
    ++tally.steps;
  }
}

void decode_ngram(const Responses& group, std::size_t target, Tally& tally) {
  NgramIndex index({});
  index.append(group.prompt);
  const Text& text = group.texts[target];
  for (std::size_t at = 0; at < text.size();) {
    std::size_t count = 0;
    const std::span<const TokenId> draft = index.lookup(8);
    while (count < draft.size() && at + count < text.size() && draft[count] == text[at + count]) {
      ++count;
    }
    tally.drafted += static_cast<double>(draft.size());
    count = std::min(count + 1, text.size() - at);
    index.append(std::span(text).subspan(at, count));
    at += count;
    tally.tokens += static_cast<double>(count);
    ++tally.steps;
  }
}

/// Seer's table 2: drafts of at most 8 tokens a path; tokens a step, the target's own included.
int table(const char* path) {
  const std::vector<Responses> groups = bench::read_groups(path);
  if (groups.empty()) {
    std::printf("%s is absent: table 2 skipped\n", path);
    return 0;
  }
  constexpr std::size_t kGroups = 20;  // as Seer samples
  constexpr std::size_t kTargets = 4;  // responses of each that are decoded
  const auto over_targets = [&](int references, auto&& f) {
    std::size_t used = 0;
    for (const Responses& group : groups) {
      if (group.texts.size() <= static_cast<std::size_t>(references) || used == kGroups) continue;
      ++used;
      for (std::size_t t = 0; t < std::min(kTargets, group.texts.size()); ++t) f(group, t);
    }
    return used;
  };
  std::printf("tokens a step (drafted a step), drafts of at most 8 tokens a path\n");
  Tally ngram;
  over_targets(0, [&](const Responses& group, std::size_t t) { decode_ngram(group, t, ngram); });
  std::printf("n-gram 2..5, own text: %.2f (%.1f)\n", ngram.tokens / ngram.steps,
              ngram.drafted / ngram.steps);
  for (const float min_probability : {0.0F, 0.1F, 0.4F}) {
    std::printf("min_probability %.1f        linear        k=2          k=4\n",
                static_cast<double>(min_probability));
    for (const int references : {0, 1, 5, 15}) {
      const std::size_t used = over_targets(references, [](const Responses&, std::size_t) {});
      if (used == 0) continue;  // no group is as large
      std::printf("n = %2d             ", references);
      for (const int paths : {1, 2, 4}) {
        SpeculationOptions options;
        options.limits = {8 * paths, 8, paths};
        options.offset = 8;
        options.min_probability = min_probability;
        Tally tally;
        over_targets(references, [&](const Responses& group, std::size_t t) {
          decode(group, t, references, options, tally);
        });
        std::printf("  %5.2f (%4.1f)", tally.tokens / tally.steps, tally.drafted / tally.steps);
      }
      std::printf("   %zu groups\n", used);
    }
  }
  return 0;
}

/// Decodes a text as the only request of its prompt. `drafter` may know earlier versions of it.
void decode(SuffixDrafter& drafter, RequestId id, const Text& text, int length, Tally& tally) {
  Buffers buffers(length);
  DraftSlot slot;
  slot.id = id;
  slot.limits = {length, length, 1};
  for (std::size_t at = 0; at < text.size();) {
    slot.output = buffers.output();
    drafter.propose({&slot, 1}, 0, nullptr);
    const std::span<const TokenId> next = std::span(text).subspan(at);
    const std::size_t count = std::min<std::size_t>(
        next.size(), bench::accepted(buffers.output(), slot.count, next) + std::size_t{1});
    drafter.commit(id, next.first(count), 0);
    at += count;
    tally.tokens += static_cast<double>(count);
    tally.drafted += slot.count;
    ++tally.steps;
  }
}

/// Versions of responses, each a step of a training: as a rank has them, whose trees begin with the
/// newest earlier versions, and without these.
int versions(const char* path, int length) {
  const std::vector<Responses> groups = bench::read_groups(path);
  std::size_t most = 0;
  for (const Responses& group : groups) most = std::max(most, group.texts.size());
  if (most == 0 || length < 1) {
    std::fprintf(stderr, "%s: expected versions of responses, and drafts of 1 token or more\n",
                 path);
    return 65;
  }
  ThreadPool pool(1);
  std::printf(
      "tokens a step (drafted a step) by version   alone          with history   us a token\n");
  for (std::size_t version = 0; version < most; ++version) {
    Tally tallies[2];
    double seconds = 0;
    for (const bool with : {false, true}) {
      SuffixDrafter drafter({}, pool);
      const double before = cpu_now();
      for (GroupId g = 0; g < groups.size(); ++g) {
        const std::vector<Text>& texts = groups[g].texts;
        if (version >= texts.size()) continue;
        const RequestId id{g, 0};
        drafter.start({id, groups[g].prompt, {}, {}}, 0);
        const std::size_t ages = with ? std::min(version, kMostEarlierSteps) : 0;
        for (std::uint32_t age = 1; age <= ages; ++age)
          drafter.recall(id, age, 0, texts[version - age], true, 0);
        decode(drafter, id, texts[version], length, tallies[with ? 1 : 0]);
        drafter.finish(id, 0);
      }
      seconds = cpu_now() - before;
    }
    std::printf("%43zu", version + 1);
    for (const Tally& tally : tallies)
      std::printf(" %6.2f (%4.1f) ", tally.tokens / tally.steps, tally.drafted / tally.steps);
    std::printf("%13.1f\n", 1e6 * seconds / tallies[1].tokens);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc >= 3 && argc <= 4 && std::strcmp(argv[1], "--versions") == 0)
    return versions(argv[2], argc == 4 ? std::atoi(argv[3]) : 8);
  if (argc == 3 && std::strcmp(argv[1], "--responses") == 0) return table(argv[2]);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (argc == 2 && std::strcmp(argv[1], "--history") == 0) {
    history();
    return 0;
  }
  if (argc != 1) {
    std::fprintf(stderr,
                 "usage: bench_draft [--responses FILE | --history | --versions FILE [N]]\n");
    return 64;
  }
  for (const std::size_t tokens : {std::size_t{1'000'000}, std::size_t{10'000'000}}) {
    for (const int shared : {0, 60, 95}) one_tree(tokens, shared);
  }
  batch(true);
  batch(false);
  return 0;
}
