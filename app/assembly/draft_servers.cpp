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
const io::DrafterSetting* suffix_drafter(const Inputs& inputs) {
  return inputs.config.speculation.find(io::DrafterMethod::suffix);
}

}  // namespace

DraftServers place_draft_servers(const Inputs& inputs, const Machine& machine, int groups) {
  DraftServers servers;
  const io::DrafterSetting* suffix = suffix_drafter(inputs);
  if (suffix == nullptr || (!suffix->servers && groups < 2)) return servers;
  std::vector<int> nodes;
  for (const fabric::RankFacts& rank : machine.ranks) nodes.push_back(rank.node);
  servers.ranks = policy::place_draft_servers(nodes, suffix->servers);
  if (servers.ranks.empty()) return servers;
  const bool one = servers.ranks.size() == 1;
  servers.explanation = fmt::format(
      "{} draft server{} on rank{} {}: {} (servers of the suffix drafter)", servers.ranks.size(),
      one ? "" : "s", one ? "" : "s", fmt::join(servers.ranks, ", "),
      suffix->servers ? "as asked for" : "one a node tells groups what siblings elsewhere said");
  return servers;
}

bool hosts_draft_server(const Plan& plan, int rank) {
  const std::vector<int>& hosts = plan.draft_servers.ranks;
  return std::find(hosts.begin(), hosts.end(), rank) != hosts.end();
}

draft::LogLimits draft_log_limits(const Inputs& inputs) {
  return {.max_bytes = suffix_drafter(inputs)->max_memory,
          .samples = static_cast<std::uint32_t>(inputs.config.prompts.samples)};
}

speculation::DraftClientOptions draft_client_options(const Inputs& inputs, const Plan& plan,
                                                     std::uint32_t epoch, int rank) {
  return {.servers = plan.draft_servers.ranks,
          .name = draft::LogClient{epoch} << 32 | static_cast<std::uint32_t>(rank),
          .vocab = inputs.target.config.vocab};
}

DraftServerThread::DraftServerThread(const fabric::MpiEnvironment& mpi, const Inputs& inputs,
                                     const Plan& plan, fabric::UcxFabric& network,
                                     const Clock& clock) {
  if (!hosts_draft_server(plan, mpi.rank())) return;
  mailbox_ = &network.mailbox(Address::Port::draft_server);
  thread_ = std::jthread([this, &mpi, &inputs, &clock](const std::stop_token& stopped) {
    try {
      const auto stalling =
          misbehaving(inputs.config.test, inputs.config.test.faults.draft_servers, *mailbox_,
                      [](double seconds) {
                        std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
                      });
      Mailbox& mailbox = stalling ? *stalling : *mailbox_;
      roles::DraftServer server(mailbox, clock, draft_log_limits(inputs));
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
