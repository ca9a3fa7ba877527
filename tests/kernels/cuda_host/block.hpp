// One block of CUDA threads at a time, each a fiber, on the calling host thread: barriers, warp
// collectives and shared memory. What CUDA leaves undefined here is an error:
//
//  * a barrier or a warp collective that some of its threads never reach, reach elsewhere in the
//    source or with another mask;
//  * reading a lane that does not take part;
//  * shared memory that was not written (it holds NaN) or lies beyond the block's size;
//  * changing what an instruction in the background (wgmma) reads or writes before it is waited
//  for.
//
// Threads run in an order that changes from block to block and launch to launch, so that a missing
// barrier shows as a result that changes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <stdexcept>
#include <string>
#include <vector>

#include "fiber.hpp"

namespace paceline::cuda_host {

inline constexpr int kWarp = 32;
inline constexpr int kMaxThreads = 1024;
inline constexpr std::size_t kSharedAlignment = 1024;
inline constexpr std::uint32_t kAllLanes = 0xFFFFFFFFU;

/// What CUDA would leave undefined, found in a kernel.
struct KernelFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Index {
  unsigned x = 0, y = 0, z = 0;
};
struct Extent {
  unsigned x = 1, y = 1, z = 1;
};

/// Arguments of a warp collective, by lane; null for lanes outside the mask.
template <class Arguments>
using Lanes = std::array<Arguments*, kWarp>;

class Block {
 public:
  /// The block that runs on this host thread.
  [[nodiscard]] static Block& current();

  /// Runs `kernel` on every thread of one block. Throws KernelFault.
  void run(const std::function<void()>& kernel, const char* name, Extent grid, Index block,
           Extent threads, std::size_t shared_bytes, std::uint32_t order);

  /// Dynamic shared memory, aligned to kSharedAlignment.
  [[nodiscard]] std::byte* shared() { return shared_; }
  [[nodiscard]] bool is_shared(const void* from, std::size_t bytes) const;

  /// Waits for all threads of the block. Returns how many gave a predicate.
  int barrier(bool predicate, const std::source_location& where);

  /// Waits for the lanes of `mask`; the last one calls complete(lanes, mask) before any goes on.
  template <class Arguments>
  void collective(std::uint32_t mask, Arguments& mine,
                  void (*complete)(const Lanes<Arguments>& lanes, std::uint32_t mask),
                  const std::source_location& where) {
    const auto apply = [](void* const* all, std::uint32_t lanes_mask, void (*function)()) {
      Lanes<Arguments> lanes;
      for (int i = 0; i < kWarp; ++i) lanes[i] = static_cast<Arguments*>(all[i]);
      reinterpret_cast<void (*)(const Lanes<Arguments>&, std::uint32_t)>(function)(lanes,
                                                                                   lanes_mask);
    };
    meet(mask, &mine, apply, reinterpret_cast<void (*)()>(complete), where);
  }

  /// Ends the launch with a fault of the running thread, whose stack is left as it is; `other`: a
  /// place that `what` ends with.
  [[noreturn]] void fault(const char* what, const std::source_location& where,
                          const std::source_location* other = nullptr);

  /// cp.async of the running thread: the copy lands when it is waited for, poison until then.
  void async_copy(std::byte* to, const std::byte* from, bool valid);
  void async_commit();
  void async_wait(int pending);

  /// A barrier of the block's first `threads` threads, whole warps.
  void meet_first(int threads, const std::source_location& where);

  /// Barriers in shared memory, of which each phase ends with its arrivals and its announced bytes.
  void mbarrier_init(std::uint64_t* barrier, int arrivals, const std::source_location& where);
  void mbarrier_arrive(std::uint64_t* barrier, int bytes, const std::source_location& where);
  void mbarrier_wait(std::uint64_t* barrier, unsigned parity, const std::source_location& where);
  /// Copies that a barrier counts: each lands when somebody would wait for it in vain, poison until
  /// then. from: null for zeros.
  void bulk_copy(std::byte* to, const std::byte* from, std::size_t bytes, std::uint64_t* barrier,
                 const std::source_location& where);

  /// What an instruction in the background of the running thread reads or writes. Checks, and waits
  /// for its group, fault where it has changed since.
  void background_use(const void* memory, std::size_t bytes);
  void background_check(const std::source_location& where);
  void background_commit();
  void background_wait(int pending, const std::source_location& where);

 private:
  using Apply = void (*)(void* const* all, std::uint32_t mask, void (*function)());
  enum class State : std::uint8_t {
    ready,
    at_barrier,
    at_first_barrier,
    at_mbarrier,
    in_collective,
    finished
  };

  struct AsyncCopy {
    std::byte* to;
    std::array<std::byte, 16> bytes;
    int group;
  };
  struct BackgroundUse {
    const std::byte* memory;
    std::vector<std::byte> bytes;  ///< that it held
    int group;
  };
  struct BulkCopy {
    std::byte* to;
    std::vector<std::byte> bytes;
  };
  struct PhaseBarrier {
    std::uint64_t* address;
    int arrivals;            ///< that end a phase
    int missing;             ///< of this phase
    std::int64_t bytes = 0;  ///< announced and not landed
    unsigned phase = 0;
    std::vector<BulkCopy> copies;  ///< under way
    std::vector<int> waiting;      ///< threads
  };
  struct Thread {
    Fiber fiber;
    Index index;
    int id = 0;
    State state = State::finished;
    std::source_location where;  ///< it waits
    std::vector<AsyncCopy> copies;
    int group = 0;  ///< groups committed so far
    std::vector<BackgroundUse> uses;
    int background_group = 0;
  };
  /// Lanes that have arrived at a collective.
  struct Meeting {
    std::uint32_t mask = 0;
    std::uint32_t arrived = 0;
    void (*function)() = nullptr;
    std::source_location where;
    std::array<void*, kWarp> arguments{};
  };
  struct Warp {
    std::uint32_t ready = 0;
    std::vector<Meeting> meetings;  ///< of different masks
  };

  static void thread_main(void* thread);
  void meet(std::uint32_t mask, void* mine, Apply apply, void (*function)(),
            const std::source_location& where);
  void set_ready(int id);
  [[nodiscard]] PhaseBarrier& phase_barrier(std::uint64_t* barrier,
                                            const std::source_location& where);
  /// Lets the threads that wait for the barrier look again.
  void wake(PhaseBarrier& barrier);
  /// Ends the barrier's phase where nothing is missing.
  void end_phase(PhaseBarrier& barrier);
  /// Leaves the running thread, which is not ready, for one that is, or for run() where none is.
  void leave();
  void resume(Thread& thread);
  [[nodiscard]] std::string describe(const Thread& thread) const;
  void throw_stuck() const;

  std::vector<std::unique_ptr<Thread>> threads_;  ///< [threads used so far]
  std::array<Warp, kMaxThreads / kWarp> warps_;
  std::uint32_t ready_warps_ = 0;
  Fiber caller_;
  Thread* running_ = nullptr;
  const std::function<void()>* kernel_ = nullptr;
  const char* name_ = "";
  int count_ = 0;
  int finished_ = 0;
  int at_barrier_ = 0;
  int at_first_barrier_ = 0;
  std::source_location first_barrier_where_;
  std::vector<PhaseBarrier> phase_barriers_;
  int predicates_ = 0;
  int last_predicates_ = 0;
  bool descending_ = false;
  std::source_location barrier_where_;
  std::string fault_;
  std::vector<std::byte> shared_memory_;
  std::byte* shared_ = nullptr;
  std::size_t shared_bytes_ = 0;
};

}  // namespace paceline::cuda_host
