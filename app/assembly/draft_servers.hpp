// The draft servers of a job: where they are, and the thread of one.
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

/// Chooses the ranks that host a draft server; `groups`: of the layout. Throws UsageError where
/// more servers are asked for than there are ranks.
[[nodiscard]] DraftServers place_draft_servers(const Inputs& inputs, const Machine& machine,
                                               int groups);

[[nodiscard]] bool hosts_draft_server(const Plan& plan, int rank);

/// Warns the user where the runs of speculation.history are not there.
void warn_of_no_history(const Inputs& inputs);

/// What draft servers know of the prompts.
struct ServedPrompts {
  /// [prompts] content_uid() of each, where servers tell what earlier steps said; else empty.
  std::vector<std::string> contents;
  std::vector<std::uint32_t> samples;  ///< [prompts] responses to each, where lines say so
};

/// Of the prompts, which rank 0 alone has. Collective.
[[nodiscard]] ServedPrompts served_prompts(const fabric::MpiEnvironment& mpi, const Inputs& inputs,
                                           const Plan& plan);
/// Responses to each prompt, where lines have their own; else nothing. Of rank 0's inputs.
[[nodiscard]] std::vector<std::uint32_t> own_samples(const Inputs& inputs);

/// Limits of a server's log: a server holds no more than a client's trees may. `samples`: as
/// own_samples().
[[nodiscard]] draft::LogLimits draft_log_limits(const Inputs& inputs,
                                                const std::vector<std::uint32_t>& samples);

/// Options of the draft client of this rank, as a verifier in the placement of this epoch.
[[nodiscard]] speculation::DraftClientOptions draft_client_options(const Inputs& inputs,
                                                                   const Plan& plan,
                                                                   std::uint32_t epoch, int rank);

/// The rank's draft server, if it hosts one: a thread beside the rank's own, so that neither waits
/// for the other. The server sleeps between messages, and serves until this object is destroyed: by
/// then no request is left whose drafts could gain by it. It reads the responses of earlier steps
/// (speculation.history) itself, piece by piece, so that no draft waits for files. A step that
/// writes waits for the opening of one file at most, and the run's end for one piece.
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
