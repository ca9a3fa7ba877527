#include "app/assembly/draft_servers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>

#include "app/assembly/chaos.hpp"
#include "app/assembly/communicator.hpp"
#include "app/assembly/job.hpp"
#include "app/terminal/terminal.hpp"
#include "io/run/run_history.hpp"
#include "runtime/core/counted.hpp"
#include "runtime/draft/suffix_tree.hpp"
#include "runtime/policy/place/draft_servers.hpp"
#include "runtime/roles/draft_server.hpp"

namespace paceline::app {
namespace {

/// The suffix drafter's setting; null: none is configured.
const io::DrafterSetting* suffix_drafter(const Inputs& inputs) {
  return inputs.config.speculation.find(io::DrafterMethod::suffix);
}

bool is_beside(const Inputs& inputs) {
  return inputs.config.speculation.history == io::SpeculationSection::kBeside;
}

/// Path where the server looks for runs of earlier steps. Call only if speculation.history is set.
std::string history_path(const Inputs& inputs) {
  if (!is_beside(inputs)) return *inputs.config.speculation.history;
  return std::filesystem::path(inputs.config.output.directory + "/..").lexically_normal();
}

/// Limit on the tokens of earlier responses that are read for one prompt, if a rank works on
/// max_batch prompts and half of its memory for suffix trees is for these responses.
std::size_t most_history(const Inputs& inputs) {
  return suffix_drafter(inputs)->max_memory / 2 / inputs.config.engine.max_batch /
         draft::SuffixTree::kTokenBytes;
}

/// Makes the reader of earlier responses to the prompts that this server serves.
std::unique_ptr<io::RunHistory> read_history(const Inputs& inputs,
                                             const std::vector<std::string>& contents,
                                             const std::vector<int>& servers, int rank) {
  const auto own = std::find(servers.begin(), servers.end(), rank) - servers.begin();
  const std::size_t all = contents.size();
  return std::make_unique<io::RunHistory>(
      io::HistoryOptions{.path = history_path(inputs),
                         .output = inputs.config.output.directory,
                         .vocabulary = static_cast<std::uint64_t>(inputs.target.config.vocab),
                         .most_tokens = most_history(inputs)},
      contents,
      io::HistoryReader{static_cast<std::uint32_t>(own),
                        static_cast<std::uint32_t>(servers.size())},
      [](const std::string& text) { say("warning: speculation.history: {}", text); },
      [all](std::size_t runs, std::size_t prompts) {
        if (runs > 0)
          say("suffix trees begin with responses of {}, to {} of {}", counted(runs, "earlier run"),
              prompts, counted(all, "prompt"));
      });
}

}  // namespace

DraftServers place_draft_servers(const Inputs& inputs, const Machine& machine, int groups) {
  DraftServers servers;
  const io::DrafterSetting* suffix = suffix_drafter(inputs);
  const bool history = inputs.config.speculation.history.has_value();
  if (suffix == nullptr || (!suffix->servers && groups < 2 && !history)) return servers;
  std::vector<int> nodes;
  for (const fabric::RankFacts& rank : machine.ranks) nodes.push_back(rank.node);
  servers.ranks = policy::place_draft_servers(nodes, suffix->servers);
  if (servers.ranks.empty()) return servers;
  servers.history = history;
  const bool one = servers.ranks.size() == 1;
  servers.explanation = fmt::format(
      "{} draft server{} on rank{} {}: {} (setting: servers of the suffix drafter)",
      servers.ranks.size(), one ? "" : "s", one ? "" : "s", fmt::join(servers.ranks, ", "),
      suffix->servers ? "speculation.drafters asks for this number"
      : groups < 2    ? "for responses of earlier steps"
                      : "one on each node serves responses of siblings in other groups");
  return servers;
}

bool hosts_draft_server(const Plan& plan, int rank) {
  const std::vector<int>& hosts = plan.draft_servers.ranks;
  return std::find(hosts.begin(), hosts.end(), rank) != hosts.end();
}

void warn_of_no_history(const Inputs& inputs) {
  if (!inputs.config.speculation.history || is_beside(inputs)) return;
  const std::string path = history_path(inputs);
  if (!std::filesystem::exists(path))
    say("warning: speculation.history: {}: there is no such file or directory; suffix trees "
        "begin without earlier responses",
        path);
}

ServedPrompts served_prompts(const fabric::MpiEnvironment& mpi, const Inputs& inputs,
                             const Plan& plan) {
  ServedPrompts served;
  if (plan.draft_servers.history) {
    for (const Prompt& prompt : inputs.prompts.prompts)
      served.contents.push_back(content_uid(prompt.tokens));
    broadcast(mpi, served.contents);
  }
  if (inputs.sizes.own_samples && !plan.draft_servers.ranks.empty()) {
    served.samples = own_samples(inputs);
    broadcast(mpi, served.samples);
  }
  return served;
}

std::vector<std::uint32_t> own_samples(const Inputs& inputs) {
  std::vector<std::uint32_t> samples;
  if (!inputs.sizes.own_samples) return samples;
  for (const Prompt& prompt : inputs.prompts.prompts) samples.push_back(inputs.samples_of(prompt));
  return samples;
}

draft::LogLimits draft_log_limits(const Inputs& inputs, const std::vector<std::uint32_t>& samples) {
  return {.max_bytes = suffix_drafter(inputs)->max_memory,
          .samples = static_cast<std::uint32_t>(inputs.config.prompts.samples),
          .own_samples = samples};
}

speculation::DraftClientOptions draft_client_options(const Inputs& inputs, const Plan& plan,
                                                     std::uint32_t epoch, int rank) {
  return {.servers = plan.draft_servers.ranks,
          .name = draft::LogClient{epoch} << 32 | static_cast<std::uint32_t>(rank),
          .vocab = inputs.target.config.vocab};
}

DraftServerThread::DraftServerThread(const fabric::MpiEnvironment& mpi, const Inputs& inputs,
                                     const Plan& plan, const ServedPrompts& prompts,
                                     fabric::UcxFabric& network, const Clock& clock) {
  if (!hosts_draft_server(plan, mpi.rank())) return;
  mailbox_ = &network.mailbox(Address::Port::draft_server);
  thread_ =
      std::jthread([this, &mpi, &inputs, &plan, &prompts, &clock](const std::stop_token& stopped) {
        try {
          const auto stalling =
              misbehaving(inputs.config.test, inputs.config.test.faults.draft_servers, *mailbox_,
                          [](double seconds) {
                            std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
                          });
          Mailbox& mailbox = stalling ? *stalling : *mailbox_;
          std::unique_ptr<io::RunHistory> history;
          if (inputs.config.speculation.history)
            history = read_history(inputs, prompts.contents, plan.draft_servers.ranks, mpi.rank());
          roles::DraftServer server(mailbox, clock, draft_log_limits(inputs, prompts.samples),
                                    history.get(), plan.draft_servers.ranks);
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
