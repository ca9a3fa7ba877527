// Stacks that take turns on one host thread: a CUDA thread each.
#pragma once

#include <cstddef>

namespace paceline::cuda_host {

/// A stack of its own on which `entry(argument)` runs. entry must never return: it switches away
/// for good. The default-made fiber stands for the stack of the caller.
class Fiber {
 public:
  using Entry = void (*)(void* argument);

  Fiber() = default;
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// The next switch to this fiber begins entry(argument) on its emptied stack.
  void start(Entry entry, void* argument);

  /// Continues `to` where it left off; returns when something switches back to `from`, the fiber
  /// that runs now.
  static void switch_to(Fiber& from, Fiber& to);

 private:
  static void begin();
  void arrived();

  void* context_ = nullptr;  ///< saved stack pointer (or ucontext)
  std::byte* memory_ = nullptr;
  std::byte* stack_ = nullptr;  ///< lowest address of the usable stack
  std::size_t stack_bytes_ = 0;
  Entry entry_ = nullptr;
  void* argument_ = nullptr;
  void* fake_stack_ = nullptr;  ///< AddressSanitizer's
  void* tsan_ = nullptr;        ///< ThreadSanitizer's
};

}  // namespace paceline::cuda_host
