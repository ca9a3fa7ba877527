// JSON in the lines of reward workers and environments. Private to io/workers.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "io/workers/worker_line.hpp"
#include "runtime/core/types.hpp"

namespace paceline::io {

using WorkerJson = nlohmann::ordered_json;

/// Dumps JSON. Invalid UTF-8, which no field of the prompts' file contains, is replaced.
inline std::string dump(const WorkerJson& json) {
  return json.dump(-1, ' ', false, WorkerJson::error_handler_t::replace);
}

inline std::string ids_text(std::span<const TokenId> tokens) {
  return WorkerJson(std::vector<TokenId>(tokens.begin(), tokens.end())).dump();
}

/// The reason why an answer is none to the request with this id; empty: it is one.
inline std::string id_fault(const WorkerJson& answer, RequestId id) {
  if (!answer.is_object()) return "no JSON object";
  const auto said = answer.find("id");
  const bool same =
      said != answer.end() && said->is_string() && said->get<std::string>() == worker_id(id);
  return same ? "" : "not the id " + worker_id(id);
}

}  // namespace paceline::io
