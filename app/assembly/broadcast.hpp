// Broadcast of rank 0's values, by which all ranks decide alike.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/core/wire.hpp"
#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::app {

/// Every rank gets rank 0's values, of any type that WireWriter takes. Collective.
template <typename... Values>
void broadcast(const fabric::MpiEnvironment& mpi, Values&... values) {
  WireWriter writer;
  (writer.put(values), ...);
  std::vector<std::byte> bytes = writer.take();
  mpi.broadcast(bytes);
  WireReader reader(bytes);
  (reader.get(values), ...);
}

}  // namespace paceline::app
