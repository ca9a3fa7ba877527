// A telemetry sink that keeps nothing.
#pragma once

#include "runtime/core/interfaces.hpp"

namespace paceline {

struct QuietTelemetry : TelemetrySink {
  void step(const StepRecord&) override {}
  void event(const RequestEvent&) override {}
  void transfer(const TransferRecord&) override {}
  void pool(const KvPoolRecord&) override {}
  void draft_memory(const DraftMemoryRecord&) override {}
  void stop_point(const StopPoint&) override {}
  void acceptance(std::span<const AcceptanceCell>) override {}
  void role(const RoleRecord&) override {}
  void summary(const RankSummary&) override {}
  void flush() override {}
};

}  // namespace paceline
