#include "runtime/policy/length/draft_stop.hpp"

#include <cmath>
#include <cstring>
#include <string>

#include "runtime/core/error.hpp"
#include "runtime/core/philox.hpp"

namespace paceline::policy {
namespace {

constexpr int kGates = 4 * StopNetwork::kHidden;
constexpr int kInner = StopNetwork::kHidden + StopNetwork::kStates;

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text;
  for (const std::int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

/// Reads a tensor of the given shape in fp32. Throws DataError.
std::vector<float> read(const WeightSource& weights, const std::string& name,
                        const std::vector<std::int64_t>& shape) {
  const TensorView* view = weights.find(name);
  if (view == nullptr)
    throw DataError(weights.location(name) + ": no tensor " + name + ", which RADAR's network has");
  if (view->dtype != DType::f32 || view->shape != shape)
    throw DataError(weights.location(name) + ": " + name + " is " +
                    std::string(name_of(view->dtype)) + " " + shape_text(view->shape) +
                    ", expected fp32 " + shape_text(shape));
  std::vector<float> values(view->bytes.size() / sizeof(float));
  std::memcpy(values.data(), view->bytes.data(), view->bytes.size());
  for (const float value : values) {
    if (!std::isfinite(value))
      throw DataError(weights.location(name) + ": " + name + " has a value that is not finite");
  }
  return values;
}

std::vector<float> read_transposed(const WeightSource& weights, const std::string& name, int rows,
                                   int columns) {
  const std::vector<float> stored = read(weights, name, {rows, columns});
  std::vector<float> values(stored.size());
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) values[c * rows + r] = stored[r * columns + c];
  return values;
}

/// out += in * matrix, matrix [kIn, kOut], term by term in the order of `in`. Taking kAtOnce terms
/// at a time keeps sums in registers, which halves a decision's time.
template <std::size_t kIn, std::size_t kOut>
void add_product(const std::array<float, kIn>& in, const float* matrix,
                 std::array<float, kOut>& out) {
  constexpr std::size_t kAtOnce = 4;
  constexpr std::size_t kTogether = kIn - kIn % kAtOnce;
  for (std::size_t term = 0; term < kTogether; term += kAtOnce) {
    const std::array<float, kAtOnce> f{in[term], in[term + 1], in[term + 2], in[term + 3]};
    const float* row = matrix + term * kOut;
    for (std::size_t i = 0; i < kOut; ++i) {
      float sum = out[i];
      sum += f[0] * row[i];
      sum += f[1] * row[kOut + i];
      sum += f[2] * row[2 * kOut + i];
      sum += f[3] * row[3 * kOut + i];
      out[i] = sum;
    }
  }
  for (std::size_t term = kTogether; term < kIn; ++term) {
    for (std::size_t i = 0; i < kOut; ++i) out[i] += in[term] * matrix[term * kOut + i];
  }
}

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

StopNetwork::StopNetwork(const WeightSource& weights)
    : gates_of_level_(read_transposed(weights, "lstm.weight_ih_l0", kGates, kStates)),
      gates_of_hidden_(read_transposed(weights, "lstm.weight_hh_l0", kGates, kHidden)),
      gates_bias_(read(weights, "lstm.bias_ih_l0", {kGates})),
      inner_(read_transposed(weights, "mlp.0.weight", kHidden, kInner)),
      inner_bias_(read(weights, "mlp.0.bias", {kHidden})),
      outer_(read_transposed(weights, "mlp.3.weight", 2, kHidden)),
      outer_bias_(read(weights, "mlp.3.bias", {2})) {
  const std::vector<float> more = read(weights, "lstm.bias_hh_l0", {kGates});
  for (int i = 0; i < kGates; ++i) gates_bias_[i] += more[i];
}

float StopNetwork::stop_probability(Memory& memory, const Confidences& level) const {
  std::array<float, kGates> gates;
  std::copy(gates_bias_.begin(), gates_bias_.end(), gates.begin());
  add_product(level, gates_of_level_.data(), gates);
  add_product(memory.hidden, gates_of_hidden_.data(), gates);
  for (int i = 0; i < kHidden; ++i) {
    const float input = sigmoid(gates[i]);
    const float forget = sigmoid(gates[kHidden + i]);
    const float candidate = std::tanh(gates[2 * kHidden + i]);
    const float output = sigmoid(gates[3 * kHidden + i]);
    memory.cell[i] = forget * memory.cell[i] + input * candidate;
    memory.hidden[i] = output * std::tanh(memory.cell[i]);
  }

  std::array<float, kHidden> inner;
  std::copy(inner_bias_.begin(), inner_bias_.end(), inner.begin());
  add_product(memory.hidden, inner_.data(), inner);
  add_product(level, inner_.data() + kHidden * kHidden, inner);
  for (float& value : inner) value = std::max(value, 0.0F);

  std::array<float, 2> actions{outer_bias_[0], outer_bias_[1]};
  add_product(inner, outer_.data(), actions);
  return sigmoid(actions[0] - actions[1]);
}

bool stops(float probability, const NoiseKey& noise, std::uint32_t step, int expansion) {
  // The draw takes the noise of an id far above those of all tokens.
  const std::uint32_t bits = noise_bits(noise, step, ~std::uint32_t{0} - expansion);
  return bits * 0x1p-32 < probability;
}

}  // namespace paceline::policy
