// The draft servers of a job: the choice of their ranks, and the thread of one server. Servers give
// suffix drafters other verifiers' responses to the same prompts, and responses of earlier steps.
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
/// UsageError if the configuration asks for more servers than there are ranks.
[[nodiscard]] DraftServers place_draft_servers(const Inputs& inputs, const Machine& machine,
                                               int groups);

[[nodiscard]] bool hosts_draft_server(const Plan& plan, int rank);

/// Warns the user if speculation.history names a path that does not exist.
void warn_of_no_history(const Inputs& inputs);

/// Facts that draft servers need about the prompts.
struct ServedPrompts {
  /// [prompts] content_uid() of the tokens; empty: servers serve no responses of earlier steps.
  std::vector<std::string> contents;
  std::vector<std::uint32_t> samples;  ///< result of own_samples()
};

/// Finds the facts on rank 0, which has the prompts, and gives them to all ranks. Collective.
[[nodiscard]] ServedPrompts served_prompts(const fabric::MpiEnvironment& mpi, const Inputs& inputs,
                                           const Plan& plan);
/// [prompts] Number of responses to each prompt; empty: all have prompts.samples. Call on rank 0.
[[nodiscard]] std::vector<std::uint32_t> own_samples(const Inputs& inputs);

/// Limits of the log in which a server holds responses. The log may take as many bytes as all
/// suffix trees of one rank. `samples`: result of own_samples().
[[nodiscard]] draft::LogLimits draft_log_limits(const Inputs& inputs,
                                                const std::vector<std::uint32_t>& samples);

/// Options of the draft client by which the verifier `rank` uses draft servers. `epoch`: epoch of
/// the placement that gave the rank this role.
[[nodiscard]] speculation::DraftClientOptions draft_client_options(const Inputs& inputs,
                                                                   const Plan& plan,
                                                                   std::uint32_t epoch, int rank);

/// The draft server of this rank, if the rank hosts one. The server has a thread of its own, so
/// that server and rank do not wait for each other. Destroying this object ends the thread. Destroy
/// it only when the run is over, because verifiers may use the server until then. The server reads
/// responses of earlier steps (speculation.history) piece by piece, so that messages and the end of
/// the run wait for one piece at most. While the server opens a file, a write of the rank may have
/// to wait, because HDF5 serves one thread at a time.
class DraftServerThread {
 public:
  /// References must outlive this object. A fault in the thread ends the job.
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
