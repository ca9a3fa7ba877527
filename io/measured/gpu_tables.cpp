#include "io/measured/gpu_tables.hpp"

#include <algorithm>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

#include "io/measured/csv_table.hpp"

namespace paceline::io {
namespace {

using OpName = std::pair<std::string_view, GpuOp>;

constexpr OpName kVidurOps[] = {
    {"emb", GpuOp::embedding},         {"input_layernorm", GpuOp::norm},
    {"attn_pre_proj", GpuOp::qkv},     {"attn_rope", GpuOp::rope},
    {"attn_post_proj", GpuOp::output}, {"post_attention_layernorm", GpuOp::norm},
    {"mlp_up_proj", GpuOp::gate_up},   {"mlp_act", GpuOp::activation},
    {"mlp_down_proj", GpuOp::down},    {"add", GpuOp::add},
};

constexpr OpName kLlmServingSimOps[] = {
    {"embedding", GpuOp::embedding},
    {"input_layernorm", GpuOp::norm},
    {"q_proj", GpuOp::q},
    {"k_proj", GpuOp::k},
    {"v_proj", GpuOp::v},
    {"rope", GpuOp::rope},
    {"attn", GpuOp::prompt_attention},
    {"o_proj", GpuOp::output},
    {"post_layernorm", GpuOp::norm},
    {"gate_proj", GpuOp::gate},
    {"up_proj", GpuOp::up},
    {"act_fn", GpuOp::activation},
    {"down_proj", GpuOp::down},
    {"final_layernorm", GpuOp::norm},
    {"lm_head", GpuOp::head},
};

// Sizes of the measured models, from their public configurations.
const MeasuredModel kLlmServingSimModels[] = {
    {"llama-3.1-8b", 32, 8, 4096, 14336, 128256, false},
    {"llama-3.1-70b", 64, 8, 8192, 28672, 128256, false},
};
constexpr std::int32_t kLlamaHeadDim = 128;  // of both models and of the attention table

GpuOp read_op(const CsvTable& table, std::size_t column, std::span<const OpName> names) {
  std::string list;
  for (const auto& [name, op] : names) {
    if (name == table.text(column)) return op;
    list += (list.empty() ? "" : ", ") + std::string(name);
  }
  table.fail(column, "one of " + list);
}

std::size_t index_of(const MeasuredModel& model, std::vector<MeasuredModel>& models) {
  const auto found = std::ranges::find(models, model.name, &MeasuredModel::name);
  if (found != models.end()) return static_cast<std::size_t>(found - models.begin());
  models.push_back(model);
  return models.size() - 1;
}

void read_vidur_layers(const std::string& path, GpuMeasurements& into) {
  CsvTable table(path, "model,n_head,n_kv_head,n_embd,n_ffn,tp,tokens,op,median_ms");
  while (table.next()) {
    MeasuredModel model;
    model.name = table.text(0);
    model.heads = table.integer(1, 1);
    model.kv_heads = table.integer(2, 1);
    model.hidden = table.integer(3, model.heads);
    model.intermediate = table.integer(4, 1);
    LayerMeasurement m;
    m.model = index_of(model, into.models);
    const MeasuredModel& first = into.models[m.model];
    if (first.heads != model.heads || first.kv_heads != model.kv_heads ||
        first.hidden != model.hidden || first.intermediate != model.intermediate) {
      table.fail(0, "a model of the same sizes in every line");
    }
    m.tp = table.integer(5, 1);
    m.tokens = table.integer(6, 1);
    m.op = read_op(table, 7, kVidurOps);
    m.seconds = table.milliseconds(8);
    into.layers.push_back(m);
  }
}

void read_llmservingsim_layers(const std::string& path, GpuMeasurements& into) {
  CsvTable table(path, "model,tp,tokens,op,latency_ms");
  while (table.next()) {
    const auto* model =
        std::ranges::find(kLlmServingSimModels, table.text(0), &MeasuredModel::name);
    if (model == std::end(kLlmServingSimModels)) {
      table.fail(0, "llama-3.1-8b or llama-3.1-70b, whose sizes are known");
    }
    LayerMeasurement m;
    m.model = index_of(*model, into.models);
    m.tp = table.integer(1, 1);
    m.tokens = table.integer(2, 1);
    m.op = read_op(table, 3, kLlmServingSimOps);
    m.seconds = table.milliseconds(4);
    into.layers.push_back(m);
  }
}

void read_attention(const std::string& path, GpuMeasurements& into) {
  CsvTable table(path, "phase,n_q_head,n_kv_head,tp,batch,prefill_chunk,kv_tokens,median_ms");
  while (table.next()) {
    const bool decoding = table.text(0) == "decode";
    if (!decoding && table.text(0) != "prefill") table.fail(0, "prefill or decode");
    const std::int32_t tp = table.integer(3, 1);
    AttentionMeasurement m;
    m.heads = table.integer(1, tp) / tp;
    m.kv_heads = table.integer(2, tp) / tp;
    m.head_dim = kLlamaHeadDim;
    m.batch = table.integer(4, 1);
    m.chunk = table.integer(5, decoding ? 0 : 1);
    if (decoding && m.chunk != 0) table.fail(5, "0 where the phase is decode");
    m.positions = table.integer(6, std::max(1, m.chunk));
    m.seconds = table.milliseconds(7);
    into.attention.push_back(m);
  }
}

void read_collectives(const std::string& path, GpuMeasurements& into) {
  CsvTable table(path, "fabric,collective,workers,bytes,median_ms");
  while (table.next()) {
    CollectiveMeasurement m;
    m.fabric = table.text(0);
    if (table.text(1) == "all_reduce") {
      m.collective = Collective::all_reduce;
    } else if (table.text(1) == "send_recv") {
      m.collective = Collective::send_recv;
    } else {
      table.fail(1, "all_reduce or send_recv");
    }
    m.workers = table.integer(2, 2);
    m.bytes = table.integer(3, 1);
    m.seconds = table.milliseconds(4);
    into.collectives.push_back(m);
  }
}

}  // namespace

GpuMeasurements load_gpu_tables(const std::string& directory) {
  const std::filesystem::path folder = directory;
  GpuMeasurements all;
  read_vidur_layers(folder / "h100_dense_layers_vidur.csv", all);
  read_llmservingsim_layers(folder / "h100_dense_layers_llmservingsim.csv", all);
  read_attention(folder / "h100_attention_llama70b_tp4_llmservingsim.csv", all);
  read_collectives(folder / "h100_collectives_vidur.csv", all);
  return all;
}

}  // namespace paceline::io
