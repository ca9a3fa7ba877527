// The draft servers of a job: the choice of their ranks, and the thread of one server.
#pragma once

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "app/assembly/plan.hpp"
#include "runtime/core/clock.hpp"
#include "runtime/draft/group_log.hpp"
#include "runtime/fabric/mpi_environment.hpp"
#include "runtime/fabric/ucx_fabric.hpp"
#include "runtime/speculation/draft_client.hpp"

namespace paceline::app {

/// Chooses the ranks that host a draft server. `groups`: number of verifier groups. Throws
/// UsageError if more servers are asked for than there are ranks.
[[nodiscard]] DraftServers place_draft_servers(const Inputs& inputs, const Machine& machine,
                                               int groups);

[[nodiscard]] bool hosts_draft_server(const Plan& plan, int rank);

/// Warns the user if the path of speculation.history does not exist.
void warn_of_no_history(const Inputs& inputs);

/// Facts that draft servers need about the prompts.
struct ServedPrompts {
  /// [prompts] content_uid() of each; empty: servers do not serve responses of earlier steps.
  std::vector<std::string> contents;
  std::vector<std::uint32_t> samples;  ///< own_samples()
};

/// Gives all ranks the facts of the prompts, which only rank 0 has. Collective.
[[nodiscard]] ServedPrompts served_prompts(const fabric::MpiEnvironment& mpi, const Inputs& inputs,
                                           const Plan& plan);
/// [prompts] Number of responses to each; empty: all have prompts.samples. Call on rank 0.
[[nodiscard]] std::vector<std::uint32_t> own_samples(const Inputs& inputs);

/// Limits of a server's log: a server holds at most as many bytes as a client's trees. `samples`:
/// from own_samples().
[[nodiscard]] draft::LogLimits draft_log_limits(const Inputs& inputs,
                                                const std::vector<std::uint32_t>& samples);

/// Options of this rank's draft client, for a verifier in the placement of this epoch.
[[nodiscard]] speculation::DraftClientOptions draft_client_options(const Inputs& inputs,
                                                                   const Plan& plan,
                                                                   std::uint32_t epoch, int rank);

/// The rank's draft server, if it hosts one. It has a thread of its own, so that neither it nor the
/// rank waits for the other. The server sleeps between messages, and serves until this object is
/// destroyed; then no request is left that drafts could help. The server reads responses of earlier
/// steps (speculation.history) itself, piece by piece, so that no draft waits for files. A rank's
/// write waits at most while one file is opened; the end of the run waits for one piece at most.
class DraftServerThread {
 public:
  /// References outlive this. A fault in the thread ends the job.
  DraftServerThread(const fabric::MpiEnvironment& mpi, const Inputs& inputs, const Plan& plan,
                    const ServedPrompts& prompts, fabric::UcxFabric& network, const Clock& clock);
  ~DraftServerThread();
  DraftServerThread(const DraftServerThread&) = delete;
  DraftServerThread& operator=(const DraftServerThread&) = delete;

 private:
  Mailbox* mailbox_ = nullptr;
  std::jthread thread_;
};

}  // namespace paceline::app
