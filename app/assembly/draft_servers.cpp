#include "app/assembly/draft_servers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

#include "app/assembly/chaos.hpp"
#include "app/assembly/job.hpp"
#include "runtime/core/error.hpp"
#include "runtime/policy/place/draft_servers.hpp"
#include "runtime/roles/draft_server.hpp"

namespace paceline::app {
namespace {

/// The suffix drafter's setting; null: none is configured.
const io::DrafterSetting* suffix_drafter(const Setup& setup) {
  const auto at = std::find_if(setup.drafters.begin(), setup.drafters.end(), [](const auto& d) {
    return d.setting.method == io::DrafterMethod::suffix;
  });
  return at == setup.drafters.end() ? nullptr : &at->setting;
}

}  // namespace

void place_draft_servers(Setup& setup) {
  setup.draft_servers.clear();
  const io::DrafterSetting* suffix = suffix_drafter(setup);
  if (suffix == nullptr || (!suffix->servers && setup.layout.groups() < 2)) return;
  std::vector<int> nodes;
  for (const fabric::RankFacts& rank : setup.facts) nodes.push_back(rank.node);
  setup.draft_servers = policy::place_draft_servers(nodes, suffix->servers);
  if (setup.draft_servers.empty()) return;
  const bool one = setup.draft_servers.size() == 1;
  setup.layout.explanation.push_back(fmt::format(
      "{} draft server{} on rank{} {}: {} (servers of the suffix drafter)",
      setup.draft_servers.size(), one ? "" : "s", one ? "" : "s",
      fmt::join(setup.draft_servers, ", "),
      suffix->servers ? "as asked for" : "one a node tells groups what siblings elsewhere said"));
}

bool hosts_draft_server(const Setup& setup, int rank) {
  return std::find(setup.draft_servers.begin(), setup.draft_servers.end(), rank) !=
         setup.draft_servers.end();
}

draft::LogLimits draft_log_limits(const Setup& setup) {
  return {.max_bytes = suffix_drafter(setup)->max_memory,
          .samples = static_cast<std::uint32_t>(setup.config.prompts.samples)};
}

speculation::DraftClientOptions draft_client_options(const Setup& setup, std::uint32_t epoch,
                                                     int rank) {
  return {.servers = setup.draft_servers,
          .name = draft::LogClient{epoch} << 32 | static_cast<std::uint32_t>(rank),
          .vocab = setup.model.vocab};
}

DraftServerThread::DraftServerThread(const fabric::MpiEnvironment& mpi, const Setup& setup,
                                     fabric::UcxFabric& network, const Clock& clock) {
  if (!hosts_draft_server(setup, mpi.rank())) return;
  mailbox_ = &network.mailbox(Address::Port::draft_server);
  thread_ = std::jthread([this, &mpi, &setup, &clock](const std::stop_token& stopped) {
    try {
      const auto stalling =
          misbehaving(setup, setup.config.test.faults.draft_servers, *mailbox_, [](double seconds) {
            std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
          });
      Mailbox& mailbox = stalling ? *stalling : *mailbox_;
      roles::DraftServer server(mailbox, clock, draft_log_limits(setup));
      protocol::drive(server, mailbox, clock, [&] { return !stopped.stop_requested(); });
    } catch (...) {
      abort_job(mpi, current_fault());
    }
  });
}

DraftServerThread::~DraftServerThread() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  mailbox_->wake();
}

}  // namespace paceline::app
