#include "runtime/kv/host_tiers.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "runtime/core/error.hpp"

namespace paceline::kv {
namespace {

/// The least number of bytes that trim() gives back to the system. To give back less memory, and to
/// take it again later, would cost more than it gains.
constexpr std::size_t kWorthTrimming = std::size_t{64} << 20;

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

/// Maps address space that takes no memory before it is touched. Null on failure or for 0 bytes.
std::shared_ptr<void> map(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  madvise(at, bytes, MADV_HUGEPAGE);  // a failure only makes the memory slower
  return {at, [bytes](void* memory) { munmap(memory, bytes); }};
}

}  // namespace

void OutsideMemory::read(std::byte* to, const std::byte* outside, std::size_t bytes) {
  std::memcpy(to, outside, bytes);
}

void OutsideMemory::write(std::byte* outside, const std::byte* from, std::size_t bytes) {
  std::memcpy(outside, from, bytes);
}

std::size_t HostTiers::stride(std::size_t block_bytes) {
  return round_up(block_bytes, SlotFile::kAlignment);
}

HostTiers::HostTiers(HostTiersOptions options)
    : options_(std::move(options)), stride_(stride(options_.block_bytes)) {
  const std::size_t bytes = stride_ * static_cast<std::size_t>(options_.units);
  memory_ = map(bytes);
  if (memory_ == nullptr && bytes > 0)
    throw IoError(fmt::format("kv_pool.memory: cannot reserve {} bytes of address space: {}", bytes,
                              std::strerror(errno)));
  if (options_.directory) file_.emplace(*options_.directory, stride_);
  copies_.thread = std::thread([this] { work(copies_); });
  if (file_) disk_.thread = std::thread([this] { work(disk_); });
}

HostTiers::~HostTiers() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  for (Lane* lane : {&copies_, &disk_}) {
    lane->changed.notify_one();
    if (lane->thread.joinable()) lane->thread.join();
  }
}

void HostTiers::start(TierJob job) {
  using enum TierJob::Kind;
  if (job.kind == take_in || job.kind == come_up) {
    for (const TierJob::Block& block : job.blocks) touched_ = std::max(touched_, block.unit + 1);
  }
  Lane& lane = job.kind == take_in || job.kind == give_out || job.kind == check ? copies_ : disk_;
  {
    const std::lock_guard lock(mutex_);
    lane.jobs.push_back(std::move(job));
  }
  lane.changed.notify_one();
}

std::optional<TierJob> HostTiers::ended() {
  const std::lock_guard lock(mutex_);
  if (fault_) std::rethrow_exception(fault_);
  if (ended_.empty()) return std::nullopt;
  TierJob job = std::move(ended_.front());
  ended_.pop_front();
  return job;
}

std::span<std::byte> HostTiers::unit(std::int32_t unit) {
  return {static_cast<std::byte*>(memory_.get()) + static_cast<std::size_t>(unit) * stride_,
          options_.block_bytes};
}

void HostTiers::trim(std::int32_t units) {
  if (units >= touched_) return;
  const std::size_t from = static_cast<std::size_t>(units) * stride_;
  if (static_cast<std::size_t>(touched_) * stride_ < from + kWorthTrimming) return;
  const std::size_t end = static_cast<std::size_t>(options_.units) * stride_;
  madvise(static_cast<std::byte*>(memory_.get()) + from, end - from, MADV_DONTNEED);
  touched_ = units;
}

std::uint64_t HostTiers::sum(const std::byte* block) const {
  return XXH3_64bits(block, options_.block_bytes);
}

// ---- The threads.

void HostTiers::work(Lane& lane) {
  try {
    const std::unique_ptr<OutsideMemory> outside =
        options_.outside ? options_.outside() : std::make_unique<OutsideMemory>();
    for (;;) {
      TierJob job;
      {
        std::unique_lock lock(mutex_);
        lane.changed.wait(lock, [&] { return stop_ || !lane.jobs.empty(); });
        if (stop_) return;
        job = std::move(lane.jobs.front());
        lane.jobs.pop_front();
      }
      &lane == &copies_ ? copy(job, *outside) : use_file(job, *outside);
      {
        const std::lock_guard lock(mutex_);
        ended_.push_back(std::move(job));
      }
      if (options_.wake) options_.wake();
    }
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      fault_ = std::current_exception();
    }
    if (options_.wake) options_.wake();
  }
}

void HostTiers::copy(TierJob& job, OutsideMemory& outside) {
  for (TierJob::Block& block : job.blocks) {
    std::byte* const memory = unit(block.unit).data();
    if (job.kind == TierJob::Kind::take_in) {
      outside.read(memory, block.outside, options_.block_bytes);
      block.sum = sum(memory);
      continue;
    }
    block.good = sum(memory) == block.sum;
    if (job.kind == TierJob::Kind::give_out && block.good)
      outside.write(block.outside, memory, options_.block_bytes);
  }
}

void HostTiers::use_file(TierJob& job, OutsideMemory& outside) {
  if (job.kind == TierJob::Kind::give_out_disk) return read_out(job, outside);
  std::vector<iovec> pieces;
  for (const TierJob::Block& block : job.blocks)
    pieces.push_back({unit(block.unit).data(), stride_});
  const std::int32_t first = job.blocks.front().slot;
  if (job.kind == TierJob::Kind::go_down) {
    job.failure = file_->write(first, pieces);
    return;
  }
  job.failure = file_->read(first, pieces);
  for (TierJob::Block& block : job.blocks)
    block.good = job.failure.empty() && sum(unit(block.unit).data()) == block.sum;
}

void HostTiers::read_out(TierJob& job, OutsideMemory& outside) {
  const std::size_t bytes = stride_ * job.blocks.size();
  if (bytes > stage_bytes_) {
    stage_ = map(bytes);
    if (stage_ == nullptr) throw std::bad_alloc();
    stage_bytes_ = bytes;
  }
  auto* const stage = static_cast<std::byte*>(stage_.get());
  const iovec whole{stage, bytes};
  job.failure = file_->read(job.blocks.front().slot, {&whole, 1});
  for (std::size_t i = 0; i < job.blocks.size(); ++i) {
    TierJob::Block& block = job.blocks[i];
    const std::byte* const memory = stage + i * stride_;
    block.good = job.failure.empty() && sum(memory) == block.sum;
    if (block.good) outside.write(block.outside, memory, options_.block_bytes);
  }
}

}  // namespace paceline::kv
