#include "runtime/sim/gpu_costs.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/sim/gpu_times.hpp"
#include "runtime/sim/special_functions.hpp"

namespace paceline::sim {
namespace {

/// Rows at which the curves have points. Products were measured for 1 to 4,096 rows; times are
/// close to linear between these points.
constexpr double kDecodeRows[] = {1,   2,   4,    8,    16,   24,   32,  48,  64,
                                  96,  128, 160,  192,  256,  320,  384, 448, 512,
                                  640, 768, 1024, 1536, 2048, 3072, 4096};
constexpr double kPrefillRows[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};

/// Bytes of an activation or KV element: bf16 for any dtype of weights.
constexpr double kValueBytes = 2;

void check_parts(int gpus, int parts, const char* what) {
  if (gpus >= 1 && parts % gpus == 0) return;
  throw std::invalid_argument(std::to_string(gpus) + " GPUs do not divide the " +
                              std::to_string(parts) + " " + what + " of the model");
}

/// One model on one or several GPUs.
class ModelCosts {
 public:
  ModelCosts(const GpuTimes& times, const ModelConfig& config, int gpus, const GpuSystem& system)
      : times_(times), config_(config), system_(system) {
    if (system.sharing == Sharing::experts && gpus > 1) {
      if (!config.experts) throw std::invalid_argument("the model has no experts to share");
      check_parts(gpus, config.experts->routed, "routed experts");
      ep_ = gpus;
    } else {
      check_parts(gpus, config.heads, "heads");
      tp_ = gpus;
    }
  }

  [[nodiscard]] CostCurve decode() const {
    std::vector<CostCurve::Point> points;
    for (const double rows : rows_of_all(kDecodeRows)) {
      points.push_back({rows, pass(rows) + config_.layers * times_.attention().floor +
                                  head_product(dealt(rows))});
    }
    return CostCurve(std::move(points), first_row_position());
  }

  [[nodiscard]] CostCurve prefill() const {
    std::vector<CostCurve::Point> points;
    const double position = config_.layers * prompt_flops() / times_.attention().flops;
    for (const double rows : rows_of_all(kPrefillRows)) {
      const double chunk = dealt(rows);
      points.push_back({rows, pass(rows) + config_.layers * times_.attention().floor +
                                  position * chunk * (chunk + 1) / 2});
    }
    return CostCurve(std::move(points), position / ep_);
  }

  /// Costs of a head. A level of `paths` rows of a request attends to one request's positions.
  [[nodiscard]] DrafterCosts head(const std::string& name, int paths) const {
    const CostCurve rows = decode();
    const CostCurve rows_of_prompts = prefill();
    // The product of queries, keys and values with the second vector; for a model's own next-token
    // layer, the projection that joins both vectors.
    const auto second = [&](double n) {
      if (config_.latent) return product(2.0 * config_.hidden, config_.hidden, n);
      return product(config_.hidden, (config_.heads + 2 * kv_heads()) * config_.head_dim, n);
    };
    const auto features = [&](double n) {
      return config_.latent ? 0.0 : product(3.0 * config_.hidden, config_.hidden, n);
    };
    std::vector<CostCurve::Point> first, round, prompts;
    for (const CostCurve::Point& p : rows.points()) {
      first.push_back(
          {p.rows, rows.seconds(2 * p.rows) + second(2 * p.rows) + features(2 * p.rows)});
      round.push_back({p.rows, rows.seconds(paths * p.rows) + second(paths * p.rows)});
    }
    for (const CostCurve::Point& p : rows_of_prompts.points())
      prompts.push_back({p.rows, p.seconds + second(p.rows) + features(p.rows)});
    return {name, CostCurve(std::move(first), rows.attention()),
            CostCurve(std::move(round), rows.attention()),
            CostCurve(std::move(prompts), rows_of_prompts.attention())};
  }

  /// Seconds for each position that a further row of a request attends to.
  [[nodiscard]] double further_row_position() const {
    return std::min(first_row_position(), arithmetic_position());
  }

  /// Costs of one of the GPUs, as a part of InstanceCosts.
  [[nodiscard]] InstanceCosts instance() const {
    InstanceCosts costs;
    costs.gpus = ep_;
    const double floor = config_.layers * times_.attention().floor;
    std::vector<CostCurve::Point> decode, prefill, experts, sent, received;
    for (const double rows : kDecodeRows) {
      decode.push_back({rows, own_pass(rows) + floor + head_product(rows)});
      sent.push_back({rows, mixtures() * to_experts_and_back(rows * config_.experts->chosen)});
    }
    const double position = config_.layers * prompt_flops() / times_.attention().flops;
    for (const double rows : kPrefillRows)
      prefill.push_back({rows, own_pass(rows) + floor + position * rows * (rows + 1) / 2});
    for (const double rows : rows_of_all(kDecodeRows)) {
      const ExpertLoad most = fullest_load(*config_.experts, ep_, rows);
      experts.push_back({rows, mixtures() * chosen_experts(most)});
      received.push_back({rows, mixtures() * to_experts_and_back(most.rows)});
    }
    costs.own.decode = CostCurve(std::move(decode), first_row_position() * ep_);
    costs.own.drafted_position = further_row_position() * ep_;
    costs.own.prefill = CostCurve(std::move(prefill), position);
    costs.experts = CostCurve(std::move(experts));
    costs.sent = CostCurve(std::move(sent));
    costs.received = CostCurve(std::move(received));
    return costs;
  }

 private:
  [[nodiscard]] double part(double whole) const { return whole / tp_; }
  /// Rows of the GPU with the most: at least one, however few there are.
  [[nodiscard]] double dealt(double rows) const { return std::max(1.0, rows / ep_); }
  /// Points of a curve: `points`, and beyond them multiples for which each of ep_ GPUs has `points`
  /// rows.
  [[nodiscard]] std::vector<double> rows_of_all(std::span<const double> points) const {
    std::vector<double> rows(points.begin(), points.end());
    for (const double point : points) {
      if (point * ep_ > rows.back()) rows.push_back(point * ep_);
    }
    return rows;
  }
  [[nodiscard]] double weight_bytes() const { return config_.stored_bytes(); }
  /// Heads of keys and values on one GPU: where there are more GPUs than heads, a head is on
  /// several GPUs.
  [[nodiscard]] double kv_heads() const { return std::max(1.0, part(config_.kv_heads)); }

  /// Floating-point operations of one layer on one GPU, for a row and a position that it attends
  /// to. Latent attention multiplies by the stored vectors when decoding, and by keys and values in
  /// prompts.
  [[nodiscard]] double decode_flops() const {
    if (!config_.latent) return prompt_flops();
    return part(config_.heads) * 2.0 * (2.0 * config_.latent->kv_rank + config_.latent->rope);
  }
  [[nodiscard]] double prompt_flops() const {
    const double key = config_.head_dim + (config_.latent ? config_.latent->rope : 0);
    const double value = config_.latent ? config_.latent->value_dim : config_.head_dim;
    return part(config_.heads) * 2.0 * (key + value);
  }
  /// Bytes of KV that one GPU reads for a position of one layer.
  [[nodiscard]] double position_bytes() const {
    if (config_.latent) return kValueBytes * config_.kv_width();
    const double heads = system_.grouped_attention ? kv_heads() : part(config_.heads);
    return kValueBytes * 2.0 * heads * config_.head_dim;
  }
  [[nodiscard]] double arithmetic_position() const {
    const double rate = config_.latent ? system_.latent_flops : times_.attention().flops;
    return config_.layers * decode_flops() / rate / ep_;
  }
  [[nodiscard]] double first_row_position() const {
    return std::max(arithmetic_position(),
                    config_.layers * position_bytes() / times_.attention().stream / ep_);
  }

  [[nodiscard]] double head_product(double rows) const {
    return times_.product(config_.hidden, part(config_.vocab), rows, weight_bytes());
  }

  /// Number of layers with experts.
  [[nodiscard]] int mixtures() const { return config_.layers - config_.dense_layers(); }

  /// Seconds of all layers, embedding and last norm, without attention.
  [[nodiscard]] double pass(double all_rows) const {
    const double rows = dealt(all_rows);
    if (mixtures() == 0) return own_pass(rows);
    const ExpertLoad most = fullest_load(*config_.experts, ep_, all_rows);
    return own_pass(rows) +
           mixtures() * (chosen_experts(most) +
                         to_experts_and_back(std::max(rows * config_.experts->chosen, most.rows)));
  }

  /// The part of pass() that a GPU computes for its own rows alone: all but the routed experts.
  [[nodiscard]] double own_pass(double rows) const {
    const double hidden = config_.hidden;
    const double norm = times_.elementwise(GpuOp::norm, hidden, rows);
    const double layer = 2 * norm + 2 * times_.elementwise(GpuOp::add, hidden, rows) +
                         projections(rows) + 2 * all_reduce(rows);
    const int dense = config_.dense_layers();
    double seconds = times_.elementwise(GpuOp::embedding, hidden, rows) + norm;
    seconds += config_.layers * layer;
    if (dense > 0) seconds += dense * mlp(config_.intermediate, rows);
    if (mixtures() == 0) return seconds;
    const ExpertConfig& e = *config_.experts;
    const double shared = e.shared_width > 0 ? mlp(e.shared_width, rows) : 0;
    return seconds + mixtures() * (product(hidden, e.routed, rows) + shared);  // with the router
  }

  [[nodiscard]] double product(double inputs, double outputs, double rows) const {
    return times_.product(inputs, outputs, rows, weight_bytes());
  }

  /// Seconds of attention's projections, rotary embedding included.
  [[nodiscard]] double projections(double rows) const {
    const double hidden = config_.hidden;
    const double heads = part(config_.heads);
    if (!config_.latent) {
      const double q = heads * config_.head_dim;
      const double kv = kv_heads() * config_.head_dim;
      return product(hidden, q + 2 * kv, rows) + product(q, hidden, rows) +
             times_.elementwise(GpuOp::rope, q + kv, rows);
    }
    const LatentConfig& latent = *config_.latent;
    const double query = heads * (config_.head_dim + latent.rope);
    const double kept = latent.kv_rank + latent.rope;
    // Expansion. When decoding: of queries to latent vectors, and of latent vectors to values. In
    // prompts: of latent vectors to keys and values.
    const double expand =
        product(latent.kv_rank, heads * (config_.head_dim + latent.value_dim), rows);
    const double in = latent.q_rank > 0 ? product(hidden, latent.q_rank + kept, rows) +
                                              product(latent.q_rank, query, rows)
                                        : product(hidden, query + kept, rows);
    return in + expand + product(heads * latent.value_dim, hidden, rows) +
           times_.elementwise(GpuOp::rope, (heads + 1) * latent.rope, rows);
  }

  [[nodiscard]] double mlp(double width, double rows) const {
    return product(config_.hidden, 2 * part(width), rows) +
           times_.elementwise(GpuOp::activation, part(width), rows) +
           product(part(width), config_.hidden, rows);
  }

  /// Seconds of a layer's experts that some row chose, on the GPU with the most work, for which all
  /// others wait.
  [[nodiscard]] double chosen_experts(const ExpertLoad& most) const {
    const double width = part(config_.experts->width);
    const double rows_each = most.rows / most.experts;
    return product(config_.hidden, 2 * width * most.experts, rows_each) +
           times_.elementwise(GpuOp::activation, width, most.rows) +
           product(width * most.experts, config_.hidden, rows_each);
  }

  /// Seconds of sending rows to their experts, in the precision of weights, and results back.
  /// `rows`: rows of the fullest GPU. Traffic within the node uses its links while the rest uses
  /// the network.
  [[nodiscard]] double to_experts_and_back(double rows) const {
    if (ep_ == 1) return 0;
    const double bytes = rows * config_.hidden;
    const double node = std::min(1.0, static_cast<double>(times_.most_workers()) / ep_);
    const auto exchange = [&](double sent) {
      return system_.network.latency + std::max(sent * node / (system_.nvlink / 2),
                                                sent * (1 - node) / system_.network.bandwidth);
    };
    return exchange(bytes * weight_bytes()) + exchange(bytes * kValueBytes);
  }

  [[nodiscard]] double all_reduce(double rows) const {
    if (tp_ == 1) return 0;
    const double bytes = kValueBytes * rows * config_.hidden;
    const int node = times_.most_workers();
    if (tp_ <= node) return times_.all_reduce(bytes, tp_, system_.nvlink);
    if (tp_ % node != 0) {
      throw std::invalid_argument("tp " + std::to_string(tp_) + " is not a number of nodes of " +
                                  std::to_string(node) + " GPUs");
    }
    const double nodes = static_cast<double>(tp_) / node;
    const double ring =
        2 * (nodes - 1) *
        (system_.network.latency + bytes / node / nodes / system_.network.bandwidth);
    return times_.all_reduce(bytes, node, system_.nvlink) + ring;
  }

  const GpuTimes& times_;
  const ModelConfig& config_;
  int tp_ = 1;  ///< GPUs that share each layer
  int ep_ = 1;  ///< GPUs that share only the routed experts
  const GpuSystem& system_;
};

/// First-round costs: decoding with a second row for each request. After a draft that was accepted
/// whole, its last token has yet to be computed, together with the target's next one.
CostCurve first_round(const CostCurve& round) {
  std::vector<CostCurve::Point> points = round.points();
  for (CostCurve::Point& p : points) p.seconds = round.seconds(2 * p.rows);
  return CostCurve(std::move(points), round.attention());
}

/// Expected largest of n counts with one distribution. Counts are close to normal, and the expected
/// largest of n normal variables is about the quantile at (n - 3/8) / (n + 1/4) (Blom).
double largest_of(int n, double mean, double variance) {
  if (n == 1) return mean;
  return mean + std::sqrt(variance) * normal_quantile((n - 0.375) / (n + 0.25));
}

}  // namespace

ExpertLoad fullest_load(const ExpertConfig& experts, int gpus, double rows) {
  const double chosen = experts.chosen;
  const double own = static_cast<double>(experts.routed) / gpus;
  const double read = 1 - std::pow(1 - chosen / experts.routed, rows);  // P(a row chooses it)
  // A row's experts are distinct, so that the number of them on a GPU is hypergeometric.
  const double apart = experts.routed > 1 ? 1 - (chosen - 1) / (experts.routed - 1) : 0;
  const double mean = rows * chosen / gpus;
  return {largest_of(gpus, mean, mean * (1 - 1.0 / gpus) * apart),
          std::clamp(largest_of(gpus, own * read, own * read * (1 - read)),
                     std::min(1.0, own * read * gpus), own)};
}

CostTable gpu_costs(const GpuMeasurements& measured, const ModelConfig& target, int gpus,
                    std::span<const NamedDraft> drafts, const GpuSystem& system) {
  if (!(system.nvlink > 0) || !(system.network.bandwidth > 0) || !(system.network.latency >= 0) ||
      !(system.latent_flops > 0)) {
    throw std::invalid_argument("a rate of the GPUs is out of range");
  }
  const GpuTimes times(measured);
  const ModelCosts costs(times, target, gpus, system);
  CostTable table;
  table.conditions.backend = "cuda";
  table.conditions.isa = "sm_90";
  table.conditions.tp = gpus;
  table.decode = costs.decode();
  table.drafted_position = costs.further_row_position();
  table.prefill = costs.prefill();
  for (const NamedDraft& draft : drafts) {
    const ModelCosts draft_costs(times, draft.config, 1, system);
    if (draft.head_paths > 0) {
      table.drafters.push_back(draft_costs.head(draft.name, draft.head_paths));
      continue;
    }
    const CostCurve round = draft_costs.decode();
    table.drafters.push_back({draft.name, first_round(round), round, draft_costs.prefill()});
  }
  table.transfer = system.network;
  return table;
}

CostTable InstanceCosts::table(double busy) const {
  const auto with_experts = [&](const CostCurve& curve, double per_position) {
    std::vector<CostCurve::Point> points;
    for (const CostCurve::Point& p : curve.points()) {
      const double rows = p.rows * busy;
      points.push_back({p.rows, p.seconds + experts.seconds(rows) +
                                    std::max(sent.seconds(p.rows), received.seconds(rows))});
    }
    return CostCurve(std::move(points), per_position);
  };
  CostTable table = own;
  table.decode = with_experts(own.decode, own.decode.per_position());
  table.prefill = with_experts(own.prefill, own.prefill.per_position());
  return table;
}

InstanceCosts instance_costs(const GpuMeasurements& measured, const ModelConfig& target, int gpus,
                             std::span<const NamedDraft> drafts, GpuSystem system) {
  system.sharing = Sharing::experts;
  const CostTable even = gpu_costs(measured, target, gpus, drafts, system);
  const GpuTimes times(measured);
  InstanceCosts costs = ModelCosts(times, target, gpus, system).instance();
  costs.own.conditions = even.conditions;
  costs.own.conditions.tp = 1;
  costs.own.drafters = even.drafters;
  costs.own.transfer = even.transfer;
  return costs;
}

}  // namespace paceline::sim
