// What is launched, captured and replayed follows from an owner's own passes: in a tensor-parallel
// group the leader has draft models beside the target, the members have not, and NCCL wants
// captures to be the same on all.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "kernels/gpus.hpp"

namespace paceline::kernels::cuda {
namespace {

constexpr KvShape kKv{1, 2, 64, 16, DType::bf16};

/// Passes of one owner on a backend.
class Owner {
 public:
  Owner(Backend& backend, bool recordable)
      : backend_(backend),
        recording_(backend.make_recording({0, false, recordable})),
        blocks_(1000) {
    std::iota(blocks_.begin(), blocks_.end(), 0);
  }

  /// `sequences` of `context` positions, the last of which is computed. Whether its operations were
  /// asked for: not where it was replayed.
  bool pass(int sequences, int context) {
    const std::vector<TokenId> tokens(sequences, 0);
    std::vector<Segment> segments;
    for (int s = 0; s < sequences; ++s)
      segments.push_back({s, 1, context - 1, blocks_.data(), nullptr});
    backend_.begin({tokens, segments, {}, 4, kKv, nullptr, 1, 16'000});
    bool asked = false;
    backend_.run(*recording_, [&](Operations&) { asked = true; });
    EXPECT_GE(backend_.pass_seconds(), 0);
    return asked;
  }

 private:
  Backend& backend_;
  std::unique_ptr<Recording> recording_;
  std::vector<std::int32_t> blocks_;
};

/// What a leader with a draft model and a member without one did with the same passes.
struct InStep {
  int replayed = 0;  ///< by the leader
  int apart = 0;     ///< of the passes, those that one replayed and the other did not
};
InStep decode(Owner& of_leader, Owner& draft, Owner& of_member) {
  InStep done;
  int step = 0;
  for (const int sequences : {1, 3, 20, 3, 40, 1}) {
    for (const int context : {10, 900, 1100, 5000, 1100, 9000}) {
      for (int again = 0; again < 3; ++again, ++step) {
        // Ever larger passes of the draft model in between, at steps of its own.
        if (step % 2 == 0) draft.pass(1 + step, 20 + 100 * step);
        const bool asked = of_leader.pass(sequences, context);
        done.apart += asked != of_member.pass(sequences, context) ? 1 : 0;
        done.replayed += asked ? 0 : 1;
      }
    }
  }
  return done;
}

TEST(CudaRecordingTest, RanksOfAGroupCaptureInStepThoughOneDrafts) {
  const auto leader = make_cuda_backend(0);
  const auto member = make_cuda_backend(0);
  Owner of_leader(*leader, true);
  Owner of_member(*member, true);
  Owner draft(*leader, true);
  const InStep done = decode(of_leader, draft, of_member);
  EXPECT_EQ(done.apart, 0);
  EXPECT_GT(done.replayed, 20);
}

// What the test before is there to catch: memory that the target and the draft model have in common
// moves with the draft model's passes.
TEST(CudaRecordingTest, RanksFallOutOfStepWhereTheDraftModelIsNotAnOwnerOfItsOwn) {
  const auto leader = make_cuda_backend(0);
  const auto member = make_cuda_backend(0);
  Owner both(*leader, true);
  Owner of_member(*member, true);
  EXPECT_GT(decode(both, both, of_member).apart, 0);
}

TEST(CudaRecordingTest, WhatGoesOnFromTheHostIsAskedForEachTime) {
  const auto backend = make_cuda_backend(0);
  Owner owner(*backend, false);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(owner.pass(2, 50));
}

}  // namespace
}  // namespace paceline::kernels::cuda
