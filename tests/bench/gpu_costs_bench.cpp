// What gpu_costs() foresees beside what was measured: bench_gpu_costs DIR [MODELS], where DIR holds
// the tables of io/measured/gpu_tables.hpp and MODELS the shapes (configs/simulated/models).
//
// First every measured model is foreseen from the others alone, operation by operation; then come
// steps of the papers' models, beside the time that reading their weights takes at the bandwidth on
// paper.
#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "io/checkpoint/model_config_reader.hpp"
#include "io/measured/gpu_tables.hpp"
#include "runtime/model/families/families.hpp"
#include "runtime/sim/gpu_costs.hpp"
#include "runtime/sim/gpu_times.hpp"

namespace {

using namespace paceline;

/// The same without one model.
GpuMeasurements without(const GpuMeasurements& all, std::size_t model) {
  GpuMeasurements rest = all;
  std::erase_if(rest.layers, [&](const LayerMeasurement& m) { return m.model == model; });
  return rest;
}

/// Foreseen over measured.
struct Ratios {
  std::vector<double> values;
  /// Median, and what 90 % lie between.
  void print() {
    if (values.empty()) {
      std::printf("  %-16s", "-");
      return;
    }
    std::sort(values.begin(), values.end());
    const auto at = [&](double share) {
      return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
    };
    std::printf("  %.2f (%.2f-%.2f)", at(0.5), at(0.05), at(0.95));
  }
  void add(const Ratios& more) {
    values.insert(values.end(), more.values.begin(), more.values.end());
  }
};

/// A line of the table.
struct Comparison {
  static constexpr std::size_t kClasses = 3;
  std::array<Ratios, kClasses> products;  ///< by rows: bound by weights, in between, by arithmetic
  Ratios layers;                          ///< of a layer's products together
  Ratios elementwise;
  static std::size_t rows_class(int rows) { return rows <= 64 ? 0 : rows <= 512 ? 1 : 2; }
  void add(const Comparison& more) {
    for (std::size_t i = 0; i < kClasses; ++i) products[i].add(more.products[i]);
    layers.add(more.layers);
    elementwise.add(more.elementwise);
  }
  void print(const std::string& title) {
    std::printf("%-18s", title.c_str());
    for (Ratios& r : products) r.print();
    layers.print();
    elementwise.print();
    std::printf("\n");
  }
};

bool is_product(GpuOp op) {
  return op == GpuOp::qkv || op == GpuOp::q || op == GpuOp::k || op == GpuOp::v ||
         op == GpuOp::output || op == GpuOp::gate_up || op == GpuOp::gate || op == GpuOp::up ||
         op == GpuOp::down || op == GpuOp::head;
}

/// One model at one TP, foreseen from `times`.
Comparison compare(const GpuMeasurements& all, std::size_t index, int tp,
                   const sim::GpuTimes& times) {
  const MeasuredModel& model = all.models[index];
  Comparison found;
  std::map<int, std::pair<double, double>> layers;  // foreseen and measured sums, by rows
  for (const LayerMeasurement& m : all.layers) {
    if (m.model != index || m.tp != tp || m.op == GpuOp::prompt_attention) continue;
    if (!model.fused && (m.op == GpuOp::norm || m.op == GpuOp::rope)) continue;
    const double foreseen = times.seconds(model, m.op, m.tp, m.tokens);
    if (!is_product(m.op)) {
      found.elementwise.values.push_back(foreseen / m.seconds);
      continue;
    }
    found.products[Comparison::rows_class(m.tokens)].values.push_back(foreseen / m.seconds);
    if (m.op == GpuOp::head) continue;
    layers[m.tokens].first += foreseen;
    layers[m.tokens].second += m.seconds;
  }
  for (const auto& [rows, sums] : layers) found.layers.values.push_back(sums.first / sums.second);
  return found;
}

void leave_one_out(const GpuMeasurements& all) {
  std::printf("foreseen / measured, each model from the others: median (5 %%-95 %%)\n");
  std::printf("%-18s  %-16s  %-16s  %-16s  %-16s  %-16s\n", "products of rows:", "1-64", "65-512",
              "513-4096", "layer's together", "no products");
  Comparison whole;
  for (std::size_t model = 0; model < all.models.size(); ++model) {
    const sim::GpuTimes times(without(all, model));
    for (const int tp : {1, 2, 4, 8}) {
      Comparison found = compare(all, model, tp, times);
      if (found.layers.values.empty()) continue;  // not measured
      found.print(all.models[model].name + " TP " + std::to_string(tp));
      whole.add(found);
    }
  }
  whole.print("all");
}

void print_steps(const GpuMeasurements& all, const std::string& models, const std::string& name,
                 int tp) {
  const ModelConfig config = io::load_model_sizes(model::families(), models + "/" + name);
  const CostTable costs = sim::gpu_costs(all, config, tp, {});
  sim::GpuSystem per_query_head;
  per_query_head.grouped_attention = false;
  const CostTable slow = sim::gpu_costs(all, config, tp, {}, per_query_head);
  std::printf("%-18s %2d %8.2f", name.c_str(), tp,
              stored_weight_bytes(config) / tp / sim::kGpuBandwidth * 1e3);
  for (const double rows : {1.0, 8.0, 32.0, 128.0, 256.0, 512.0}) {
    std::printf(" %7.2f", costs.decode.seconds(rows) * 1e3);
  }
  std::printf(" %8.2f %7.1f %7.1f %7.2f\n", costs.prefill.seconds(4096) * 1e3,
              costs.decode.per_position() * 1e9, slow.decode.per_position() * 1e9,
              costs.drafted_position * 1e9);
}

/// A decoding service of a model that GPUs share by its experts.
struct ExpertService {
  const char* what;
  const char* model;
  int gpus;        ///< foreseen with so many; experts were replicated, or there were others
  double batch;    ///< requests of a GPU
  double context;  ///< positions of a request
  double tokens;   ///< a second of a GPU, as published; 0: nobody has
};

/// Milliseconds of a step, foreseen and published, and what it is spent on.
void print_services(const GpuMeasurements& all, const std::string& models) {
  constexpr ExpertService kServices[] = {
      {"DeepSeek-V3, SGLang, 72 H100s", "DeepSeek-V3", 64, 256, 2000, 22282.0 / 8},
      {"DeepSeek-V3, its profile, 128 H800s", "DeepSeek-V3", 128, 128, 4096, 18598.0 / 8},
      {"Kimi-K2, SGLang, 96 H200s", "Kimi-K2", 96, 480, 2050, 288e3 / 96},
      {"Kimi-K2, Seer's instance at first", "Kimi-K2", 32, 25, 2000, 0},
      {"with responses of 20 K", "Kimi-K2", 32, 25, 20000, 0},
      {"its last 32 requests, of 90 K", "Kimi-K2", 32, 1, 90000, 0},
      {"its last request", "Kimi-K2", 32, 1.0 / 32, 90000, 0},
  };
  std::printf("\n%-38s %9s %9s %6s  of it attention to positions, %%\n", "GPUs that share experts",
              "ms", "published", "ratio");
  for (const ExpertService& s : kServices) {
    const ModelConfig config = io::load_model_sizes(model::families(), models + "/" + s.model);
    sim::GpuSystem system;
    system.sharing = sim::Sharing::experts;
    const CostTable costs = sim::gpu_costs(all, config, s.gpus, {}, system);
    const double rows = s.batch * s.gpus;
    const double step = costs.decode.seconds(rows, s.context);
    const double attention = step - costs.decode.seconds(rows);
    std::printf("%-38s %9.1f", s.what, step * 1e3);
    if (s.tokens > 0) {
      std::printf(" %9.1f %6.2f", s.batch / s.tokens * 1e3, step * s.tokens / s.batch);
    } else {
      std::printf(" %9s %6s", "-", "-");
    }
    std::printf(" %8.0f\n", 100 * attention / step);
  }
}

int run(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: bench_gpu_costs DIR [MODELS]\n");
    return 64;
  }
  const GpuMeasurements all = io::load_gpu_tables(argv[1]);
  const std::string models = argc > 2 ? argv[2] : PACELINE_SOURCE_DIR "/configs/simulated/models";
  leave_one_out(all);
  const sim::AttentionRates rates = sim::GpuTimes(all).attention();
  std::printf("\nattention: floor %.1f us, %.2f TB/s, %.0f TFLOP/s\n", rates.floor * 1e6,
              rates.stream / 1e12, rates.flops / 1e12);
  std::printf(
      "\nms a step, by rows, where nothing is attended to; ns a position: of the first row,\n"
      "likewise with KV read once for every query head, of a drafted row\n"
      "%-18s %2s %8s %7s %7s %7s %7s %7s %7s %8s %7s %7s %7s\n",
      "", "TP", "weights", "1", "8", "32", "128", "256", "512", "prefill", "first", "q head",
      "drafted");
  print_steps(all, models, "Qwen2.5-0.5B", 1);
  print_steps(all, models, "Qwen2.5-1.5B", 1);
  print_steps(all, models, "Qwen2.5-7B", 1);
  print_steps(all, models, "Llama-3.1-8B", 1);
  for (const int tp : {1, 2, 4, 8}) print_steps(all, models, "Qwen2.5-32B", tp);
  for (const int tp : {4, 8}) print_steps(all, models, "Qwen2-VL-72B", tp);
  print_steps(all, models, "Moonlight-16B-A3B", 1);
  print_steps(all, models, "Kimi-K2", 32);
  print_services(all, models);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
