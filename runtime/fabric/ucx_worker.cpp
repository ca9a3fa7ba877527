#include "runtime/fabric/ucx_worker.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "runtime/core/error.hpp"

namespace paceline::fabric {

UcxWorker::UcxWorker(const UcxContext& context, bool detect_failures)
    : detect_failures_(detect_failures) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_FLAGS;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  params.flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK;  // destruction drops pending requests
  check_ucx(ucp_worker_create(context.get(), &params, &worker_), "making a worker");
  check_ucx(ucp_worker_get_efd(worker_, &network_events_), "asking for the event descriptor");
  wake_events_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_events_ < 0) throw Error(ExitCode::internal, "eventfd failed");
}

UcxWorker::~UcxWorker() {
  parting_ = true;
  ucp_worker_destroy(worker_);
  ::close(wake_events_);
}

std::vector<std::byte> UcxWorker::address() const {
  ucp_address_t* address = nullptr;
  std::size_t size = 0;
  check_ucx(ucp_worker_get_address(worker_, &address, &size), "asking for a worker's address");
  const auto* bytes = reinterpret_cast<const std::byte*>(address);
  std::vector<std::byte> copy(bytes, bytes + size);
  ucp_worker_release_address(worker_, address);
  return copy;
}

void UcxWorker::set_handler(unsigned id, ucp_am_recv_callback_t handler, void* argument) {
  ucp_am_handler_param_t params{};
  params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  params.id = id;
  params.flags = UCP_AM_FLAG_WHOLE_MSG;
  params.cb = handler;
  params.arg = argument;
  check_ucx(ucp_worker_set_am_recv_handler(worker_, &params), "setting a handler");
}

UcxEndpoint& UcxWorker::connect(std::span<const std::byte> address, int rank,
                                const std::string& host) {
  Connection& made = connections_.emplace_back(Connection{
      .endpoint = {.handle = nullptr, .rank = rank, .host = host, .failure = ""}, .worker = this});
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = detect_failures_ ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
  params.err_handler = {.cb = &UcxWorker::endpoint_failed, .arg = &made};
  const ucs_status_t status = ucp_ep_create(worker_, &params, &made.endpoint.handle);
  if (status != UCS_OK) {
    made.endpoint.handle = nullptr;
    endpoint_failed(&made, nullptr, status);
  }
  return made.endpoint;
}

void UcxWorker::endpoint_failed(void* connection, ucp_ep_h, ucs_status_t status) {
  auto& failed = *static_cast<Connection*>(connection);
  failed.endpoint.failure = ucs_status_string(status);
  if (!failed.worker->parting_ && failed.worker->failed_) failed.worker->failed_(failed.endpoint);
}

bool UcxWorker::wait(double seconds, const std::function<bool()>& ready) {
  // Where there are more ranks than cores, longer spins cost other ranks more than they gain here.
  constexpr int kSpins = 50;
  constexpr int kYields = 20;
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  int idle = 0;
  while (true) {
    if (woken_.exchange(false)) return true;
    const bool news = progress();
    if (ready()) return true;
    if (news) {
      idle = 0;
      continue;
    }
    ++idle;
    if (idle <= kSpins) continue;
    const double left = seconds - std::chrono::duration<double>(Clock::now() - start).count();
    if (left <= 0) return false;
    if (idle <= kSpins + kYields) {
      sched_yield();
      continue;
    }
    const ucs_status_t status = ucp_worker_arm(worker_);
    if (status == UCS_OK) {
      sleep(left, true);
      idle = kSpins;  // few tries are enough after a wake
    } else if (status == UCS_ERR_BUSY) {
      // Busy may last: progress() has yet to see events, or a send waits for room at a peer.
      constexpr int kBusyTries = 100;
      if (idle > kSpins + kYields + kBusyTries) sleep(std::min(left, 1e-4), false);
    } else {
      check_ucx(status, "arming a worker");
    }
  }
}

void UcxWorker::sleep(double seconds, bool armed) {
  constexpr double kLongest = 1000;  // seconds; ppoll(2) bounds its timeout
  const double whole = std::floor(std::min(seconds, kLongest));
  timespec time{};
  time.tv_sec = static_cast<time_t>(whole);
  time.tv_nsec = static_cast<long>((std::min(seconds, kLongest) - whole) * 1e9);
  pollfd events[] = {{wake_events_, POLLIN, 0}, {network_events_, POLLIN, 0}};
  ppoll(events, armed ? 2 : 1, &time, nullptr);
  if ((events[0].revents & POLLIN) != 0) {
    eventfd_t count = 0;
    eventfd_read(wake_events_, &count);
  }
}

void UcxWorker::wake() {
  if (!woken_.exchange(true)) eventfd_write(wake_events_, 1);
}

void UcxWorker::close(UcxEndpoint& endpoint) {
  if (endpoint.handle == nullptr) return;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = endpoint.failure.empty() ? 0 : UCP_EP_CLOSE_FLAG_FORCE;
  void* request = ucp_ep_close_nbx(std::exchange(endpoint.handle, nullptr), &params);
  if (request != nullptr && !UCS_PTR_IS_ERR(request)) closing_.push_back(request);
}

void UcxWorker::begin_close() {
  parting_ = true;
  for (Connection& connection : connections_) close(connection.endpoint);
}

bool UcxWorker::closed() {
  std::erase_if(closing_, [](void* request) {
    if (ucp_request_check_status(request) == UCS_INPROGRESS) return false;
    ucp_request_free(request);
    return true;
  });
  return closing_.empty();
}

}  // namespace paceline::fabric
