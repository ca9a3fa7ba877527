#include "block.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "include/cuda_runtime.h"

constinit thread_local uint3 threadIdx;
constinit thread_local uint3 blockIdx;
constinit thread_local dim3 blockDim;
constinit thread_local dim3 gridDim;

namespace paceline::cuda_host {
namespace {

constexpr std::size_t kMaxShared = 227 * 1024;
constexpr std::size_t kGuard =
    1024;                           ///< bytes after the block's shared memory that stay as they are
constexpr std::byte kPoison{0xFF};  ///< NaN in fp32 and bf16, -1 in integers
constexpr std::byte kGuardByte{0xA5};

bool same_place(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}
std::string text_of(const std::source_location& where) {
  return std::string(where.file_name()) + ":" + std::to_string(where.line());
}
std::string text_of(const Index& i) {
  return "(" + std::to_string(i.x) + ", " + std::to_string(i.y) + ", " + std::to_string(i.z) + ")";
}

}  // namespace

Block& Block::current() {
  thread_local Block block;
  return block;
}

bool Block::is_shared(const void* from, std::size_t bytes) const {
  const auto* at = static_cast<const std::byte*>(from);
  return at >= shared_ && at + bytes <= shared_ + shared_bytes_;
}

void Block::run(const std::function<void()>& kernel, const char* name, Extent grid, Index block,
                Extent threads, std::size_t shared_bytes, std::uint32_t order) {
  kernel_ = &kernel;
  name_ = name;
  count_ = static_cast<int>(threads.x * threads.y * threads.z);
  finished_ = at_barrier_ = at_first_barrier_ = predicates_ = 0;
  phase_barriers_.clear();
  descending_ = (order & 1U) != 0;
  fault_.clear();
  if (shared_memory_.empty()) shared_memory_.resize(kMaxShared + kGuard + kSharedAlignment);
  shared_ = reinterpret_cast<std::byte*>(
      (reinterpret_cast<std::uintptr_t>(shared_memory_.data()) + kSharedAlignment - 1) /
      kSharedAlignment * kSharedAlignment);
  shared_bytes_ = shared_bytes;
  std::fill(shared_, shared_ + shared_bytes, kPoison);
  std::fill(shared_ + shared_bytes, shared_ + shared_bytes + kGuard, kGuardByte);
  gridDim = {grid.x, grid.y, grid.z};
  blockDim = {threads.x, threads.y, threads.z};
  blockIdx = {block.x, block.y, block.z};

  while (static_cast<int>(threads_.size()) < count_) {
    threads_.push_back(std::make_unique<Thread>());
    threads_.back()->id = static_cast<int>(threads_.size()) - 1;
  }
  for (Warp& warp : warps_) {
    warp.ready = 0;
    warp.meetings.clear();
  }
  ready_warps_ = 0;
  for (int id = 0; id < count_; ++id) {
    Thread& thread = *threads_[id];
    const auto i = static_cast<unsigned>(id);
    thread.index = {i % threads.x, i / threads.x % threads.y, i / (threads.x * threads.y)};
    thread.state = State::ready;
    thread.copies.clear();
    thread.group = 0;
    thread.uses.clear();
    thread.background_group = 0;
    thread.fiber.start(&Block::thread_main, &thread);
    set_ready(id);
  }
  // Begins with some warp in the middle, then goes on in the block's direction.
  Thread& first = *threads_[(order >> 1) % static_cast<unsigned>(count_) / kWarp * kWarp];
  running_ = nullptr;
  warps_[first.id / kWarp].ready &= ~1U;
  if (warps_[first.id / kWarp].ready == 0) ready_warps_ &= ~(1U << (first.id / kWarp));
  running_ = &first;
  threadIdx = {first.index.x, first.index.y, first.index.z};
  Fiber::switch_to(caller_, first.fiber);

  kernel_ = nullptr;
  if (!fault_.empty()) throw KernelFault(fault_);
  if (finished_ < count_) throw_stuck();
  for (const PhaseBarrier& barrier : phase_barriers_) {
    if (barrier.bytes != 0)
      throw KernelFault(std::string(name) + ": block " + text_of(block) +
                        " ends with copies that nothing waited for");
  }
  const bool intact = std::all_of(shared_ + shared_bytes, shared_ + shared_bytes + kGuard,
                                  [](std::byte b) { return b == kGuardByte; });
  if (!intact) {
    throw KernelFault(std::string(name) + ": block " + text_of(block) +
                      " wrote beyond its shared memory of " + std::to_string(shared_bytes) +
                      " bytes");
  }
}

void Block::thread_main(void* thread) {
  Block& block = current();
  (*block.kernel_)();
  auto& self = *static_cast<Thread*>(thread);
  self.state = State::finished;
  if (!self.copies.empty()) {
    block.fault("ends with asynchronous copies that nothing waited for",
                std::source_location::current());
  }
  if (!self.uses.empty()) {
    block.fault("ends with instructions in the background that nothing waited for",
                std::source_location::current());
  }
  ++block.finished_;
  block.leave();
  std::abort();  // nobody resumes a finished thread
}

void Block::set_ready(int id) {
  warps_[id / kWarp].ready |= 1U << (id % kWarp);
  ready_warps_ |= 1U << (id / kWarp);
}

void Block::resume(Thread& thread) {
  Thread& from = *running_;
  running_ = &thread;
  threadIdx = {thread.index.x, thread.index.y, thread.index.z};
  if (&from != &thread) Fiber::switch_to(from.fiber, thread.fiber);
}

void Block::leave() {
  // The warp it is in first: its lanes are likely to meet soon.
  int w = running_->id / kWarp;
  if (warps_[w].ready == 0) {
    if (ready_warps_ == 0) {
      Fiber::switch_to(running_->fiber, caller_);
      return;
    }
    w = descending_ ? std::bit_width(ready_warps_) - 1 : std::countr_zero(ready_warps_);
  }
  Warp& warp = warps_[w];
  const int lane = descending_ ? std::bit_width(warp.ready) - 1 : std::countr_zero(warp.ready);
  warp.ready &= ~(1U << lane);
  if (warp.ready == 0) ready_warps_ &= ~(1U << w);
  resume(*threads_[w * kWarp + lane]);
}

int Block::barrier(bool predicate, const std::source_location& where) {
  Thread& self = *running_;
  if (at_barrier_ == 0) {
    barrier_where_ = where;
  } else if (!same_place(barrier_where_, where)) {
    fault("is at a barrier while others are at that of ", where, &barrier_where_);
  }
  predicates_ += predicate ? 1 : 0;
  if (++at_barrier_ == count_) {
    last_predicates_ = predicates_;
    at_barrier_ = predicates_ = 0;
    for (int id = 0; id < count_; ++id) {
      if (id == self.id) continue;
      threads_[id]->state = State::ready;
      set_ready(id);
    }
    return last_predicates_;
  }
  self.state = State::at_barrier;
  self.where = where;
  leave();
  return last_predicates_;
}

void Block::meet_first(int threads, const std::source_location& where) {
  Thread& self = *running_;
  if (self.id >= threads) fault("is at a barrier of others", where);
  if (at_first_barrier_ == 0) {
    first_barrier_where_ = where;
  } else if (!same_place(first_barrier_where_, where)) {
    fault("is at a barrier while others are at that of ", where, &first_barrier_where_);
  }
  if (++at_first_barrier_ == threads) {
    at_first_barrier_ = 0;
    for (int id = 0; id < threads; ++id) {
      if (id == self.id) continue;
      threads_[id]->state = State::ready;
      set_ready(id);
    }
    return;
  }
  self.state = State::at_first_barrier;
  self.where = where;
  leave();
}

Block::PhaseBarrier& Block::phase_barrier(std::uint64_t* barrier,
                                          const std::source_location& where) {
  for (PhaseBarrier& known : phase_barriers_) {
    if (known.address == barrier) return known;
  }
  fault("uses a barrier in shared memory that was not initialised", where);
}

void Block::mbarrier_init(std::uint64_t* barrier, int arrivals, const std::source_location& where) {
  if (!is_shared(barrier, sizeof *barrier)) fault("initialises a barrier elsewhere", where);
  phase_barriers_.push_back({barrier, arrivals, arrivals, 0, 0, {}, {}});
}

void Block::wake(PhaseBarrier& barrier) {
  for (const int id : barrier.waiting) {
    threads_[id]->state = State::ready;
    set_ready(id);
  }
  barrier.waiting.clear();
}

void Block::end_phase(PhaseBarrier& barrier) {
  if (barrier.missing != 0 || barrier.bytes != 0) return;
  barrier.missing = barrier.arrivals;
  ++barrier.phase;
  wake(barrier);
}

void Block::mbarrier_arrive(std::uint64_t* barrier, int bytes, const std::source_location& where) {
  PhaseBarrier& phases = phase_barrier(barrier, where);
  if (phases.missing == 0) fault("arrives once too often in a phase", where);
  --phases.missing;
  phases.bytes += bytes;
  end_phase(phases);
}

void Block::mbarrier_wait(std::uint64_t* barrier, unsigned parity,
                          const std::source_location& where) {
  while (true) {
    PhaseBarrier& phases = phase_barrier(barrier, where);
    if ((phases.phase & 1U) != parity) return;
    for (const BulkCopy& copy : phases.copies) {
      std::copy(copy.bytes.begin(), copy.bytes.end(), copy.to);
      phases.bytes -= static_cast<std::int64_t>(copy.bytes.size());
    }
    phases.copies.clear();
    end_phase(phases);
    if ((phases.phase & 1U) != parity) return;
    phases.waiting.push_back(running_->id);
    running_->state = State::at_mbarrier;
    running_->where = where;
    leave();
  }
}

void Block::bulk_copy(std::byte* to, const std::byte* from, std::size_t bytes,
                      std::uint64_t* barrier, const std::source_location& where) {
  if (!is_shared(to, bytes)) fault("copies to a place that is not in shared memory", where);
  PhaseBarrier& phases = phase_barrier(barrier, where);
  BulkCopy copy{to, std::vector<std::byte>(bytes)};
  if (from != nullptr) std::copy(from, from + bytes, copy.bytes.begin());
  std::fill(to, to + bytes, kPoison);
  phases.copies.push_back(std::move(copy));
  wake(phases);
}

void Block::meet(std::uint32_t mask, void* mine, Apply apply, void (*function)(),
                 const std::source_location& where) {
  Thread& self = *running_;
  const int lane = self.id % kWarp;
  Warp& warp = warps_[self.id / kWarp];
  const int lanes = std::min(kWarp, count_ - self.id / kWarp * kWarp);
  const std::uint32_t existing = lanes == kWarp ? kAllLanes : (1U << lanes) - 1U;
  if ((mask >> lane & 1U) == 0) fault("is not in the mask of its own warp collective", where);
  if ((mask & ~existing) != 0) fault("names lanes that its warp does not have", where);
  Meeting* meeting = nullptr;
  for (Meeting& other : warp.meetings) {
    if (other.mask == mask) meeting = &other;
  }
  if (meeting == nullptr) {
    warp.meetings.push_back({mask, 0, function, where, {}});
    meeting = &warp.meetings.back();
  } else if (meeting->function != function || !same_place(meeting->where, where)) {
    fault("is at a warp collective while other lanes are at that of ", where, &meeting->where);
  }
  meeting->arguments[lane] = mine;
  meeting->arrived |= 1U << lane;
  if (meeting->arrived == mask) {
    apply(meeting->arguments.data(), mask, function);  // itself meets nobody
    warp.meetings.erase(warp.meetings.begin() + (meeting - warp.meetings.data()));
    const std::uint32_t others = mask & ~(1U << lane);
    warp.ready |= others;
    if (others != 0) ready_warps_ |= 1U << (self.id / kWarp);
    return;
  }
  self.state = State::in_collective;
  self.where = where;
  leave();
  self.state = State::ready;
}

std::string Block::describe(const Thread& thread) const {
  return std::string(name_) + ": block " + text_of({blockIdx.x, blockIdx.y, blockIdx.z}) +
         ", thread " + text_of(thread.index);
}

void Block::fault(const char* what, const std::source_location& where,
                  const std::source_location* other) {
  fault_ = describe(*running_) + " " + what + (other != nullptr ? text_of(*other) : "") + " (" +
           text_of(where) + ")";
  Fiber::switch_to(running_->fiber, caller_);
  std::abort();
}

void Block::throw_stuck() const {
  std::string message;
  std::vector<std::string> seen;
  for (int id = 0; id < count_; ++id) {
    const Thread& thread = *threads_[id];
    const std::string place = thread.state == State::finished ? "" : text_of(thread.where);
    if (std::find(seen.begin(), seen.end(), place) != seen.end()) continue;
    seen.push_back(place);
    message += (message.empty() ? "" : "; ") + describe(thread);
    if (thread.state == State::finished) {
      message += " has finished";
    } else {
      message += thread.state == State::in_collective ? " waits in the warp collective of "
                 : thread.state == State::at_mbarrier ? " waits for a phase in "
                                                      : " waits at the barrier of ";
      message += place;
    }
  }
  throw KernelFault("threads wait for ones that never come: " + message);
}

void Block::async_copy(std::byte* to, const std::byte* from, bool valid) {
  AsyncCopy copy{to, {}, running_->group};
  if (valid) std::memcpy(copy.bytes.data(), from, copy.bytes.size());
  std::fill(to, to + copy.bytes.size(), kPoison);
  running_->copies.push_back(copy);
}

void Block::async_commit() { ++running_->group; }

void Block::async_wait(int pending) {
  std::vector<AsyncCopy>& copies = running_->copies;
  const int before = running_->group - pending;  // groups below have arrived
  const auto landed = std::stable_partition(copies.begin(), copies.end(),
                                            [&](const AsyncCopy& c) { return c.group < before; });
  for (auto copy = copies.begin(); copy != landed; ++copy) {
    std::copy(copy->bytes.begin(), copy->bytes.end(), copy->to);
  }
  copies.erase(copies.begin(), landed);
}

void Block::background_use(const void* memory, std::size_t bytes) {
  const auto* from = static_cast<const std::byte*>(memory);
  std::vector<BackgroundUse>& uses = running_->uses;
  std::erase_if(uses, [&](const BackgroundUse& use) { return use.memory == from; });
  uses.push_back({from, {from, from + bytes}, running_->background_group});
}

void Block::background_check(const std::source_location& where) {
  for (const BackgroundUse& use : running_->uses) {
    if (!std::equal(use.bytes.begin(), use.bytes.end(), use.memory)) {
      fault("changes what an instruction in the background uses", where);
    }
  }
}

void Block::background_commit() { ++running_->background_group; }

void Block::background_wait(int pending, const std::source_location& where) {
  background_check(where);
  const int before = running_->background_group - pending;
  std::erase_if(running_->uses, [&](const BackgroundUse& use) { return use.group < before; });
}

}  // namespace paceline::cuda_host
