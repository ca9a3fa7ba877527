// A thread's end of UCX: its connections, and sleeping until something happens on them.
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
  std::string failure;  ///< why it can no longer be used; empty: it can
};

/// Used by one thread, but for wake(). Destruction never waits for anybody: what is under way is
/// dropped, so a run that ends well closes first.
class UcxWorker {
 public:
  /// `detect_failures`: connections notice that their peer has gone.
  UcxWorker(const UcxContext& context, bool detect_failures);
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  [[nodiscard]] ucp_worker_h get() const { return worker_; }
  /// What another worker connects to.
  [[nodiscard]] std::vector<std::byte> address() const;
  void set_handler(unsigned id, ucp_am_recv_callback_t handler, void* argument);
  /// Called within progress() or connect() when a connection has failed; must not throw.
  void on_failure(std::function<void(UcxEndpoint&)> handler) { failed_ = std::move(handler); }
  /// Returns at once; that it cannot be made may turn out later. Lives as long as the worker.
  UcxEndpoint& connect(std::span<const std::byte> address, int rank, const std::string& host);

  /// Closes a connection: once all has been sent, or at once where it has failed. What was under
  /// way then ends, within this call or by later progress().
  void close(UcxEndpoint& endpoint);

  /// Whether anything happened.
  bool progress() { return ucp_worker_progress(worker_) != 0; }
  /// Progresses until `ready` says so, wake() was called or the time has passed; false: the last.
  /// Spins very briefly, yields, and then sleeps.
  bool wait(double seconds, const std::function<bool()>& ready);
  /// Ends the wait() under way, or the next one. For any thread.
  void wake();

  /// The end that all ranks have agreed on: from now on a peer that goes is no failure.
  void expect_partings() { parting_ = true; }
  /// Then, once nobody sends any more: progress until closed().
  void begin_close();
  [[nodiscard]] bool closed();

 private:
  static void endpoint_failed(void* endpoint, ucp_ep_h handle, ucs_status_t status);
  void sleep(double seconds, bool armed);

  /// What an endpoint's error handler is given.
  struct Connection {
    UcxEndpoint endpoint;
    UcxWorker* worker = nullptr;
  };
  ucp_worker_h worker_ = nullptr;
  bool detect_failures_;
  int network_events_ = -1;  ///< readable when UCX has news; UCX's own
  int wake_events_ = -1;
  std::atomic<bool> woken_{false};
  bool parting_ = false;
  std::function<void(UcxEndpoint&)> failed_;
  std::deque<Connection> connections_;
  std::vector<void*> closing_;  ///< UCX requests
};

}  // namespace paceline::fabric
