#include "runtime/policy/length/draft_stop.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "runtime/core/error.hpp"
#include "tests/runtime/policy/stop_network_tensors.hpp"

namespace paceline::policy {
namespace {

constexpr int kHidden = StopNetwork::kHidden;
constexpr int kStates = StopNetwork::kStates;

/// The network as its description has it, in double precision, a number at a time.
class Reference {
 public:
  explicit Reference(const StopNetworkTensors& tensors) : t_(tensors), h_(kHidden), c_(kHidden) {}

  double stop_probability(const StopNetwork::Confidences& s) {
    const auto gate = [&](int row) {
      double sum = t_.at("lstm.bias_ih_l0", row) + t_.at("lstm.bias_hh_l0", row);
      for (int i = 0; i < kStates; ++i) sum += t_.at("lstm.weight_ih_l0", row, i) * s[i];
      for (int i = 0; i < kHidden; ++i) sum += t_.at("lstm.weight_hh_l0", row, i) * h_[i];
      return sum;
    };
    const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
    std::vector<double> h(kHidden);
    for (int i = 0; i < kHidden; ++i) {
      c_[i] =
          sigmoid(gate(kHidden + i)) * c_[i] + sigmoid(gate(i)) * std::tanh(gate(2 * kHidden + i));
      h[i] = sigmoid(gate(3 * kHidden + i)) * std::tanh(c_[i]);
    }
    h_ = h;
    double logits[2] = {t_.at("mlp.3.bias", 0), t_.at("mlp.3.bias", 1)};
    for (int r = 0; r < kHidden; ++r) {
      double sum = t_.at("mlp.0.bias", r);
      for (int i = 0; i < kHidden; ++i) sum += t_.at("mlp.0.weight", r, i) * h_[i];
      for (int i = 0; i < kStates; ++i) sum += t_.at("mlp.0.weight", r, kHidden + i) * s[i];
      for (int a = 0; a < 2; ++a) logits[a] += t_.at("mlp.3.weight", a, r) * std::max(sum, 0.0);
    }
    return std::exp(logits[0]) / (std::exp(logits[0]) + std::exp(logits[1]));
  }

 private:
  const StopNetworkTensors& t_;
  std::vector<double> h_, c_;
};

TEST(DraftStop, NetworkIsAsDescribed) {
  const StopNetworkTensors tensors;
  const StopNetwork network(tensors);
  std::mt19937 random(3);
  for (int draft = 0; draft < 20; ++draft) {
    StopNetwork::Memory memory;
    Reference reference(tensors);
    float likeliest = 0;
    for (int level = 0; level < 8; ++level) {
      StopNetwork::Confidences s;
      likeliest -= 0.001F * static_cast<float>(random() % 500);
      for (int i = 0; i < kStates; ++i) s[i] = likeliest - 0.4F * static_cast<float>(i);
      EXPECT_NEAR(network.stop_probability(memory, s), reference.stop_probability(s), 1e-5)
          << "level " << level;
    }
  }
}

TEST(DraftStop, EachDraftBeginsAnew) {
  const StopNetworkTensors tensors;
  const StopNetwork network(tensors);
  const StopNetwork::Confidences s{-0.1F, -1, -2, -3, -4, -5, -6, -7, -8, -9};
  StopNetwork::Memory memory;
  const float first = network.stop_probability(memory, s);
  EXPECT_NE(network.stop_probability(memory, s), first) << "it remembers nothing";
  memory = {};
  EXPECT_EQ(network.stop_probability(memory, s), first);
}

TEST(DraftStop, SaysWhatIsWrongWithItsWeights) {
  const auto message = [](const StopNetworkTensors& tensors) -> std::string {
    try {
      const StopNetwork network(tensors);
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  };
  StopNetworkTensors missing;
  missing.drop("mlp.3.bias");
  EXPECT_NE(message(missing).find("no tensor mlp.3.bias"), std::string::npos);
  StopNetworkTensors narrow;
  narrow.put("lstm.weight_ih_l0", {4 * kHidden, 8});
  EXPECT_NE(message(narrow).find("lstm.weight_ih_l0 is fp32 [512, 8], expected fp32 [512, 10]"),
            std::string::npos)
      << message(narrow);
  StopNetworkTensors half;
  half.view("mlp.0.bias").dtype = DType::bf16;
  EXPECT_NE(message(half).find("mlp.0.bias is bf16 [128]"), std::string::npos) << message(half);
  StopNetworkTensors broken;
  broken.values("mlp.0.weight")[5] = std::nanf("");
  EXPECT_NE(message(broken).find("mlp.0.weight has a value that is not finite"), std::string::npos);
}

TEST(DraftStop, ChanceIsTheRequestsOwn) {
  const NoiseKey noise{11, 22};
  int stopped = 0;
  int with_next = 0;
  constexpr int kDraws = 20000;
  for (int step = 0; step < kDraws; ++step) {
    const bool now = stops(0.3F, noise, step, 2);
    EXPECT_EQ(stops(0.3F, noise, step, 2), now);
    EXPECT_FALSE(stops(0, noise, step, 2));
    EXPECT_TRUE(stops(1, noise, step, 2));
    stopped += now ? 1 : 0;
    with_next += now && stops(0.3F, noise, step, 3) ? 1 : 0;
  }
  EXPECT_NEAR(stopped, 0.3 * kDraws, 4 * std::sqrt(0.21 * kDraws));
  EXPECT_NEAR(with_next, 0.09 * kDraws, 4 * std::sqrt(0.0819 * kDraws))
      << "levels are not independent";
}

}  // namespace
}  // namespace paceline::policy
