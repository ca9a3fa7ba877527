#include "runtime/sim/tiers.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/sim/draws.hpp"

namespace paceline::sim {
namespace {

using kv::TierJob;

std::uint64_t sum_of(std::span<const std::byte> bytes) {
  std::uint64_t sum = 14695981039346656037U;  // FNV-1a
  for (const std::byte byte : bytes)
    sum = (sum ^ static_cast<std::uint64_t>(byte)) * 1099511628211U;
  return sum;
}

}  // namespace

ModelledTiers::ModelledTiers(World& world, ActorId actor, int rank, const TierOptions& options)
    : world_(world), actor_(actor), rank_(rank), options_(options) {}

/// The disk's link for a job; null: the job is a copy within memory.
const Link* ModelledTiers::disk_link(TierJob::Kind kind) const {
  switch (kind) {
    case TierJob::Kind::go_down:
      return &options_.disk_write;
    case TierJob::Kind::come_up:
    case TierJob::Kind::give_out_disk:
      return &options_.disk_read;
    default:
      return nullptr;
  }
}

void ModelledTiers::start(TierJob job) {
  const Link* const disk = disk_link(job.kind);
  Lane& lane = disk != nullptr ? disk_ : copies_;
  const Link& link = disk != nullptr ? *disk : options_.memory;
  const double bytes =
      static_cast<double>(job.blocks.size() * options_.block_bytes) * options_.bytes_per_byte;
  const double begin = std::max(lane.free_at, world_.clock(actor_).now());
  lane.free_at = begin + link.latency + bytes / link.bandwidth;
  if (options_.addresses.empty()) {
    for (const TierJob::Block& block : job.blocks) {
      const bool out =
          job.kind == TierJob::Kind::give_out || job.kind == TierJob::Kind::give_out_disk;
      if (out) std::memset(block.outside, kNotArrived, options_.block_bytes);
    }
  }
  lane.jobs.push_back(std::move(job));
  lane.ends.push_back(lane.free_at);
  world_.wake(actor_, lane.free_at);
}

std::optional<TierJob> ModelledTiers::ended() {
  const double now = world_.clock(actor_).now();
  for (Lane* const lane : {&copies_, &disk_}) {
    if (lane->jobs.empty() || lane->ends.front() > now) continue;
    TierJob job = std::move(lane->jobs.front());
    lane->jobs.pop_front();
    lane->ends.pop_front();
    perform(job);
    return job;
  }
  return std::nullopt;
}

void ModelledTiers::perform(TierJob& job) {
  for (TierJob::Block& block : job.blocks) {
    if (options_.addresses.empty()) move(job.kind, block);
    if (job.kind == TierJob::Kind::take_in || job.kind == TierJob::Kind::go_down) continue;
    const double chance =
        options_.damaged == 0
            ? 1
            : uniform({options_.seed, static_cast<std::uint64_t>(rank_)}, Draw::damage, taken_++);
    if (chance < options_.damaged) block.good = false;
  }
}

void ModelledTiers::move(TierJob::Kind kind, TierJob::Block& block) {
  using enum TierJob::Kind;
  const std::span<std::byte> outside(block.outside, options_.block_bytes);
  if (kind == take_in) {
    units_[block.unit].assign(outside.begin(), outside.end());
    block.sum = sum_of(outside);
    return;
  }
  if (kind == go_down) {
    slots_[block.slot] = units_.at(block.unit);
    return;
  }
  const Bytes& from =
      kind == come_up || kind == give_out_disk ? slots_.at(block.slot) : units_.at(block.unit);
  block.good = sum_of(from) == block.sum;
  if (kind == come_up) units_[block.unit] = from;
  if (block.outside != nullptr) std::copy(from.begin(), from.end(), outside.begin());
}

std::span<std::byte> ModelledTiers::unit(std::int32_t unit) {
  if (!options_.addresses.empty()) return options_.addresses.first(options_.block_bytes);
  return units_.at(unit);
}

}  // namespace paceline::sim
