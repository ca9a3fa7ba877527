// How much of drafts a target accepts. Its responses are generated once; then each drafter drafts
// along them as in decoding: at every step, as long as it may, going on after what was accepted and
// one token of the target's. Load and machine do not matter.
#include <algorithm>
#include <cstdio>
#include <map>
#include <vector>

#include "tests/bench/speculation_setup.hpp"

namespace paceline::bench {
namespace {

struct Response {
  Admission request;
  std::vector<TokenId> tokens;
  std::int32_t first = 0;           ///< position from which on the target's features are known
  std::vector<std::byte> features;  ///< of the positions from there on, where a head drafts
};

std::vector<Response> generate(SpeculationSetup& setup, double& bits) {
  const int count = static_cast<int>(setup.prompts.size()) * setup.options.samples;
  engine::Batcher batcher = setup.batcher(setup.largest_batch, setup.options.max_tokens);
  std::vector<Response> responses(count);
  double log_probability = 0;
  double tokens = 0;
  int next = 0;
  const auto index_of = [&](RequestId id) {
    return static_cast<int>(id.prompt) * setup.options.samples + static_cast<int>(id.sample);
  };
  while (next < count || batcher.active() > 0) {
    for (; next < count; ++next) {
      Admission request = setup.request(next);
      if (!batcher.admit(request)) break;
    }
    const std::vector<Trajectory> finished = batcher.commit(setup.executor->run(batcher.plan()));
    for (const engine::Computed& c : batcher.computed()) {
      Response& r = responses[index_of(c.id)];
      if (r.features.empty()) r.first = c.first_position;
      const std::size_t before = r.features.size();
      r.features.resize(before + c.rows.size() * setup.executor->feature_bytes());
      setup.executor->read_features(c.rows, std::span(r.features).subspan(before));
    }
    for (const Trajectory& t : finished) {
      const int index = index_of(t.id);
      responses[index].request = setup.request(index);
      responses[index].tokens = t.tokens;
      for (const float value : t.logprob) log_probability += static_cast<double>(value);
      tokens += static_cast<double>(t.tokens.size());
    }
  }
  bits = -log_probability / tokens / 0.6931471805599453;
  return responses;
}

struct Tally {
  double steps = 0;
  double tokens = 0;  ///< committed
  double drafted = 0;
  double drafts = 0;                     ///< that are not empty
  std::vector<double> judged, accepted;  ///< [position - 1] with all before accepted
  double refuted = 0;                    ///< tokens of chains with a second choice
  double second = 0;                     ///< of them, those whose second choice was right
  double after = 0, after_accepted = 0;  ///< first tokens of drafts after these
};

/// Takes one draft against what the target says next; returns the number of tokens accepted.
int judge(const draft::DraftSlot& slot, std::span<const TokenId> next, Tally& tally) {
  int at = -1;
  int length = 0;
  for (bool accepted = true; accepted && length < static_cast<int>(next.size());) {
    bool drafted = false;
    accepted = false;
    for (int i = at + 1; i < slot.count && !accepted; ++i) {
      if (slot.output.parents[i] != at) continue;
      drafted = true;
      accepted = slot.output.tokens[i] == next[length];
      if (accepted) at = i;
    }
    if (!drafted) break;
    tally.judged[length] += 1;
    if (!accepted && !slot.runners_up.empty()) {
      tally.refuted += 1;
      tally.second += slot.runners_up[at + 1] == next[length] ? 1 : 0;
    }
    if (accepted) tally.accepted[length++] += 1;
  }
  return length;
}

/// Tells of what the target has computed when so many tokens of the response are there, beyond what
/// it had with `before` of them.
void observe(draft::Drafter& drafter, RequestId id, const Response& r, std::size_t before,
             std::size_t now) {
  draft::FeatureReader* reader = drafter.capabilities().features;
  if (reader == nullptr) return;
  const std::size_t bytes = reader->feature_bytes();
  const std::size_t prompt = r.request.prompt.size();
  const std::size_t first = before == 0 ? r.first : prompt + before - 1;
  const std::size_t end = std::min(prompt + now - 1, r.first + r.features.size() / bytes);
  if (first >= end) return;
  reader->observe(id, static_cast<std::int32_t>(first),
                  std::span(r.features).subspan((first - r.first) * bytes, (end - first) * bytes));
}

struct Active {
  const Response* response;
  RequestId id;
  std::size_t at = 1;  ///< committed; the first token comes out of the prefill
  std::vector<TokenId> tokens;
  std::vector<std::int32_t> parents;
  std::vector<float> scores;
  std::vector<TokenId> runners_up;  ///< of chains, where the drafter says them
  bool second = false;              ///< the last draft's second choice was right where it ended
};

/// `grouped`: siblings are known to the drafter as such, else each is alone with its prompt.
/// `other_noise`: the drafter draws by noise that is independent of the target's.
Tally replay(draft::Drafter& drafter, const std::vector<Response>& responses, int batch,
             const draft::DraftLimits& limits, bool grouped, bool other_noise = false) {
  Tally tally;
  tally.judged.resize(limits.max_length);
  tally.accepted.resize(limits.max_length);
  std::vector<Active> active;
  std::vector<draft::DraftSlot> slots;
  const bool seconds = drafter.capabilities().branches && limits.paths == 1;
  std::size_t next = 0;
  double now = 0;
  while (next < responses.size() || !active.empty()) {
    for (; next < responses.size() && static_cast<int>(active.size()) < batch; ++next) {
      const Response& r = responses[next];
      if (r.tokens.size() < 2) continue;
      const RequestId id =
          grouped ? r.request.trajectory.id : RequestId{static_cast<std::uint32_t>(next), 0};
      NoiseKey noise = r.request.noise;
      if (other_noise) noise.key ^= 0x9E3779B97F4A7C15U;
      drafter.start({id, r.request.prompt, {}, noise}, now);
      observe(drafter, id, r, 0, 1);
      drafter.commit(id, std::span(r.tokens).first(1), now);
      active.push_back({&r, id, 1, std::vector<TokenId>(limits.max_tokens),
                        std::vector<std::int32_t>(limits.max_tokens),
                        std::vector<float>(limits.max_tokens),
                        std::vector<TokenId>(seconds ? limits.max_tokens : 0), false});
    }
    slots.clear();
    for (Active& a : active)
      slots.push_back({.id = a.id,
                       .limits = limits,
                       .output = {a.tokens, a.parents, a.scores},
                       .runners_up = a.runners_up});
    drafter.propose(slots, now);
    for (std::size_t i = 0; i < active.size(); ++i) {
      Active& a = active[i];
      const std::span<const TokenId> rest = std::span(a.response->tokens).subspan(a.at);
      const double right = tally.second;
      const std::size_t accepted = judge(slots[i], rest, tally);
      if (a.second && slots[i].count > 0) {
        tally.after += 1;
        tally.after_accepted += accepted > 0 ? 1 : 0;
      }
      a.second = tally.second > right;
      const std::size_t committed = std::min(rest.size(), accepted + 1);
      observe(drafter, a.id, *a.response, a.at, a.at + committed);
      drafter.commit(a.id, rest.first(committed), now);
      a.at += committed;
      tally.steps += 1;
      tally.tokens += static_cast<double>(committed);
      tally.drafted += slots[i].count;
      tally.drafts += slots[i].count > 0 ? 1 : 0;
      if (a.at == a.response->tokens.size()) drafter.finish(a.id, now);
    }
    std::erase_if(active, [](const Active& a) { return a.at == a.response->tokens.size(); });
    now += 1e-3;
  }
  return tally;
}

void print(const char* name, int paths, const Tally& t) {
  std::printf("%-24s %5d  %9.2f  %7.2f  %5.1f %% ", name, paths, t.tokens / t.steps,
              t.drafted / t.steps, 100 * t.drafts / t.steps);
  for (std::size_t i = 0; i < t.judged.size(); ++i) {
    if (t.judged[i] == 0) break;
    std::printf(" %.3f", t.accepted[i] / t.judged[i]);
  }
  if (t.after > 0)
    std::printf("; second choices %.3f, the token after them %.3f", t.second / t.refuted,
                t.after_accepted / t.after);
  std::printf("\n");
}

}  // namespace

void bench_acceptance(SpeculationSetup& setup) {
  double bits = 0;
  const std::vector<Response> responses = generate(setup, bits);
  std::size_t tokens = 0;
  for (const Response& r : responses) tokens += r.tokens.size();
  std::printf(
      "%zu prompts x %d samples, %zu tokens, %.2f bits a token; drafts of up to %d tokens a path\n",
      setup.prompts.size(), setup.options.samples, tokens, bits, setup.options.max_length);
  std::printf(
      "drafter                  paths  tokens/step  drafted  drafts   P(position | those before "
      "accepted), 1 to %d\n",
      setup.options.max_length);
  const int batch = setup.largest_batch;
  const auto head = [&](int paths, draft::DraftNoise noise) {
    return setup.head_drafter(batch, setup.options.max_tokens, paths, noise);
  };
  for (const int paths : {1, 2, 4}) {
    const int length = setup.options.max_length;
    const draft::DraftLimits limits{length * paths, length, paths};
    const auto of = [&](const char* name, const std::unique_ptr<draft::Drafter>& drafter,
                        bool grouped, bool other_noise = false) {
      print(name, paths, replay(*drafter, responses, batch, limits, grouped, other_noise));
    };
    const auto model = [&](draft::DraftNoise noise) {
      return setup.model_drafter(batch, setup.options.max_tokens, paths, noise);
    };
    const auto named = [&](const char* name) {
      return setup.drafter(name, batch, setup.options.max_tokens);
    };
    of("model, shared noise", model(draft::DraftNoise::shared), true);
    of("model, greedy", model(draft::DraftNoise::greedy), true);
    of("model, independent", model(draft::DraftNoise::shared), true, true);
    if (paths == 1) of("n-gram", named("ngram"), true);
    of("suffix tree, alone", named("suffix"), false);
    of("suffix tree, grouped", named("suffix"), true);
    if (!setup.head) continue;
    of("head, shared noise", head(paths, draft::DraftNoise::shared), true);
    of("head, greedy", head(paths, draft::DraftNoise::greedy), true);
  }
  if (!setup.head) return;
  // EAGLE's tree: 60 tokens with the last committed one, ten of a level expanded.
  const draft::DraftLimits tree{59, setup.options.max_length, 10};
  for (const auto noise : {draft::DraftNoise::shared, draft::DraftNoise::greedy}) {
    const auto drafter = head(tree.paths, noise);
    print(noise == draft::DraftNoise::shared ? "head, noise, 60" : "head, greedy, 60", tree.paths,
          replay(*drafter, responses, batch, tree, true));
  }
}

}  // namespace paceline::bench
