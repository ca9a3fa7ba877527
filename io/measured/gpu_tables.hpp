// Published measurements of H100 GPUs, from vidur (microsoft/vidur) and LLMServingSim
// (casys-kaist/LLMServingSim). The files are in configs/simulated/h100.
#pragma once

#include <string>

#include "runtime/core/gpu_measurements.hpp"

namespace paceline::io {

/// Loads a folder that has all four files. Their first lines are:
/// - h100_dense_layers_vidur.csv: model,n_head,n_kv_head,n_embd,n_ffn,tp,tokens,op,median_ms.
///   Kernel times of one GPU's part at this TP. Query, key and value are one projection, and so are
///   gate and up.
/// - h100_dense_layers_llmservingsim.csv: model,tp,tokens,op,latency_ms. The same, except that each
///   projection is separate, the head is included, and norms and rotary embedding are not fused.
///   Sizes of the models are not in the file: llama-3.1-8b and llama-3.1-70b are known.
/// - h100_attention_llama70b_tp4_llmservingsim.csv:
///     phase,n_q_head,n_kv_head,tp,batch,prefill_chunk,kv_tokens,median_ms.
///   Heads are the whole model's. kv_tokens is the sum over the requests of the batch, so in a
///   batch of 33 with kv_tokens 32 at least one request attends to nothing.
/// - h100_collectives_vidur.csv: fabric,collective,workers,bytes,median_ms.
///
/// Throws DataError naming file, line, the expected and the found value, also if a file is missing.
/// Throws IoError if reading fails. Thread-safe.
[[nodiscard]] GpuMeasurements load_gpu_tables(const std::string& directory);

}  // namespace paceline::io
