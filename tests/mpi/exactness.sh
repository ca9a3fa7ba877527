#!/usr/bin/env bash
# exactness.sh PACELINE: one digest over ranks, tensor parallelism, batch, prefill chunk, KV block, and the
# order of the prompts.
source "$(dirname "$0")/lib.sh"

rollout 1 "$work/reference" || { cat "$work/reference.log"; exit 1; }
reference=$(digest "$work/reference")

run "the same again" 1
run "2 ranks" 2
run "4 ranks" 4
run "TP 2 on 2 ranks" 2 --set layout.verifier_tp=2
run "TP 2 on 4 ranks" 4 --set layout.verifier_tp=2
run "2 threads" 1 --set engine.threads=2
run "batch 1" 2 --set engine.max_batch=1
run "batch 7" 2 --set engine.max_batch=7
run "prefill chunk 1" 1 --set engine.prefill_chunk=1
run "prefill chunk 17" 2 --set engine.prefill_chunk=17
run "prefill chunk 2048" 1 --set engine.prefill_chunk=2048
run "KV blocks of 16" 1 --set engine.kv_block=16
run "KV blocks of 128, TP 2, batch 7" 2 --set engine.kv_block=128 --set layout.verifier_tp=2 --set engine.max_batch=7
run "little KV memory" 1 --set engine.kv_memory=4MiB
run "prompts leased in another order" 2 --set prompts.shuffle=true

shuf --random-source=<(yes) "$root/configs/prompts/quickstart.jsonl" >"$work/shuffled.jsonl"
run "a shuffled prompt file" 2 --set prompts.path="$work/shuffled.jsonl"

# What must change it, does.
rollout 1 "$work/other" --set sampling.seed=2
if [ "$(digest "$work/other")" != "$reference" ]; then ok "another seed differs"; else fail "another seed gives the same"; fi

# The trajectory files themselves hold the same datasets, byte for byte.
rm -rf "$work/run"
rollout 4 "$work/run" --set engine.max_batch=5
if ! command -v h5diff >/dev/null; then
  echo "SKIP: datasets are not compared: h5diff is not there"
elif h5diff -q "$work/reference/trajectories.h5" "$work/run/trajectories.h5" /trajectories /trajectories &&
   h5diff -q "$work/reference/trajectories.h5" "$work/run/trajectories.h5" /prompts /prompts; then
  ok "datasets equal"
else
  fail "datasets differ"
fi

# One system prompt of many prompts is computed once a group: of 500 tokens 15 blocks of 32. With a head all is computed.
for i in $(seq 0 23); do
  echo "{\"uid\": \"s$i\", \"prompt_tokens\": [$(seq -s, 1 500), $((i + 1)), $((i * 7 % 50 + 3)), 9]}"
done >"$work/alike.jsonl"
alike=(--set prompts.path="$work/alike.jsonl" --set prompts.samples=2 --set sampling.max_tokens=6 --set engine.kv_block=32)
head=(--set "speculation.drafters=[{method: eagle3, path: $root/configs/models/eagle3}]")
reference=$(rollout 1 "$work/whole" "${alike[@]}" "${head[@]}" && digest "$work/whole")
run "prompts that begin alike, each computed whole" 1 "${alike[@]}" "${head[@]}"
whole=$(summed prefill_tokens)
run "prompts that begin alike" 1 "${alike[@]}"
if [ "$whole" = skip ]; then
  echo "SKIP: prefill tokens are not counted: h5py is not there"
else
  same "their beginning is taken over" $((23 * 480)) "$(summed prefix_shared)"
  same "and not computed" $((whole - 23 * 480)) "$(summed prefill_tokens)"
fi
run "prompts that begin alike, 2 ranks, prefill chunk 70" 2 "${alike[@]}" --set engine.prefill_chunk=70 --set engine.max_batch=5
run "prompts that begin alike, TP 2, drafts" 2 "${alike[@]}" --set layout.verifier_tp=2 --set "speculation.drafters=[{method: suffix}]"

# TP 4 needs a model with four kv heads: the Llama 3 parity checkpoint, prompts as token ids.
fixture=$root/tests/models/parity/llama3
for i in $(seq 0 19); do
  tokens=$(seq -s, $((i + 1)) 3 $((i * 11 + 7)))
  echo "{\"uid\": \"t$i\", \"prompt_tokens\": [$tokens]}"
done >"$work/tokens.jsonl"
tp() {  # WHAT RANKS [ARG...]
  local what=$1 ranks=$2 dir=$work/tp
  shift 2
  rm -rf "$dir"
  if rollout "$ranks" "$dir" --set model.path="$fixture" --set prompts.path="$work/tokens.jsonl" \
    --set sampling.ignore_eos=true --set sampling.max_tokens=70 "$@"; then
    digest "$dir"
  else
    tail -n 3 "$dir.log"
  fi
}
for dtype in bf16 fp32; do
  reference=$(tp plain 1 --set model.dtype=$dtype)
  same "Llama 3 $dtype, TP 2" "$reference" "$(tp tp2 2 --set model.dtype=$dtype --set layout.verifier_tp=2)"
  same "Llama 3 $dtype, TP 4" "$reference" "$(tp tp4 4 --set model.dtype=$dtype --set layout.verifier_tp=4)"
  same "Llama 3 $dtype, TP 4, batch 3" "$reference" \
    "$(tp tp4 4 --set model.dtype=$dtype --set layout.verifier_tp=4 --set engine.max_batch=3)"
done
filters=(--set sampling.temperature=0.8 --set sampling.top_k=20 --set sampling.top_p=0.9 --set sampling.min_p=0.02 --set sampling.min_tokens=5)
reference=$(tp plain 1 "${filters[@]}")
same "Llama 3 with filters, TP 4" "$reference" "$(tp tp4 4 "${filters[@]}" --set layout.verifier_tp=4)"
reference=$(tp plain 1 --set sampling.temperature=0)
same "Llama 3 greedy, TP 2 x 2" "$reference" "$(tp tp2 4 --set sampling.temperature=0 --set layout.verifier_tp=2)"

# The embedded mixture.
small+=(--set model.path="$root/configs/models/experts" --set prompts.samples=2)
rollout 1 "$work/experts" || { cat "$work/experts.log"; exit 1; }
reference=$(digest "$work/experts")
drafts() { echo "speculation.drafters=[$1]"; }
run "experts, routing kept" 1 --set sampling.keep_routing=true
run "experts, TP 2 on 4 ranks, batch 1, prefill chunk 17" 4 --set layout.verifier_tp=2 --set engine.max_batch=1 --set engine.prefill_chunk=17
run "experts, chunks and moves between TP 1 and 2" 3 --set layout.verifier_tp=[2,1] --set schedule.chunk=16 \
  --set test.shuffle=[moves] --set schedule.move_kv=both --set engine.max_batch=5 --set sampling.keep_routing=true
run "experts, a draft model and trees, TP 2" 2 --set layout.verifier_tp=2 --set speculation.policy=fixed --set speculation.max_length=4 \
  --set speculation.paths=2 --set "$(drafts "{method: model, path: $root/configs/models/draft}, {method: suffix}, {method: ngram}")"
run "experts, a drafter rank" 2 --set layout.drafters=1 --set speculation.policy=fixed \
  --set "$(drafts "{method: model, path: $root/configs/models/draft}")"
none=()
many=(--set engine.max_batch=64 --set layout.verifier_tp=2)
cut_and_resume KILL "experts" 2 none 2 many

# The embedded model of latent attention, with its own next-token layer: configs/latent.yaml's chains, and trees.
latent=(--set model.path="$root/configs/models/latent")
rollout 1 "$work/latent" "${latent[@]}" || { cat "$work/latent.log"; exit 1; }
reference=$(digest "$work/latent")
mtp=("${latent[@]}" --set speculation.policy=fixed --set speculation.max_length=4 --set "$(drafts "{method: mtp, noise: true}")")
run "latent attention, chains of its own, TP 2" 2 "${mtp[@]}" --set layout.verifier_tp=2 --set engine.prefill_chunk=17
counted "accepted of its chains" accepted
run "latent attention, trees of its own, a rank of two" 2 "${mtp[@]}" --set speculation.paths=3 --set schedule.chunk=16
run "latent attention, chains of a drafter rank" 2 "${mtp[@]}" --set layout.drafters=1

# Pictures: texts alone, with one and with two, the same text with other pictures, and siblings.
vision=$root/tests/models/parity_pictures/qwen2.5-vl
for i in $(seq 0 11); do
  first=$vision/picture-$((i % 3)).png second=$vision/picture-$(((i + 1) % 3)).png
  begin="$(seq -s, 3 $((9 + i / 6)))" end="$(seq -s, 60 $((70 + i % 5)))"
  case $((i % 4)) in
    0) echo "{\"uid\": \"v$i\", \"prompt_tokens\": [$begin,$end]}" ;;
    1) echo "{\"uid\": \"v$i\", \"prompt_tokens\": [$begin,302,300,303,$end], \"images\": [\"$first\"]}" ;;
    *) echo "{\"uid\": \"v$i\", \"prompt_tokens\": [$begin,302,300,303,5,302,300,303,$end], \"images\": [\"$first\", \"$second\"]}" ;;
  esac
done >"$work/pictures.jsonl"
small=(--set model.path="$vision" --set prompts.path="$work/pictures.jsonl" --set prompts.samples=3
  --set sampling.max_tokens=120 --set sampling.ignore_eos=true --set engine.threads=1)
rollout 1 "$work/shown" || { cat "$work/shown.log"; exit 1; }
reference=$(digest "$work/shown")
run "pictures, the same again" 1
computed=$(summed pictures)
if [ "$computed" = skip ]; then echo "SKIP: pictures are not counted: h5py is not there"; else same "each is computed once" 3 "$computed"; fi
run "pictures, 2 ranks, batch 1, prefill chunk 5" 2 --set engine.max_batch=1 --set engine.prefill_chunk=5
# Ranks of a group divide pictures' rows.
run "pictures, TP 2 on 4 ranks, KV blocks of 32, drafts" 4 --set layout.verifier_tp=2 --set engine.kv_block=32 \
  --set "$(drafts "{method: suffix}, {method: ngram}")"
run "pictures, chunks and moves between TP 1 and 2" 3 --set layout.verifier_tp=[2,1] --set schedule.chunk=8 \
  --set test.shuffle=[moves] --set schedule.move_kv=both --set engine.max_batch=5
run "pictures, little KV, bit by bit" 1 --set engine.kv_memory=1MiB --set schedule.chunk=grow
run "pictures, roles at random, the model itself drafts trees" 3 --set layout.drafters=1 --set test.shuffle=[roles] \
  --set speculation.policy=fixed --set speculation.max_length=3 --set "$(drafts "{method: model, path: $vision}")"
many=(--set layout.verifier_tp=2)
cut_and_resume KILL "pictures" 2 none 2 many
finish
