#include "runtime/fabric/ucx_context.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "runtime/core/error.hpp"

namespace paceline::fabric {
namespace {

/// Whether the user's choice of transports (UCX_TLS: a list, or ^ and a list of exceptions) allows
/// this transport of shared memory.
bool allowed(std::string_view transport) {
  const char* choice = std::getenv("UCX_TLS");
  if (choice == nullptr) return true;
  std::string_view rest = choice;
  const bool exceptions = rest.starts_with('^');
  if (exceptions) rest.remove_prefix(1);
  bool named = false;
  while (!rest.empty()) {
    const std::string_view name = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    for (const std::string_view fitting :
         {std::string_view("all"), std::string_view("shm"), std::string_view("sm"),
          std::string_view("mm"), transport})
      named = named || name == fitting;
  }
  return named != exceptions;
}

}  // namespace

void check_ucx(ucs_status_t status, const std::string& what) {
  if (status == UCS_OK) return;
  throw Error(ExitCode::internal, fmt::format("UCX: {}: {}", what, ucs_status_string(status)));
}

UcxContext::UcxContext(int ranks, bool detect_failures) : detect_failures_(detect_failures) {
  // Failure detection rules out shared memory unless its transports are told to handle errors.
  if (detect_failures) {
    // UCX 1.13 reads these settings only from the environment, and warns of unused ones.
    if (allowed("posix")) setenv("UCX_POSIX_ERROR_HANDLING", "y", 0);
    if (allowed("sysv")) setenv("UCX_SYSV_ERROR_HANDLING", "y", 0);
  }
  ucp_config_t* config = nullptr;
  check_ucx(ucp_config_read(nullptr, nullptr, &config), "reading the UCX_* variables");
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED |
                      UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;
  params.estimated_num_eps = static_cast<std::size_t>(ranks);
  const ucs_status_t status = ucp_init(&params, config, &context_);
  ucp_config_release(config);
  if (status == UCS_ERR_NO_DEVICE) {
    const char* transports = std::getenv("UCX_TLS");
    const char* devices = std::getenv("UCX_NET_DEVICES");
    throw UsageError(fmt::format(
        "UCX finds no way to communicate (UCX_TLS is {}, UCX_NET_DEVICES is {}); `ucx_info -d` "
        "lists what this machine has",
        transports == nullptr ? "unset" : fmt::format("'{}'", transports),
        devices == nullptr ? "unset" : fmt::format("'{}'", devices)));
  }
  check_ucx(status, "starting");

  ucp_context_attr_t found{};
  found.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  check_ucx(ucp_context_query(context_, &found), "asking for memory types");
  cuda_ = (found.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) != 0;
}

UcxContext::~UcxContext() { ucp_cleanup(context_); }

}  // namespace paceline::fabric
