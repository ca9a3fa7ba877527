// The backend of a device: its memory, weights and passes. operations.cpp has the operations.
#include "kernels/cuda/cuda_backend.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/device_buffers.hpp"
#include "kernels/cuda/experts.hpp"
#include "kernels/cuda/kv_copy.hpp"
#include "kernels/cuda/latent.hpp"
#include "kernels/cuda/packed_linear.hpp"
#include "kernels/expert_work.hpp"
#include "kernels/gpus.hpp"
#include "kernels/source_rows.hpp"

namespace paceline::kernels::cuda {
namespace {

/// Pinned memory for one piece of an upload.
constexpr std::size_t kUploadBytes = std::size_t{8} << 20;

/// Pads rows to sizes that are few enough for passes to repeat, and close enough to waste little.
int bucket(int rows) {
  if (rows <= 2) return rows;
  int step = 4;
  while (step < 256 && rows > 8 * step) step *= 2;
  return (rows + step - 1) / step * step;
}

/// Assigns places in a piece of memory, one after another.
class Layout {
 public:
  template <class T>
  std::size_t add(std::size_t count) {
    const std::size_t at = (bytes_ + 127) / 128 * 128;
    bytes_ = at + count * sizeof(T);
    return at;
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

}  // namespace

LinearDevice facts_of(int device) {
  LinearDevice facts;
  const auto ask = [device](int& value, cudaDeviceAttr attribute) {
    PACELINE_CUDA_CHECK(cudaDeviceGetAttribute(&value, attribute, device));
  };
  ask(facts.multiprocessors, cudaDevAttrMultiProcessorCount);
  ask(facts.block_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  ask(facts.shared, cudaDevAttrMaxSharedMemoryPerMultiprocessor);
#ifdef PACELINE_CUDA_WARPGROUPS
  int major = 0;
  ask(major, cudaDevAttrComputeCapabilityMajor);
  facts.warpgroups = major == 9;
#endif
  return facts;
}

CudaBackend::CudaBackend(int device) : device_(device) {
  PACELINE_CUDA_CHECK(cudaSetDevice(device));
  info_ = {"cuda", visible_gpus().gpus.at(device).isa, 1};
  facts_ = facts_of(device);
  PACELINE_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  sampler_ = std::make_unique<DeviceSampler>(stream_, [this] { wait(); });
  expert_starts_ = DeviceMemory(kExpertStartBytes);
  linear_workspace_ = DeviceMemory(kLinearWorkspaceBytes);
  PACELINE_CUDA_CHECK(cudaMemsetAsync(linear_workspace_.data(), 0, kLinearWorkspaceBytes, stream_));
}

CudaBackend::~CudaBackend() {
  static_cast<void>(cudaStreamSynchronize(stream_));
  static_cast<void>(cudaStreamDestroy(stream_));
}

void CudaBackend::wait() const {
  if (watches_.empty()) {
    PACELINE_CUDA_CHECK(cudaStreamSynchronize(stream_));
  } else {
    watch_until([this] { return cudaStreamQuery(stream_); });
  }
}

// The core is yielded between two polls. A synchronisation that spins does this too.
void CudaBackend::watch_until(const std::function<cudaError_t()>& done) const {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kBetween(1);
  const Clock::time_point began = Clock::now();
  Clock::time_point next = began + kBetween;
  for (cudaError_t code = done(); code != cudaSuccess; code = done()) {
    if (code != cudaErrorNotReady) PACELINE_CUDA_CHECK(code);
    static_cast<void>(cudaGetLastError());  // clears the status, which is not an error
    const Clock::time_point now = Clock::now();
    if (now < next) {
      std::this_thread::yield();
      continue;
    }
    next = now + kBetween;
    for (StreamWatch* watch : watches_)
      watch->waiting(std::chrono::duration<double>(now - began).count());
  }
}

std::unique_ptr<Buffer> CudaBackend::allocate(std::size_t bytes) {
  auto buffer = std::make_unique<DeviceBuffer>(bytes);
  if (bytes > 0) PACELINE_CUDA_CHECK(cudaMemsetAsync(buffer->data(), 0, bytes, stream_));
  return buffer;
}

std::unique_ptr<ElasticBuffer> CudaBackend::reserve(std::size_t bytes, std::size_t most) {
  if (bytes == most) return std::make_unique<FixedDeviceBuffer>(allocate(bytes));
  return std::make_unique<ElasticDeviceBuffer>(device_, stream_, bytes, most);
}

void CudaBackend::write(std::byte* to, std::span<const std::byte> from) {
  while (!from.empty()) {
    const std::size_t bytes = std::min(from.size(), kUploadBytes);
    Stage& stage = upload_stages_[next_upload_ ^= 1];
    std::memcpy(stage.room(bytes), from.data(), bytes);
    stage.copy(to, bytes, stream_);
    to += bytes;
    from = from.subspan(bytes);
  }
}

void CudaBackend::read(const std::byte* from, std::span<std::byte> to) {
  if (to.empty()) return;
  PACELINE_CUDA_CHECK(cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, stream_));
  wait();
}

std::unique_ptr<Linear> CudaBackend::pack(std::span<const MatrixSlice> slices,
                                          std::span<const float> bias, int segments, DType compute,
                                          const PackPlace& place) {
  return pack(slices, bias, segments, compute, false, place);
}

std::unique_ptr<Linear> CudaBackend::pack_gate_up(std::span<const MatrixSlice> slices,
                                                  std::span<const float> bias, DType compute,
                                                  const PackPlace& place) {
  expect(slices.size() != 2 || slices[0].rows == slices[1].rows, "not as many gates as ups");
  return pack(slices, bias, kGateUpSegments, compute, true, place);
}

std::size_t CudaBackend::expert_bytes(std::int64_t n, std::int64_t k, DType compute,
                                      bool gated) const {
  const LinearLayout layout = linear_layout(static_cast<int>(n), static_cast<int>(k),
                                            gated ? kGateUpSegments : 1, compute, gated);
  constexpr std::size_t kAligned = 256;
  return (layout.bytes() + kAligned - 1) / kAligned * kAligned;
}

std::size_t CudaBackend::expert_row_bytes(int hidden, int width, int chosen, DType compute) const {
  return ExpertWork::row_bytes(hidden, width, chosen, compute);
}

// Rows go from the mapped file to the device by way of pinned memory, and are packed on the device.
std::unique_ptr<Linear> CudaBackend::pack(std::span<const MatrixSlice> slices,
                                          std::span<const float> bias, int segments, DType compute,
                                          bool gated, const PackPlace& place) {
  const std::vector<SourceRow> rows = source_rows(slices, bias);
  const int n = static_cast<int>(rows.size());
  const int k = static_cast<int>(slices[0].columns);
  if (segments == kAnySegments) segments = column_segments(k);
  const LinearLayout layout = linear_layout(n, k, segments, compute, gated);
  auto packed =
      std::make_unique<PackedLinear>(layout, place.memory.empty() ? nullptr : place.memory.data());
  PACELINE_CUDA_CHECK(cudaMemsetAsync(packed->weight(), 0, layout.bytes(), stream_));
  const std::size_t longest = k * sizeof(float);
  if (const std::size_t bytes = std::max(kUploadBytes, longest); pack_scratch_.size() < bytes) {
    wait();
    pack_scratch_ = DeviceMemory(bytes);
  }
  for (int first = 0; first < n;) {
    const DType source = rows[first].dtype;
    const DType stored = copied_as(source);
    const std::size_t row_bytes = k * size_of(stored);
    const int most = static_cast<int>(std::max<std::size_t>(1, kUploadBytes / row_bytes));
    int last = first;
    std::byte* room = upload_stages_[next_upload_ ^= 1].room(std::min(most, n - first) * row_bytes);
    for (; last < n && last - first < most && rows[last].dtype == source; ++last) {
      if (!usable(rows[last], k, compute)) fail_unusable(slices, last, compute);
      copy_values(rows[last], k, room + (last - first) * row_bytes);
    }
    upload_stages_[next_upload_].copy(pack_scratch_.data(), (last - first) * row_bytes, stream_);
    pack_rows(layout, packed->weight(), first, last - first, pack_scratch_.data(), stored, stream_);
    first = last;
  }
  if (!bias.empty()) {
    std::vector<float> of_features(n);
    for (int row = 0; row < n; ++row) of_features[feature_of(row, n, gated)] = bias[row];
    packed->set_bias(upload(*this, of_features));
  }
  return packed;
}

std::unique_ptr<Embedding> CudaBackend::embedding(const MatrixSlice& rows, const Linear* head) {
  require_whole_rows(rows);
  auto embedding = std::make_unique<DeviceEmbedding>();
  embedding->rows = {static_cast<int>(rows.first_row), static_cast<int>(rows.rows),
                     static_cast<int>(rows.columns)};
  embedding->vocab = rows.matrix->shape[0];
  embedding->stored = copied_as(rows.matrix->dtype);
  if (head != nullptr) {
    const auto& packed = dynamic_cast<const PackedLinear&>(*head);
    const LinearLayout layout = packed.view().layout;
    expect(
        layout.n == rows.rows && layout.k == rows.columns && layout.segments == 1 && !layout.gated,
        "a head that is not packed of the embeddings' rows");
    if (size_of(embedding->stored) <= size_of(layout.dtype)) embedding->head = &packed;
  }
  if (embedding->head == nullptr) {
    const std::size_t row_bytes = rows.columns * size_of(embedding->stored);
    embedding->copy = DeviceMemory(rows.rows * row_bytes);
    if (rows.matrix->dtype == embedding->stored) {
      write(embedding->copy.data(),
            rows.matrix->bytes.subspan(rows.first_row * row_bytes, rows.rows * row_bytes));
    } else {
      const std::vector<SourceRow> source = source_rows({&rows, 1}, {});
      const std::size_t most = std::max<std::size_t>(1, kUploadBytes / row_bytes);
      std::vector<std::byte> values;
      for (std::size_t first = 0; first < source.size(); first += most) {
        const std::size_t count = std::min(most, source.size() - first);
        values.resize(count * row_bytes);
        for (std::size_t i = 0; i < count; ++i)
          copy_values(source[first + i], rows.columns, values.data() + i * row_bytes);
        write(embedding->copy.data() + first * row_bytes, values);
      }
    }
  }
  return embedding;
}

PassRows CudaBackend::padded(PassRows rows) const {
  return {bucket(rows.rows), bucket(rows.logit_rows)};
}

AttentionPlanner& CudaBackend::planner(const Batch& batch) {
  AttentionPlannerOptions options;
  options.heads = batch.heads;
  options.kv_heads = batch.kv.kv_heads;
  options.head_dim = batch.kv.head_dim;
  options.block = batch.kv.block;
  options.few_blocks = facts_.multiprocessors;
  options.most_slots = static_cast<int>(kAttentionWorkspaceBytes /
                                        attention_state_bytes(batch.heads, batch.kv.head_dim));
  for (Planner& p : planners_) {
    if (p.options == options) return p.planner;
  }
  return planners_.emplace_back(options, AttentionPlanner(options)).planner;
}

// Rows of other ranks follow the attended ones, so there is no room for padding.
PassRows CudaBackend::attended_rows() const {
  if (const std::optional<RowRange>& range = given_.attended)
    return {.rows = range->rows, .first_row = range->first};
  return padded({static_cast<int>(given_.tokens.size()), 0});
}

void CudaBackend::begin(const Batch& batch) {
  given_ = batch;
  // Attention counts rows from the first attended one.
  std::vector<Segment> segments(batch.segments.begin(), batch.segments.end());
  Batch counted = batch;
  counted.segments = segments;
  if (batch.attended) {
    for (Segment& segment : segments) segment.first_row -= batch.attended->first;
    counted.attended->first = 0;
  }
  row_plan_.set(counted);
  static const AttentionPlan kNone;
  if (batch.kv.latent()) {
    latent_words(row_plan_, batch.kv.block, attended_rows().rows, latent_plan_.words);
    plan_ = &latent_plan_;
  } else {  // without heads or segments, no attention follows
    const bool none = batch.heads == 0 || segments.empty();
    plan_ = none ? &kNone : &planner(batch).plan(segments, row_plan_);
  }
  begin_.record(stream_);
}

// The memory for the batch on the device belongs to the recording, so passes of other owners do not
// move it.
void CudaBackend::send_batch(GraphRecording& recording) {
  const Batch& batch = given_;
  const PassRows rows =
      padded({static_cast<int>(batch.tokens.size()), static_cast<int>(batch.logit_rows.size())});
  const PassRows attended = batch.attended ? attended_rows() : rows;
  Layout layout;
  const std::size_t tokens = layout.add<TokenId>(rows.rows);
  const std::size_t positions = layout.add<std::int32_t>(attended.rows);
  const std::size_t slots = layout.add<std::int64_t>(attended.rows);
  const std::size_t logit_rows = layout.add<std::int32_t>(rows.logit_rows);
  const std::span<const RotaryPosition> turned = batch.pictures.rotary;
  const std::size_t rotary = layout.add<RotaryPosition>(turned.empty() ? 0 : attended.rows);
  const std::size_t attention = layout.add<std::int32_t>(plan_->words.size());
  std::size_t states = 0;
  std::size_t arrivals = 0;
  if (plan_->slots > 0) {
    arrivals = std::size_t{sizeof(unsigned)} * rows.rows * batch.kv.kv_heads;
    // The usual room is enough for most passes. Larger passes get room by their number of rows,
    // which has few values.
    const std::size_t state = attention_state_bytes(batch.heads, batch.kv.head_dim);
    const bool fits = plan_->slots * state <= kAttentionWorkspaceBytes;
    states = fits ? kAttentionWorkspaceBytes : rows.rows * state;
  }
  recording.make_room(layout.bytes(), states, arrivals, stream_);
  std::byte* host = recording.stage().room(layout.bytes(), stream_);
  const auto fill = [host](std::size_t at, auto count, auto&& value) {
    using T = decltype(value(0));
    for (int i = 0; i < count; ++i) reinterpret_cast<T*>(host + at)[i] = value(i);
  };
  const std::span<const RowPlace> places = row_plan_.rows();
  const int given_tokens = static_cast<int>(batch.tokens.size());
  const int given = static_cast<int>(places.size());
  const int given_logits = static_cast<int>(batch.logit_rows.size());
  fill(tokens, rows.rows, [&](int i) { return i < given_tokens ? batch.tokens[i] : TokenId{0}; });
  fill(positions, attended.rows,
       [&](int i) { return i < given ? places[i].position : std::int32_t{-1}; });
  fill(slots, attended.rows, [&](int i) {
    if (i >= given) return std::int64_t{-1};
    return std::int64_t{places[i].block} * batch.kv.block + places[i].slot;
  });
  if (!turned.empty())
    fill(rotary, attended.rows,
         [&](int i) { return i < given ? turned[attended.first_row + i] : RotaryPosition{}; });
  fill(logit_rows, rows.logit_rows,
       [&](int i) { return i < given_logits ? batch.logit_rows[i] : std::int32_t{0}; });
  std::copy(plan_->words.begin(), plan_->words.end(),
            reinterpret_cast<std::int32_t*>(host + attention));
  recording.stage().copy(layout.bytes(), stream_);
  const std::byte* device = recording.stage().device();
  batch_ = {rows,
            attended,
            reinterpret_cast<const TokenId*>(device + tokens),
            reinterpret_cast<const std::int32_t*>(device + positions),
            reinterpret_cast<const std::int64_t*>(device + slots),
            turned.empty() ? nullptr : reinterpret_cast<const RotaryPosition*>(device + rotary),
            reinterpret_cast<const std::int32_t*>(device + logit_rows),
            reinterpret_cast<const std::int32_t*>(device + attention),
            {reinterpret_cast<float*>(recording.states()),
             reinterpret_cast<unsigned*>(recording.arrivals())}};
}

void CudaBackend::run(Recording& recording, const std::function<void(Operations&)>& compute) {
  auto& graphs = dynamic_cast<GraphRecording&>(recording);
  send_batch(graphs);
  const std::span<const float* const> shown = given_.pictures.embeddings;
  if (std::ranges::any_of(shown, [](const float* row) { return row != nullptr; })) {
    compute(*this);  // not captured: it copies from host memory
  } else {
    graphs.run({batch_.rows, batch_.rotary != nullptr, plan_->grid}, stream_,
               [&] { compute(*this); });
  }
  end_.record(stream_);
}

double CudaBackend::pass_seconds() {
  if (watches_.empty()) {
    end_.wait();
  } else {
    watch_until([this] { return end_.query(); });
  }
  return Event::seconds(begin_, end_);
}

double CudaBackend::busy_seconds() {
  sampler_->sampled().wait();
  return Event::seconds(begin_, sampler_->sampled());
}

template <class T>
const T* CudaBackend::send(std::span<const T> values) {
  std::copy(values.begin(), values.end(),
            reinterpret_cast<T*>(list_stage_.room(values.size_bytes(), stream_)));
  list_stage_.copy(values.size_bytes(), stream_);
  return reinterpret_cast<const T*>(list_stage_.device());
}

void CudaBackend::copy_blocks(const KvShape& kv, std::byte* cache,
                              std::span<const BlockCopy> copies) {
  if (copies.empty()) return;
  cuda::copy_blocks(kv, cache, send(copies), static_cast<int>(copies.size()), stream_);
}

void CudaBackend::move_slots(const KvShape& kv, std::byte* cache, std::span<const SlotMove> moves) {
  if (moves.empty()) return;
  const std::vector<GroupedMove> groups = grouped(moves);
  cuda::move_slots(kv, cache, send(std::span(groups)), static_cast<int>(groups.size()), stream_);
}

void CudaBackend::sample(const float* logits, std::size_t stride, int vocab,
                         std::span<const SampleRow> rows, std::span<Sampled> out,
                         std::span<TokenId> kept) {
  sampler_->sample(logits, stride, vocab, rows, out, kept);
}

void CudaBackend::rank(const float* logits, std::size_t stride, int vocab,
                       std::span<const SampleRow> rows, int count, std::span<Ranked> out) {
  sampler_->rank(logits, stride, vocab, rows, count, out);
}

void CudaBackend::top(const float* logits, std::size_t stride, int vocab, int rows, int count,
                      std::span<Ranked> out) {
  sampler_->top(logits, stride, vocab, rows, count, out);
}

}  // namespace paceline::kernels::cuda
