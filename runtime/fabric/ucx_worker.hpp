// A thread's UCX worker: its connections, and sleeping until there is news on them.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/fabric/ucx_context.hpp"

namespace paceline::fabric {

/// A connection to another worker.
struct UcxEndpoint {
  ucp_ep_h handle = nullptr;
  int rank = 0;
  std::string host;
  std::string failure;  ///< why it can no longer be used; empty: it works
};

/// A UCX worker with its connections. Used by one thread, except for wake(). Destruction waits for
/// no peer and drops pending requests, so a run that ends well closes its connections first.
class UcxWorker {
 public:
  /// `detect_failures`: connections detect that their peer has gone.
  UcxWorker(const UcxContext& context, bool detect_failures);
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  [[nodiscard]] ucp_worker_h get() const { return worker_; }
  /// The address that other workers connect to.
  [[nodiscard]] std::vector<std::byte> address() const;
  void set_handler(unsigned id, ucp_am_recv_callback_t handler, void* argument);
  /// Sets a handler for failed connections, which is called within progress() or connect(). It must
  /// not throw.
  void on_failure(std::function<void(UcxEndpoint&)> handler) { failed_ = std::move(handler); }
  /// Begins to connect. Returns at once, so failures may show later. The endpoint lives as long as
  /// the worker.
  UcxEndpoint& connect(std::span<const std::byte> address, int rank, const std::string& host);

  /// Closes a connection: after everything has been sent, or at once where it has failed. Pending
  /// requests then end, within this call or a later progress().
  void close(UcxEndpoint& endpoint);

  /// Progresses once. Returns whether anything happened.
  bool progress() { return ucp_worker_progress(worker_) != 0; }
  /// Progresses until ready() returns true or wake() is called; false: `seconds` have passed first.
  /// Spins very briefly, then yields, then sleeps.
  bool wait(double seconds, const std::function<bool()>& ready);
  /// Ends the wait() under way, or the next one. Callable on any thread.
  void wake();

  /// From now on a peer that disconnects is no failure: all ranks have agreed to end.
  void expect_partings() { parting_ = true; }
  /// Begins to close all connections. Call it when no rank sends any more, and then progress()
  /// until closed().
  void begin_close();
  [[nodiscard]] bool closed();

 private:
  static void endpoint_failed(void* endpoint, ucp_ep_h handle, ucs_status_t status);
  void sleep(double seconds, bool armed);

  /// Argument of an endpoint's error handler.
  struct Connection {
    UcxEndpoint endpoint;
    UcxWorker* worker = nullptr;
  };
  ucp_worker_h worker_ = nullptr;
  bool detect_failures_;
  int network_events_ = -1;  ///< UCX's descriptor, readable when there is news
  int wake_events_ = -1;
  std::atomic<bool> woken_{false};
  bool parting_ = false;
  std::function<void(UcxEndpoint&)> failed_;
  std::deque<Connection> connections_;
  std::vector<void*> closing_;  ///< UCX requests
};

}  // namespace paceline::fabric
