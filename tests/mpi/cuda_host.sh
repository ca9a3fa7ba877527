#!/usr/bin/env bash
# cuda_host.sh PACELINE: the CUDA backend on its emulation, one digest over batch, prefill chunk, KV block, tensor
# parallelism and speculation. Small: the emulation is slow.
PACELINE_TEST_BACKEND=cuda
source "$(dirname "$0")/lib.sh"
fixture=$root/tests/models/parity/llama3
# Ranks have an emulated device each, which are one to whoever asks; NCCL's stand-in serves them.
export NCCL_MULTI_RANK_GPU_ENABLE=1
for i in $(seq 0 5); do
  tokens=$(seq -s, $((i + 1)) 3 $((i * 11 + 7)))
  echo "{\"uid\": \"t$i\", \"prompt_tokens\": [$tokens]}"
done >"$work/tokens.jsonl"
small=(--set model.path="$fixture" --set prompts.path="$work/tokens.jsonl" --set prompts.samples=2
  --set sampling.ignore_eos=true --set sampling.max_tokens=14 --set engine.kv_memory=4MiB --set engine.threads=1)

"$paceline" check "$config" --set engine.backend=auto >"$work/check.log" 2>&1 || cat "$work/check.log"
if grep -q 'backend cuda' "$work/check.log"; then
  ok "auto takes a device that was measured"
else
  fail "auto beside a device that was measured: $(cat "$work/check.log")"
fi
PACELINE_HOST_DEVICE=sm_80 "$paceline" check "$config" --set engine.backend=auto >"$work/check.log" 2>&1 || cat "$work/check.log"
if grep -q 'backend cpu' "$work/check.log" && grep -q 'to try it: engine.backend: cuda' "$work/check.log"; then
  ok "auto keeps to the CPU and says how to ask for the device"
else
  fail "auto beside a device that was never measured: $(cat "$work/check.log")"
fi

code=0
PACELINE_HOST_DEVICE=sm_75 "$paceline" check "$config" --set engine.backend=cuda >"$work/check.log" 2>&1 || code=$?
same "a device that is too old: exit code" 64 "$code"
if grep -q 'cannot be used: compute capability 7.5, expected 8.0 or later' "$work/check.log"; then
  ok "a device that is too old is named"
else
  fail "a device that is too old: $(cat "$work/check.log")"
fi

for dtype in bf16 fp32; do
  set_dtype=(--set model.dtype=$dtype --set layout.verifier_tp=1)
  rollout 1 "$work/$dtype" "${set_dtype[@]}" || { cat "$work/$dtype.log"; exit 1; }
  grep -q 'backend cuda' "$work/$dtype.log" || { echo "not on the cuda backend"; exit 1; }
  reference=$(digest "$work/$dtype")
  for tp in 1 2; do  # log-probabilities of what was sampled, computed again
    "$here/launch.sh" $tp "$paceline" score "$config" "$work/$dtype" "${backend[@]}" "${small[@]}" --set model.dtype=$dtype \
      --set layout.verifier_tp=$tp --set engine.prefill_chunk=16 >"$work/score.log" 2>&1 || cat "$work/score.log"
    same "$dtype, scored, TP $tp" 1 "$(grep -c "^all log-probabilities equal the run's in every bit" "$work/score.log" || true)"
  done
  run "$dtype, batch 5, prefill chunk 3" 1 "${set_dtype[@]}" --set engine.max_batch=5 --set engine.prefill_chunk=3
  PACELINE_HOST_DEVICE=sm_86 run "$dtype, a device of less shared memory" 1 "${set_dtype[@]}"
  run "$dtype, batch 1, KV blocks of 64" 1 "${set_dtype[@]}" --set engine.max_batch=1 --set engine.kv_block=64
  run "$dtype, TP 2" 2 "${set_dtype[@]}" --set layout.verifier_tp=2
  if grep -q 'sums over NCCL' "$work/run.log"; then ok "its sums go over NCCL"; else fail "they do not go over NCCL"; fi
  NCCL_MULTI_RANK_GPU_ENABLE=0 run "$dtype, TP 2 through host memory" 2 "${set_dtype[@]}" --set layout.verifier_tp=2
  if grep -q 'sums through host memory' "$work/run.log"; then ok "they do"; else fail "they do not"; fi
  run "$dtype, ranks attend to their own requests" 2 "${set_dtype[@]}" --set layout.attention=data \
    --set layout.verifier_tp=2 --set engine.max_batch=5
  run "$dtype, TP 4, batch 3" 4 "${set_dtype[@]}" --set layout.verifier_tp=4 --set engine.max_batch=3
  for shape in "max_length=4" "max_length=5 paths=3"; do
    speculation=(--set speculation.policy=fixed --set "speculation.drafters=[{method: ngram, min_match: 1}, {method: suffix, min_probability: 0.02}, {method: model, path: $fixture}]")
    for setting in $shape; do speculation+=(--set "speculation.$setting"); done
    run "$dtype, drafts of $shape" 1 "${set_dtype[@]}" "${speculation[@]}"
    run "$dtype, drafts of $shape, TP 2" 2 "${set_dtype[@]}" "${speculation[@]}" --set layout.verifier_tp=2
  done
  run "$dtype, the draft model's memory comes and goes" 2 "${set_dtype[@]}" "${speculation[@]}" --set layout.verifier_tp=2 \
    --set test.shuffle=[memory] --set engine.kv_memory=1MiB
  if grep -q "more KV blocks" "$work/run.log"; then ok "it has some to give"; else fail "it has none to give"; fi
done

NCCL_MULTI_RANK_GPU_ENABLE=0 run "$dtype, own requests, a rank with none, trees, through host memory" 2 "${set_dtype[@]}" \
  --set layout.attention=data --set layout.verifier_tp=2 --set engine.max_batch=1 "${speculation[@]}"

# Penalties and biases, which a line may have of its own, few tokens to sample from, and the most probable tokens.
python3 - "$work/tokens.jsonl" "$work/penalties.jsonl" <<'PY'
import json, sys
with open(sys.argv[1]) as given, open(sys.argv[2], "w") as file:
    for p, line in enumerate(given):
        own = {"repetition_penalty": 1.5, "logit_bias": {"20": 1.5}} if p % 2 else {}
        file.write(json.dumps(json.loads(line) | own) + "\n")
PY
allowed=$(seq -s, 10 59)
changed=(--set model.dtype=fp32 --set prompts.path="$work/penalties.jsonl" --set sampling.repetition_penalty=1.2
  --set sampling.presence_penalty=0.4 --set sampling.frequency_penalty=0.2 --set 'sampling.logit_bias={30: -2, 16: 1}'
  --set "sampling.allowed_ids=[$allowed]" --set sampling.logprobs=4)
rollout 1 "$work/changed" "${changed[@]}" || { cat "$work/changed.log"; exit 1; }
rollout 1 "$work/unchanged" --set model.dtype=fp32 --set prompts.path="$work/penalties.jsonl" \
  --set "sampling.allowed_ids=[$allowed]" || { cat "$work/unchanged.log"; exit 1; }
reference=$(digest "$work/changed")
if [ "$reference" = "$(digest "$work/unchanged")" ]; then fail "penalties change nothing"; else ok "penalties change responses"; fi
run "penalties, TP 2, batch 5" 2 "${changed[@]}" --set layout.verifier_tp=2 --set engine.max_batch=5
run "penalties, trees" 1 "${changed[@]}" --set speculation.policy=fixed --set speculation.max_length=4 \
  --set speculation.paths=3 --set "speculation.drafters=[{method: ngram, min_match: 1}, {method: suffix, min_probability: 0.02}]"
"$here/launch.sh" 2 "$paceline" score "$config" "$work/changed" "${backend[@]}" "${small[@]}" "${changed[@]}" \
  --set layout.verifier_tp=2 >"$work/score.log" 2>&1 || cat "$work/score.log"
same "penalties, scored" 1 "$(grep -c "^all log-probabilities equal the run's in every bit" "$work/score.log" || true)"
python=$(command -v /usr/bin/python3 || command -v python3)
if "$python" -c 'import h5py' 2>/dev/null; then
  code=0
  said=$("$python" "$here/stop_values.py" same_top "$work/changed" "$work/run" 2>&1) || code=$?
  same "penalties, the most probable: $said" 0 "$code"
fi

# A link that fails ends the job, which would hang for good; whether or not NCCL notices.
code=0
NCCL_STAND_IN_LOSE=1:60 rollout 2 "$work/lost" --set layout.verifier_tp=2 || code=$?
same "a failed link: exit code" 70 "$code"
if grep -q 'NCCL, in the background: remote process exited' "$work/lost.log"; then
  ok "it is said what NCCL found"
else
  fail "a failed link: $(tail -n 3 "$work/lost.log")"
fi
code=0
NCCL_STAND_IN_LOSE=1:60:silently rollout 2 "$work/silent" --set layout.verifier_tp=2 --set limits.stall=3 || code=$?
same "a silent link: exit code" 70 "$code"
# Where the machine is slower than that, the coordinator may be the first to find that nothing goes on.
if grep -qE 'has waited for the other ranks|limits.stall' "$work/silent.log"; then
  ok "it is said what was waited for"
else
  fail "a silent link: $(tail -n 3 "$work/silent.log")"
fi

# A head on what another model computes.
fixture=$root/tests/models/parity/qwen2-sharded
python3 "$here/random_head.py" "$work/head" "$fixture" draft_vocab_size=111
small[1]=model.path="$fixture"
for dtype in bf16 fp32; do
  set_dtype=(--set model.dtype=$dtype)
  rollout 1 "$work/three-$dtype" "${set_dtype[@]}" || { cat "$work/three-$dtype.log"; exit 1; }
  reference=$(digest "$work/three-$dtype")
  for shape in "max_length=4" "max_length=4 paths=3"; do
    speculation=(--set speculation.policy=fixed --set "speculation.drafters=[{method: eagle3, path: $work/head}]")
    for setting in $shape; do speculation+=(--set "speculation.$setting"); done
    run "$dtype, a head's drafts of $shape, TP 2" 2 "${set_dtype[@]}" "${speculation[@]}" --set layout.verifier_tp=2
  done
done
# A mixture: its experts' rows take places on the device, and ranks have some of the experts each.
fixture=$root/tests/models/parity/qwen2-moe
small[1]=model.path="$fixture"
rollout 1 "$work/mixture" --set model.dtype=bf16 || { cat "$work/mixture.log"; exit 1; }
reference=$(digest "$work/mixture")
run "mixture, batch 1, prefill chunk 3" 1 --set model.dtype=bf16 --set engine.max_batch=1 --set engine.prefill_chunk=3
run "mixture, TP 2" 2 --set model.dtype=bf16 --set layout.verifier_tp=2
run "mixture, drafts of its own text, TP 2" 2 --set model.dtype=bf16 --set layout.verifier_tp=2 \
  --set speculation.policy=fixed --set "speculation.drafters=[{method: ngram, min_match: 1}]" --set speculation.max_length=4
run "mixture, ranks attend to their own requests" 2 --set model.dtype=bf16 --set layout.attention=data \
  --set layout.verifier_tp=2 --set engine.max_batch=5 --set sampling.keep_routing=true
python3 "$here/random_model.py" "$work/latent" EXPERTS=deepseek_v3 num_key_value_heads=4
small[1]=model.path="$work/latent"
rollout 1 "$work/latent-plain" --set model.dtype=bf16 || { cat "$work/latent-plain.log"; exit 1; }
reference=$(digest "$work/latent-plain")
run "latent attention, ranks attend to their own requests" 2 --set model.dtype=bf16 --set layout.attention=data \
  --set layout.verifier_tp=2 --set engine.prefill_chunk=5

# Pictures, whose rows ranks divide in the tower, which has windows.
fixture=$root/tests/models/parity_pictures/qwen2.5-vl
for i in 0 1 2; do
  echo "{\"uid\": \"p$i\", \"prompt_tokens\": [5, 302, 300, 303, $((7 + i)), 302, 300, 303, 9]," \
    "\"images\": [\"$fixture/picture-$((i % 2)).png\", \"$fixture/picture-1.png\"]}"
done >"$work/shown.jsonl"
small[1]=model.path="$fixture"
small[3]=prompts.path="$work/shown.jsonl"
for dtype in bf16 fp32; do
  set_dtype=(--set model.dtype=$dtype)
  rollout 1 "$work/shown-$dtype" "${set_dtype[@]}" || { cat "$work/shown-$dtype.log"; exit 1; }
  reference=$(digest "$work/shown-$dtype")
  run "$dtype, pictures, batch 1, prefill chunk 5" 1 "${set_dtype[@]}" --set engine.max_batch=1 --set engine.prefill_chunk=5
  run "$dtype, pictures, TP 2" 2 "${set_dtype[@]}" --set layout.verifier_tp=2
done
run "pictures, ranks attend to their own requests" 2 "${set_dtype[@]}" --set layout.attention=data --set layout.verifier_tp=2
NCCL_MULTI_RANK_GPU_ENABLE=0 run "pictures, TP 2 through host memory, drafts of their own text" 2 "${set_dtype[@]}" \
  --set layout.verifier_tp=2 --set speculation.policy=fixed --set "speculation.drafters=[{method: ngram, min_match: 1}]" \
  --set speculation.max_length=4
"$here/launch.sh" 2 "$paceline" score "$config" "$work/shown-fp32" "${backend[@]}" "${small[@]}" "${set_dtype[@]}" \
  --set layout.verifier_tp=2 >"$work/score.log" 2>&1 || cat "$work/score.log"
same "pictures, scored" 1 "$(grep -c "^all log-probabilities equal the run's in every bit" "$work/score.log" || true)"
finish
