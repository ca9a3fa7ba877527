#include "kernels/cpu/experts.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "kernels/cpu/for_each.hpp"
#include "kernels/expert_work.hpp"

namespace paceline::kernels::cpu {

void ExpertOrder::set(const ExpertChoices& choices, int rows, int first, int experts) {
  const int all = rows * choices.chosen;
  const auto has = [&](int i) {
    return choices.ids[i] >= first && choices.ids[i] < first + experts;
  };
  next_.assign(experts, 0);
  for (int i = 0; i < all; ++i) {
    if (has(i)) ++next_[choices.ids[i] - first];
  }
  groups_.clear();
  int place = 0;
  for (int expert = 0; expert < experts; ++expert) {
    const int places = next_[expert];
    if (places > 0) groups_.push_back({expert, place, places});
    next_[expert] = place;
    place += places;
  }
  rows_.resize(place);
  places_.resize(all);
  for (int i = 0; i < all; ++i) {
    places_[i] = has(i) ? next_[choices.ids[i] - first]++ : -1;
    if (has(i)) rows_[places_[i]] = i / choices.chosen;
  }
}

namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

/// scores[i] = sigmoid(logits[i])
void sigmoids(const KernelTable& kernels, std::span<const float> logits,
              std::vector<float>& scores) {
  for (std::size_t i = 0; i < logits.size(); ++i) scores[i] = -std::abs(logits[i]);
  kernels.exponentials(scores.data(), 0, static_cast<int>(logits.size()), scores.data());
  for (std::size_t i = 0; i < logits.size(); ++i)
    scores[i] = (logits[i] < 0 ? scores[i] : 1.0F) / (1.0F + scores[i]);
}

/// Makes keys of experts outside the best groups so low that they are not chosen.
void keep_groups(const Routing& routing, Workspace& space) {
  const int size = routing.experts / routing.groups;
  std::vector<float>& bests = space.groups;
  bests.resize(routing.groups);
  for (int g = 0; g < routing.groups; ++g) {
    float best = kNever;
    float second = kNever;
    for (int i = g * size; i < (g + 1) * size; ++i) {
      second = std::max(second, std::min(best, space.keys[i]));
      best = std::max(best, space.keys[i]);
    }
    bests[g] = best + second;
  }
  for (int g = 0; g < routing.groups; ++g) {
    int better = 0;
    for (int other = 0; other < routing.groups; ++other)
      better += bests[other] > bests[g] || (bests[other] == bests[g] && other < g) ? 1 : 0;
    if (better >= routing.chosen_groups)
      std::fill_n(space.keys.begin() + std::ptrdiff_t{g} * size, size, kNever);
  }
}

/// Chooses a row's experts, or takes the given ones, and computes their weights.
void choose_row(const KernelTable& kernels, Workspace& space, std::span<const float> logits,
                const Routing& routing, bool given, std::span<std::int32_t> ids,
                std::span<float> weights) {
  const int experts = routing.experts;
  std::vector<float>& scores = space.scores;
  std::vector<float>& keys = space.keys;
  scores.resize(experts);
  keys.assign(logits.begin(), logits.end());
  if (routing.sigmoid) {
    sigmoids(kernels, logits, scores);
    for (int i = 0; i < experts; ++i)
      keys[i] = scores[i] + (routing.correction == nullptr ? 0.0F : routing.correction[i]);
  }
  // A NaN comes last, so that there is an order. The row's results are NaN whichever experts it
  // has.
  for (float& key : keys) key = std::isnan(key) ? kNever : key;
  if (routing.groups > 1 && !given) keep_groups(routing, space);
  const auto better = [&keys](std::int32_t a, std::int32_t b) {
    return keys[a] > keys[b] || (keys[a] == keys[b] && a < b);
  };
  std::vector<std::int32_t>& ranked = space.ranked;
  ranked.resize(experts);
  std::iota(ranked.begin(), ranked.end(), 0);
  const auto end = ranked.begin() + static_cast<std::ptrdiff_t>(ids.size());
  if (!given) {
    std::nth_element(ranked.begin(), end - 1, ranked.end(), better);
    std::copy(ranked.begin(), end, ids.begin());
    std::sort(ids.begin(), ids.end());
  }

  if (!routing.sigmoid) {
    // Experts that were not given may have larger logits, which matter where the sum is over all.
    const std::span<const std::int32_t> summed =
        given && !routing.normalised ? std::span<const std::int32_t>(ranked) : ids;
    const float largest = keys[*std::min_element(summed.begin(), summed.end(), better)];
    kernels.exponentials(logits.data(), largest, experts, scores.data());
  }
  float all = 0;
  for (const float score : scores) all += score;
  float total = routing.sigmoid ? 1.0F : all;
  if (routing.normalised) {
    total = 0;
    for (const std::int32_t id : ids) total += scores[id];
    if (routing.sigmoid) total += kLeastTotal;
  }
  if (std::isnan(all)) total = all;
  for (std::size_t i = 0; i < ids.size(); ++i) weights[i] = scores[ids[i]] / total * routing.scale;
}

}  // namespace

void ExpertPass::choose(const float* logits, int rows, const Routing& routing,
                        const ExpertChoices& choices) {
  const auto size = static_cast<std::size_t>(choices.chosen);
  const auto experts = static_cast<std::size_t>(routing.experts);
  const auto choose = [&](int thread, int r) {
    choose_row(kernels_, workspaces_[thread], {logits + r * experts, experts}, routing,
               choices.given, {choices.ids + r * size, size}, {choices.weights + r * size, size});
  };
  pool_.for_units(rows, choose,
                  std::int64_t{rows} * routing.experts < kParallelElements ? rows : 1);
}

void ExpertPass::compute(const ExpertBank& bank, const ExpertChoices& choices, const std::byte* in,
                         int rows, DType dtype, std::byte* work, float* out) {
  const int hidden = bank.experts.front().down->n();
  const int width = bank.experts.front().down->k();
  const auto experts = static_cast<int>(bank.experts.size());
  const ExpertWork buffers(work, rows, hidden, width, choices.chosen, dtype);
  order_.set(choices, rows, bank.first, experts);

  const std::size_t row_bytes = hidden * size_of(dtype);
  const auto places = static_cast<int>(order_.rows().size());
  for_each(pool_, places, std::int64_t{places} * hidden, [&](int place) {
    std::memcpy(buffers.rows_in + place * row_bytes, in + order_.rows()[place] * row_bytes,
                row_bytes);
  });
  prepare(bank, &ExpertBank::Expert::gate_up, buffers.rows_in, row_bytes);
  gate(width, dtype, buffers.gated);
  prepare(bank, &ExpertBank::Expert::down, buffers.gated, width * size_of(dtype));
  for (Workspace& space : workspaces_) {
    for (const Product& product : products_) product.reserve(space);
  }
  for_panels(panels_of(hidden), [&](Workspace& space, int group, Span panels, Span blocks) {
    float* results = buffers.results + std::ptrdiff_t{order_.groups()[group].first} * hidden;
    products_[group].multiply(space, panels, blocks, results);
  });

  for_each(pool_, rows, std::int64_t{rows} * choices.chosen * hidden, [&](int r) {
    const std::ptrdiff_t at = std::ptrdiff_t{r} * choices.chosen;
    kernels_.combine({.results = buffers.results,
                      .places = order_.places().data() + at,
                      .ids = choices.ids + at,
                      .weights = choices.weights + at,
                      .out = out + std::ptrdiff_t{r} * hidden,
                      .chosen = choices.chosen,
                      .width = hidden,
                      .segments = bank.segments,
                      .of_segment = experts / bank.segments,
                      .first = bank.first});
  });
}

void ExpertPass::prepare(const ExpertBank& bank,
                         std::unique_ptr<Linear> ExpertBank::Expert::*weight, const std::byte* in,
                         std::size_t row_bytes) {
  products_.clear();
  units_.clear();  // units of packing: row blocks
  std::size_t bytes = 0;
  for (const ExpertOrder::Group& group : order_.groups()) {
    const Linear& matrix = *(bank.experts[group.expert].*weight);
    products_.emplace_back(kernels_, matrix, in + group.first * row_bytes, group.places,
                           pool_.size());
    bytes += ExpertWork::whole_lines(products_.back().packed_bytes());
  }
  packed_.reserve(bytes);
  std::byte* packed = packed_.data();
  std::int64_t elements = 0;
  for (std::size_t group = 0; group < products_.size(); ++group) {
    Product& product = products_[group];
    if (product.packed_bytes() == 0) continue;
    product.set_packed(packed);
    packed += ExpertWork::whole_lines(product.packed_bytes());
    for (int block = 0; block < product.row_blocks(); ++block)
      units_.push_back({static_cast<int>(group), {block, block + 1}, 0});
    elements += std::int64_t{product.rows()} * product.k();
  }
  for_each(pool_, static_cast<int>(units_.size()), elements,
           [&](int i) { products_[units_[i].group].pack(units_[i].panels.first); });
}

template <class F>
void ExpertPass::for_panels(int panels, F&& f) {
  units_.clear();
  for (std::size_t group = 0; group < products_.size(); ++group) {
    const Product& product = products_[group];
    // All units of an expert have about equally many panels.
    const int units = (panels + product.most_panels() - 1) / product.most_panels();
    for (int pass = 0; pass < product.passes(); ++pass) {
      for (int unit = 0; unit < units; ++unit) {
        units_.push_back(
            {static_cast<int>(group), {unit * panels / units, (unit + 1) * panels / units}, pass});
      }
    }
  }
  pool_.for_units(static_cast<int>(units_.size()), [&](int thread, int i) {
    const Unit& unit = units_[i];
    f(workspaces_[thread], unit.group, unit.panels, products_[unit.group].blocks(unit.pass));
  });
}

/// Computes silu(gate) * up of all groups. `out`: [places, width].
void ExpertPass::gate(int width, DType dtype, std::byte* out) {
  for (Workspace& space : workspaces_) {
    for (const Product& product : products_) product.reserve_gated(space);
  }
  if (width % kPanelWidth == 0) {
    const std::size_t row_bytes = width * size_of(dtype);
    for_panels(panels_of(width), [&](Workspace& space, int group, Span panels, Span blocks) {
      products_[group].gate(space, panels, blocks, out + order_.groups()[group].first * row_bytes);
    });
    return;
  }
  const auto places = static_cast<int>(order_.rows().size());
  ungated_.reserve(sizeof(float) * places * 2 * width);
  auto* const ungated = reinterpret_cast<float*>(ungated_.data());
  for_panels(panels_of(2 * width), [&](Workspace& space, int group, Span panels, Span blocks) {
    products_[group].multiply(space, panels, blocks,
                              ungated + std::ptrdiff_t{order_.groups()[group].first} * 2 * width);
  });
  for_each(pool_, places, std::int64_t{places} * width, [&](int place) {
    const float* gates = ungated + std::ptrdiff_t{place} * 2 * width;
    kernels_.swiglu({gates, gates + width,
                     out + static_cast<std::size_t>(place) * width * size_of(dtype), 0, 0, 1, width,
                     dtype == DType::bf16});
  });
}

}  // namespace paceline::kernels::cpu
