#include "fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#if defined(__x86_64__)
// void paceline_fiber_switch(void** save, void* load): the registers that a call preserves lie on
// the stack left, those of the stack entered come back.
asm(R"(
  .text
  .globl paceline_fiber_switch
  .type paceline_fiber_switch, @function
paceline_fiber_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size paceline_fiber_switch, . - paceline_fiber_switch
)");
extern "C" void paceline_fiber_switch(void** save, void* load);
#else
#include <ucontext.h>
#endif

namespace paceline::cuda_host {
namespace {

constexpr std::size_t kStackBytes = 256 * 1024;

/// Who switched last, for the fiber that is entered.
thread_local Fiber* switched_from = nullptr;
thread_local Fiber* switched_to = nullptr;

}  // namespace

void Fiber::start(Entry entry, void* argument) {
  entry_ = entry;
  argument_ = argument;
  if (memory_ == nullptr) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    stack_bytes_ = kStackBytes;
    void* map = mmap(nullptr, kStackBytes + page, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED || mprotect(map, page, PROT_NONE) != 0) {
      std::perror("stack of a fiber");
      std::abort();
    }
    memory_ = static_cast<std::byte*>(map);
    stack_ = memory_ + page;
#if defined(__SANITIZE_THREAD__)
    tsan_ = __tsan_create_fiber(0);
#endif
  }
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(stack_, stack_bytes_);
#endif
  fake_stack_ = nullptr;
#if defined(__x86_64__)
  // As after a call of begin() from a stack aligned to 16 bytes; it returns nowhere.
  auto* top = reinterpret_cast<std::uintptr_t*>(stack_ + stack_bytes_);
  *--top = 0;
  *--top = reinterpret_cast<std::uintptr_t>(&Fiber::begin);
  for (int i = 0; i < 6; ++i) *--top = 0;
  context_ = top;
#else
  if (context_ == nullptr) context_ = new ucontext_t;
  auto* context = static_cast<ucontext_t*>(context_);
  getcontext(context);
  context->uc_stack.ss_sp = stack_;
  context->uc_stack.ss_size = stack_bytes_;
  context->uc_link = nullptr;
  makecontext(context, &Fiber::begin, 0);
#endif
}

Fiber::~Fiber() {
#if !defined(__x86_64__)
  delete static_cast<ucontext_t*>(context_);
#endif
  if (memory_ == nullptr) return;
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(tsan_);
#endif
  munmap(memory_, static_cast<std::size_t>(stack_ - memory_) + stack_bytes_);
}

/// First thing on the stack entered.
void Fiber::arrived() {
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(fake_stack_, &bottom, &bytes);
  if (switched_from->memory_ == nullptr) {  // the caller's stack, whose bounds we learn here
    switched_from->stack_ = static_cast<std::byte*>(const_cast<void*>(bottom));
    switched_from->stack_bytes_ = bytes;
  }
#endif
}

void Fiber::begin() {
  Fiber* self = switched_to;
  self->arrived();
  self->entry_(self->argument_);
  std::abort();
}

void Fiber::switch_to(Fiber& from, Fiber& to) {
  switched_from = &from;
  switched_to = &to;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.fake_stack_, to.stack_, to.stack_bytes_);
#endif
#if defined(__SANITIZE_THREAD__)
  if (from.tsan_ == nullptr) from.tsan_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to.tsan_, 0);
#endif
#if defined(__x86_64__)
  paceline_fiber_switch(&from.context_, to.context_);
#else
  if (from.context_ == nullptr) from.context_ = new ucontext_t;
  swapcontext(static_cast<ucontext_t*>(from.context_), static_cast<ucontext_t*>(to.context_));
#endif
  from.arrived();
}

}  // namespace paceline::cuda_host
