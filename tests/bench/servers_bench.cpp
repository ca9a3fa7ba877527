// Draft servers: what they cost, and what their drafts are worth.
//   mpirun -n 2 bench_servers                 update and fetch: two ranks, each with a server
//   bench_servers --acceptance FILE           against one tree in process, as staleness grows
//   bench_servers --groups                    16 responses a prompt and 512: trees and tables
// FILE: see tests/bench/response_texts.hpp. Without one the texts are synthetic.
#include <fmt/format.h>
#include <malloc.h>
#include <array>

#include <algorithm>
#include <ctime>
#include <deque>
#include <memory>
#include <string_view>
#include <thread>

#include "runtime/core/clock.hpp"
#include "runtime/core/quantile.hpp"
#include "runtime/draft/suffix_drafter.hpp"
#include "runtime/fabric/ucx_fabric.hpp"
#include "runtime/policy/schedule/request_order.hpp"
#include "runtime/policy/schedule/request_table.hpp"
#include "runtime/protocol/messages.hpp"
#include "runtime/roles/draft_server.hpp"
#include "runtime/speculation/draft_client.hpp"
#include "tests/bench/machine.hpp"
#include "tests/bench/response_texts.hpp"
#include "tests/runtime/roles/simulated_mailbox.hpp"

namespace {

using namespace paceline;
using bench::Responses;
using bench::Text;

constexpr int kSiblings = 16;

double cpu_now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

class RealTime final : public Clock {
 public:
  [[nodiscard]] double now() const override { return bench::now(); }
};

std::unique_ptr<speculation::DraftClient> make_client(std::unique_ptr<draft::Drafter> drafter,
                                                      Mailbox& mailbox, const Clock& clock,
                                                      std::vector<int> servers, int rank,
                                                      int exchange_tokens) {
  return std::make_unique<speculation::DraftClient>(
      std::move(drafter), mailbox, clock,
      speculation::DraftClientOptions{.servers = std::move(servers),
                                      .name = static_cast<draft::LogClient>(rank),
                                      .vocab = INT32_MAX,
                                      .exchange_tokens = exchange_tokens});
}

// Update and fetch.

/// What a message to the other rank's server and its answer take where the asker waits for it: of
/// 64 groups, with nothing new, or after an update of 32 tokens of each; of none, a round trip.
void round_trips(const fabric::MpiEnvironment& mpi) {
  constexpr std::uint32_t kGroups = 64, kTokens = 32;
  constexpr int kTrips = 300;
  const Address::Port ports[] = {Address::Port::role, Address::Port::draft_server};
  fabric::UcxFabric network(mpi, ports);
  network.connect();
  const RealTime clock;
  Mailbox& mailbox = network.mailbox(Address::Port::role);
  Mailbox& box = network.mailbox(Address::Port::draft_server);
  std::jthread server([&](const std::stop_token& stopped) {
    roles::DraftServer role(box, clock, {});
    protocol::drive(role, box, clock, [&] { return !stopped.stop_requested(); });
  });
  const Address other{1, Address::Port::draft_server};
  if (mpi.rank() == 0) {
    for (const int what : {0, 1, 2}) {
      std::vector<double> seconds;
      for (int trip = 0; trip < kTrips; ++trip) {
        const double before = clock.now();
        protocol::DraftFetch fetch{7, 1, {}};
        protocol::DraftUpdate update{8, {}, {}};
        for (std::uint32_t g = 0; what > 0 && g < kGroups; ++g) {
          fetch.places.push_back({.group = g});
          update.stretches.push_back(
              {{g, 0}, trip * std::uint64_t{kTokens}, g * kTokens, kTokens, 0, 0});
        }
        update.tokens.assign(kGroups * kTokens, 5);
        if (what == 2) mailbox.send(other, protocol::encode(update));
        mailbox.send(other, protocol::encode(fetch));
        std::optional<Envelope> answer;
        while (!(answer = mailbox.poll())) mailbox.wait(1);
        seconds.push_back(clock.now() - before);
      }
      const char* const names[] = {"fetch of no groups", "fetch of 64 groups, nothing new",
                                   "update of 64 x 32 tokens, and their fetch"};
      fmt::print("{:<42} {:>8.1f} us, {:.1f} to {:.1f} between the tenths\n", names[what],
                 1e6 * quantile(seconds, 0.5), 1e6 * quantile(seconds, 0.1),
                 1e6 * quantile(seconds, 0.9));
    }
  }
  mpi.barrier();
  server.request_stop();
  box.wake();
  server.join();
  network.close();
}

/// 256 groups of 16, half of each on either rank, so that every rank fetches half of what is said.
/// A step commits 3 tokens to each of 64 requests, as drafts do, and takes 20 ms; the others wait.
void latency(const fabric::MpiEnvironment& mpi, int exchange_tokens, int steps) {
  constexpr int kGroups = 256, kOwn = kSiblings / 2, kTokens = 3;
  constexpr double kStep = 0.02;
  const Address::Port ports[] = {Address::Port::role, Address::Port::draft_server};
  fabric::UcxFabric network(mpi, ports);
  network.connect();
  const RealTime clock;
  Mailbox& mailbox = network.mailbox(Address::Port::role);
  Mailbox& box = network.mailbox(Address::Port::draft_server);
  std::size_t server_bytes = 0;
  double server_cpu = 0;
  std::jthread server([&](const std::stop_token& stopped) {
    roles::DraftServer role(box, clock, {});
    protocol::drive(role, box, clock, [&] { return !stopped.stop_requested(); });
    server_bytes = role.logs().bytes();
    server_cpu = cpu_now();
  });
  ThreadPool pool(1);
  const auto client =
      make_client(std::make_unique<draft::SuffixDrafter>(draft::SuffixDrafterOptions{}, pool),
                  mailbox, clock, {0, 1}, mpi.rank(), exchange_tokens);
  std::vector<Text> texts;
  const auto length = static_cast<std::size_t>(steps * kTokens);
  for (int g = 0; g < kGroups; ++g) {
    std::vector<Text> group = bench::make_group(kSiblings, length, 60, g);
    for (int s = 0; s < kOwn; ++s) texts.push_back(std::move(group[mpi.rank() * kOwn + s]));
  }
  const auto id = [&](int g, int s) {
    return RequestId{static_cast<std::uint32_t>(g),
                     static_cast<std::uint32_t>(mpi.rank() * kOwn + s)};
  };
  for (int g = 0; g < kGroups; ++g) {
    for (int s = 0; s < kOwn; ++s) client->start({id(g, s), Text{1}, {}, {}, 0, true}, clock.now());
  }
  mpi.barrier();
  std::vector<double> told, received;
  std::size_t tokens = 0;
  double commit_cpu = 0;
  for (int step = 0; step < steps; ++step) {
    const double end = clock.now() + kStep;
    const double before = cpu_now();
    for (int g = 0; g < kGroups; ++g) {
      for (int s = 0; s < kOwn; ++s) {
        const Text& text = texts[g * kOwn + s];
        client->commit(id(g, s), std::span(text).subspan(step * kTokens, kTokens), clock.now());
        tokens += kTokens;
      }
    }
    const double committed = cpu_now();
    commit_cpu += committed - before;
    const std::uint64_t bytes = client->counts().update_bytes;
    client->told();
    if (client->counts().update_bytes > bytes) told.push_back(cpu_now() - committed);
    double receiving = 0;
    while (true) {
      while (const std::optional<Envelope> envelope = mailbox.poll()) {
        const double at = cpu_now();
        client->receive(envelope->from.rank, envelope->bytes);
        receiving += cpu_now() - at;
      }
      const double left = end - clock.now();
      if (left <= 0) break;
      mailbox.wait(left);
    }
    if (receiving > 0) received.push_back(receiving);
  }
  mpi.barrier([&] {
    while (mailbox.poll()) {
    }
  });
  server.request_stop();
  box.wake();
  server.join();
  if (mpi.rank() == 0) {
    const speculation::DraftClient::Counts& c = client->counts();
    const auto per = [](double what, std::uint64_t of) {
      return of == 0 ? 0 : what / static_cast<double>(of);
    };
    double all_received = 0;
    for (const double r : received) all_received += r;
    fmt::print(
        "{:>8} {:>9} {:>12.2f} {:>13.2f} {:>9.2f} {:>12.2f} {:>11.2f} {:>12.2f} {:>11} {:>13.0f}\n",
        exchange_tokens, told.size(), per(static_cast<double>(c.update_bytes), tokens),
        per(static_cast<double>(c.fetch_bytes), c.heard), 1e3 * per(c.fetch_seconds, c.fetches),
        1e3 * quantile(told, 0.5), 1e6 * per(all_received, c.heard), 1e6 * per(commit_cpu, tokens),
        c.most_behind, 1e9 * per(server_cpu, tokens));
  }
  network.close();
}

int latencies(int argc, char** argv) {
  const fabric::MpiEnvironment mpi(&argc, &argv);
  if (mpi.size() != 2) {
    fmt::print(stderr, "expected two ranks: mpirun -n 2 bench_servers\n");
    return 64;
  }
  round_trips(mpi);
  if (mpi.rank() == 0) {
    fmt::print(
        "two servers, 256 groups of 16, half of each on either rank; 3 tokens a step\n"
        "a request: a step's worth of 2,048 requests is some 32 steps of 64\n"
        "exchange exchanges update bytes  fetch bytes    answer     telling  take in     own tree  "
        "  "
        "behind    the server\n"
        "  tokens            a token      a token        ms      ms     us a token   us a token   "
        "tokens   ns a token\n");
  }
  for (const int tokens : {3, 8, 32, 128}) latency(mpi, tokens, 100);
  return 0;
}

// Acceptance.

struct Verifier {
  std::unique_ptr<roles::test::SimulatedMailbox> mailbox;
  std::unique_ptr<draft::Drafter> drafter;
  speculation::DraftClient* client = nullptr;  ///< the drafter, where there are servers
  std::deque<RequestId> waiting;
  std::map<RequestId, std::size_t> running;  ///< tokens said
};

class Frozen final : public Clock {
 public:
  [[nodiscard]] double now() const override { return 0; }
};

struct Drafted {
  double tokens = 0, steps = 0, heard = 0, bytes = 0;
  std::uint64_t behind = 0;
};

/// The groups' responses by `verifiers`, `batch` at a time together, which have siblings in turn.
/// exchange_tokens 0: no server.
Drafted decode(const std::vector<Responses>& groups, int verifiers, int batch,
               int exchange_tokens) {
  constexpr int kLength = 8;
  const Frozen clock;
  roles::test::Post post;
  ThreadPool pool(1);
  std::vector<std::unique_ptr<roles::test::SimulatedMailbox>> boxes;
  std::vector<std::unique_ptr<roles::DraftServer>> servers;
  for (int s = 0; s < 2; ++s) {
    boxes.push_back(std::make_unique<roles::test::SimulatedMailbox>(
        post, Address{s, Address::Port::draft_server}));
    servers.push_back(std::make_unique<roles::DraftServer>(*boxes.back(), clock,
                                                           draft::LogLimits{.samples = kSiblings}));
  }
  std::vector<Verifier> all(verifiers);
  for (int v = 0; v < verifiers; ++v) {
    Verifier& verifier = all[v];
    verifier.mailbox =
        std::make_unique<roles::test::SimulatedMailbox>(post, Address{v, Address::Port::role});
    verifier.drafter = std::make_unique<draft::SuffixDrafter>(draft::SuffixDrafterOptions{}, pool);
    if (exchange_tokens == 0) continue;
    auto client = make_client(std::move(verifier.drafter), *verifier.mailbox, clock, {0, 1}, v,
                              exchange_tokens);
    verifier.client = client.get();
    verifier.drafter = std::move(client);
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::size_t s = 0; s < groups[g].texts.size(); ++s) {
      all[s % verifiers].waiting.push_back(
          {static_cast<std::uint32_t>(g), static_cast<std::uint32_t>(s)});
    }
  }
  Drafted drafted;
  std::vector<TokenId> tokens(static_cast<std::size_t>(batch) * kLength);
  std::vector<std::int32_t> parents(tokens.size());
  std::vector<float> scores(tokens.size());
  for (bool works = true; works;) {
    works = false;
    for (Verifier& v : all) {
      while (static_cast<int>(v.running.size()) < batch / verifiers && !v.waiting.empty()) {
        const RequestId id = v.waiting.front();
        v.waiting.pop_front();
        const Text prompt = groups[id.prompt].prompt.empty() ? Text{0} : groups[id.prompt].prompt;
        v.drafter->start({id, prompt, {}, {}, 0, true}, 0);
        v.running.emplace(id, 0);
      }
      if (v.running.empty()) continue;
      works = true;
      std::vector<draft::DraftSlot> slots;
      for (const auto& [id, said] : v.running) {
        const std::size_t at = slots.size() * kLength;
        slots.push_back(
            {id,
             {kLength, kLength, 1},
             {std::span(tokens).subspan(at, kLength), std::span(parents).subspan(at, kLength),
              std::span(scores).subspan(at, kLength)}});
      }
      v.drafter->propose(slots, 0, nullptr);
      for (const draft::DraftSlot& slot : slots) {
        const auto running = v.running.find(slot.id);
        const Text& text = groups[slot.id.prompt].texts[slot.id.sample];
        const auto next = std::span(text).subspan(running->second);
        const std::size_t count = std::min<std::size_t>(
            next.size(), bench::accepted(slot.output, slot.count, next) + std::size_t{1});
        v.drafter->commit(slot.id, next.first(count), 0);
        running->second += count;
        drafted.tokens += static_cast<double>(count);
        ++drafted.steps;
        if (running->second < text.size()) continue;
        v.drafter->finish(slot.id, 0);
        v.running.erase(running);
      }
      v.drafter->told();
    }
    for (const auto& server : servers) server->turn();
    for (Verifier& v : all) {
      while (const std::optional<Envelope> envelope = v.mailbox->poll())
        v.client->receive(envelope->from.rank, envelope->bytes);
    }
  }
  for (const Verifier& v : all) {
    if (v.client == nullptr) continue;
    const speculation::DraftClient::Counts& counts = v.client->counts();
    drafted.heard += static_cast<double>(counts.heard);
    drafted.bytes += static_cast<double>(counts.update_bytes + counts.fetch_bytes);
    drafted.behind = std::max(drafted.behind, counts.most_behind);
  }
  return drafted;
}

int acceptance(const std::string& path) {
  std::vector<Responses> groups = bench::read_groups(path);
  if (groups.empty()) {
    fmt::print("{} is absent: synthetic texts, 60 % of them shared\n", path);
    for (unsigned g = 0; g < 24; ++g)
      groups.push_back({{1}, bench::make_group(kSiblings, 512, 60, g)});
  }
  constexpr int kBatch = 64;
  double texts = 0;
  for (const Responses& group : groups) texts += static_cast<double>(group.texts.size());
  const Drafted one = decode(groups, 1, kBatch, 0);
  fmt::print("{} groups, {:.0f} responses, {:.0f} tokens; {} requests at a time, chains of 8\n",
             groups.size(), texts, one.tokens, kBatch);
  const auto print = [&](const std::string& what, const Drafted& d) {
    fmt::print("{:<34} {:>11.2f} {:>10.3f} {:>14.1f} {:>9}\n", what, d.tokens / d.steps,
               (d.tokens / d.steps - 1) / (one.tokens / one.steps - 1), d.bytes / d.tokens,
               d.behind);
  };
  fmt::print("{:<34} {:>11} {:>10} {:>14} {:>9}\n", "", "tokens/step", "of drafts", "bytes a token",
             "behind");
  print("one tree, in process", one);
  for (const int verifiers : {4, 16}) {
    for (const int tokens : {1, 8, 32, 64, 128, 256, 512})
      print(fmt::format("{} verifiers, exchange at {} tokens", verifiers, tokens),
            decode(groups, verifiers, kBatch, tokens));
    print(fmt::format("{} verifiers, no server", verifiers), decode(groups, verifiers, kBatch, 0));
  }
  return 0;
}

// Sizes of groups.

void trees(std::uint32_t groups, std::uint32_t siblings, std::size_t tokens) {
  constexpr int kBatch = 256, kLength = 8;
  const Frozen clock;
  ThreadPool pool(1);
  draft::SuffixDrafterOptions options;
  options.store.max_group_bytes = std::size_t{1} << 30;
  draft::SuffixDrafter drafter(options, pool);
  draft::GroupLogs logs({});
  std::vector<std::vector<Text>> texts;
  for (std::uint32_t g = 0; g < groups; ++g)
    texts.push_back(bench::make_group(static_cast<int>(siblings), tokens, 60, g));
  for (std::uint32_t g = 0; g < groups; ++g) {
    for (std::uint32_t s = 0; s < siblings; ++s)
      drafter.start({{g, s}, Text{1}, {}, {}, 0, true}, 0);
  }
  double append = 0;
  double log = 0;
  for (std::size_t at = 0; at < tokens; at += 32) {
    for (std::uint32_t g = 0; g < groups; ++g) {
      for (std::uint32_t s = 0; s < siblings; ++s) {
        const auto next =
            std::span(texts[g][s]).subspan(at, std::min<std::size_t>(32, tokens - at));
        double before = cpu_now();
        drafter.commit({g, s}, next, 0);
        append += cpu_now() - before;
        before = cpu_now();
        logs.update({g, s}, at, next, s % 8, 0);
        log += cpu_now() - before;
      }
    }
  }
  const double all = static_cast<double>(groups) * siblings * static_cast<double>(tokens);
  std::vector<TokenId> out(kBatch * kLength);
  std::vector<std::int32_t> parents(out.size());
  std::vector<float> scores(out.size());
  std::vector<double> proposing;
  for (std::uint32_t round = 0; round < 20; ++round) {
    std::vector<draft::DraftSlot> slots;
    for (std::uint32_t i = 0; i < kBatch; ++i) {
      const std::uint32_t n = (i * 2 + round) % (groups * siblings);
      slots.push_back({{n / siblings, n % siblings},
                       {kLength, kLength, 1},
                       {std::span(out).subspan(i * kLength, kLength),
                        std::span(parents).subspan(i * kLength, kLength),
                        std::span(scores).subspan(i * kLength, kLength)}});
    }
    const double before = cpu_now();
    drafter.propose(slots, 0, nullptr);
    proposing.push_back(cpu_now() - before);
  }
  std::vector<draft::LoggedText> said;
  double before = cpu_now();
  for (std::uint32_t g = 0; g < groups; ++g) {
    draft::LogPlace place{.group = g};
    logs.fetch(place, 99, SIZE_MAX, 0, said);
  }
  const double fetch = cpu_now() - before;

  // The coordinator's.
  const std::size_t held = mallinfo2().uordblks;
  std::vector<Trajectory> work;
  for (std::uint32_t g = 0; g < 256 * 16 / siblings * 2; ++g) {
    for (std::uint32_t s = 0; s < siblings; ++s) {
      Trajectory& t = work.emplace_back();
      t.id = {g, s};
    }
  }
  const std::size_t requests = work.size();
  policy::RequestTable table(std::move(work), std::make_unique<policy::ContextAware>(4096, 1), 0,
                             4096);
  std::vector<RequestId> leased;
  before = cpu_now();
  for (std::size_t i = 0; i < requests; ++i) {
    const policy::Slot slot{static_cast<int>(i % 8), 8};
    leased.push_back(*table.order().next(slot));
    (void)table.lease(leased.back(), slot.index, 4096);
    for (std::uint32_t n = 1; n < 10; ++n)
      table.grew(std::array{RequestLength{leased.back(), n * 100}});
  }
  const std::size_t table_bytes = mallinfo2().uordblks - held;
  for (std::size_t i = 0; i < requests; ++i) table.finished(leased[i], static_cast<int>(i % 8));
  const double bookkeeping = cpu_now() - before;
  fmt::print(
      "{:>4} x {:<4} {:>10.2f} {:>14.1f} {:>13.2f} {:>14.0f} {:>11.2f} {:>12.1f} {:>12.0f} "
      "{:>10.0f}\n",
      groups, siblings, 1e6 * append / all, static_cast<double>(drafter.bytes()) / all,
      1e6 * quantile(proposing, 0.5) / kBatch, 1e9 * log / all,
      static_cast<double>(logs.bytes()) / all, 1e9 * fetch / all,
      static_cast<double>(table_bytes) / static_cast<double>(requests),
      1e9 * bookkeeping / static_cast<double>(requests));
}

int group_sizes() {
  fmt::print(
      "synthetic texts, 60 % shared, 2,048 tokens a response, told 32 at a time; CPU time\n"
      "             append,     memory of      a draft,    the server:     memory,    catching up, "
      "  request table\n"
      "groups x n   us a token  trees, B a token  us     update, ns a token  B a token  ns a token "
      "  B a request  ns\n");
  trees(32, 16, 2048);
  trees(1, 512, 2048);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (argc == 1) return latencies(argc, argv);
  if (argc == 3 && what == "--acceptance") return acceptance(argv[2]);
  if (argc == 2 && what == "--groups") return group_sizes();
  fmt::print(stderr, "usage: bench_servers [--acceptance FILE | --groups]\n");
  return 64;
}
