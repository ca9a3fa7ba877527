#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/kv_copy.hpp"
#include "kernels/cuda/kv_layout.cuh"
#include "kernels/cuda/launch.hpp"

namespace paceline::kernels::cuda {
namespace {

constexpr int kThreads = 256;
/// Number of 16-byte loads that a thread has in flight. With kThreads threads they make the tile of
/// a thread block.
constexpr int kInFlight = 4;
constexpr int kTile = kThreads * kInFlight;

/// Copies tile blockIdx.x of a block of `vectors` 16-byte words, by copies[blockIdx.y].
__global__ void copy_tiles(uint4* cache, const Backend::BlockCopy* copies, std::int64_t vectors) {
  const Backend::BlockCopy copy = copies[blockIdx.y];
  const uint4* from = cache + copy.from * vectors;
  uint4* to = cache + copy.to * vectors;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kTile + threadIdx.x;
  if (first + kTile - kThreads < vectors) {
    uint4 words[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) words[i] = __ldcs(from + first + i * kThreads);
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) to[first + i * kThreads] = words[i];
    return;
  }
  for (std::int64_t i = first; i < vectors; i += kThreads) to[i] = __ldcs(from + i);
}

/// Thread u of blocks blockIdx.y has one vector of a slot in one layer, of K or V of one head. It
/// has this vector in all moves of group blockIdx.x, so data that a later move reads was written by
/// the same thread.
template <class T>
__global__ void move_slots_kernel(KvStrides kv, int heads_in_block, T* cache,
                                  const GroupedMove* moves) {
  constexpr int kElements = static_cast<int>(sizeof(T));  // bytes, the unit of all sizes in kv
  const GroupedMove* group = moves + blockIdx.x;
  const int vectors = kv.head_dim / kElements;
  const std::int64_t u = static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (u >= static_cast<std::int64_t>(heads_in_block) * vectors) return;
  const std::int64_t mine = u / vectors * kv.head / kElements + u % vectors;
  for (std::int32_t i = 0; i < group->group; ++i) {
    const Backend::SlotMove move = group[i].move;
    const std::int64_t from = slot_element(
        kv, static_cast<std::int64_t>(move.from_block) * kv.positions + move.from_slot);
    const std::int64_t to =
        slot_element(kv, static_cast<std::int64_t>(move.to_block) * kv.positions + move.to_slot);
    cache[to / kElements + mine] = cache[from / kElements + mine];
  }
}

/// Does one group of moves in each thread block. A thread has the same elements in all of them.
__global__ void move_experts_kernel(const RoutingPlaces places, const GroupedMove* moves) {
  const GroupedMove* group = moves + blockIdx.x;
  for (std::int32_t i = 0; i < group->group; ++i) {
    const Backend::SlotMove move = group[i].move;
    const std::int16_t* from = routing_of(places, move.from_block, move.from_slot);
    std::int16_t* to = routing_of(places, move.to_block, move.to_slot);
    for (int e = static_cast<int>(threadIdx.x); e < places.routed; e += kThreads) to[e] = from[e];
  }
}

template <class T>
void move_slots_of(const KvStrides& bytes, int heads_in_block, std::byte* cache,
                   const GroupedMove* moves, int count, cudaStream_t stream) {
  const std::int64_t threads =
      static_cast<std::int64_t>(heads_in_block) * bytes.head_dim / static_cast<int>(sizeof(T));
  const auto blocks = static_cast<unsigned>((threads + kThreads - 1) / kThreads);
  launch(move_slots_kernel<T>, dim3(static_cast<unsigned>(count), blocks), kThreads, 0, stream,
         bytes, heads_in_block, reinterpret_cast<T*>(cache), moves);
}

}  // namespace

void copy_blocks(const KvShape& kv, std::byte* cache, const Backend::BlockCopy* copies, int count,
                 cudaStream_t stream) {
  const auto vectors = static_cast<std::int64_t>(kv.block_bytes() / sizeof(uint4));
  const auto tiles = static_cast<unsigned>((vectors + kTile - 1) / kTile);
  constexpr int kMost = 65535;  // largest second dimension of a grid
  for (int done = 0; done < count; done += kMost) {
    const dim3 grid(tiles, static_cast<unsigned>(std::min(kMost, count - done)));
    launch(copy_tiles, grid, kThreads, 0, stream, reinterpret_cast<uint4*>(cache), copies + done,
           vectors);
  }
}

void move_slots(const KvShape& kv, std::byte* cache, const GroupedMove* moves, int count,
                cudaStream_t stream) {
  if (count == 0) return;
  KvStrides bytes = strides_of(kv);
  const auto size = static_cast<int>(size_of(kv.dtype));
  bytes.block *= size;
  bytes.layer *= size;
  bytes.value *= size;
  bytes.head *= size;
  bytes.head_dim *= size;
  const int heads_in_block = kv.layers * kv.vectors();
  if (bytes.head_dim % 16 == 0) {
    move_slots_of<uint4>(bytes, heads_in_block, cache, moves, count, stream);
  } else if (bytes.head_dim % 4 == 0) {
    move_slots_of<unsigned>(bytes, heads_in_block, cache, moves, count, stream);
  } else {
    move_slots_of<unsigned short>(bytes, heads_in_block, cache, moves, count, stream);
  }
  if (kv.routed == 0) return;
  launch(move_experts_kernel, dim3(static_cast<unsigned>(count)), dim3(kThreads), 0, stream,
         routing_places(kv, cache), moves);
}

}  // namespace paceline::kernels::cuda
