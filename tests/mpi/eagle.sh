#!/usr/bin/env bash
# eagle.sh PACELINE [ahead|coupled [BATCH...]]: EAGLE-3, P-EAGLE and DFlash heads change no digest: chains and trees, batches, tensor parallelism,
# temperatures, moves, short KV and resumes, with the head that was trained for the embedded model where it is there,
# and with heads of random weights, which draft as badly as can be; on the ranks that verify and on drafter ranks. What
# cannot be is refused. With `ahead` every layout with drafter ranks in every batch (of 1, 7 and 64, or those that are
# named) instead, with `coupled` every kind of draft on the ranks that verify; each takes minutes.
source "$(dirname "$0")/lib.sh"

# 100 requests.
head -n 25 "$root/configs/prompts/unseen.jsonl" >"$work/prompts.jsonl"
small=(--set prompts.path="$work/prompts.jsonl" --set prompts.samples=4 --set sampling.max_tokens=48 --set engine.threads=1)
target=$root/configs/models/target
python3 "$here/random_head.py" "$work/random" "$target"
python3 "$here/random_head.py" "$work/reduced" "$target" PREFIX=layers.0. draft_vocab_size=200 norm_before_residual=true
python3 "$here/random_head.py" "$work/newer" "$target" fc_norm=true norm_output=true EMBEDDINGS= \
  hidden_size=48 target_hidden_size="$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["hidden_size"])' \
  "$target/config.json")" eagle_aux_hidden_state_layer_ids=[0,2]
python3 "$here/random_head.py" "$work/beyond" "$target" eagle_aux_hidden_state_layer_ids=[1,2,40]
python3 "$here/random_head.py" "$work/parallel" "$target" PREFIX=layers.0. num_hidden_layers=2 ptd_token_id=3
python3 "$here/random_head.py" "$work/blocks" "$target" num_hidden_layers=2 block_size=8 \
  'dflash_config={"mask_token_id": 509, "target_layer_ids": [0, 2, 4]}'
# It drafts the digit 1 again and again, which is one token in ten.
python3 "$here/random_head.py" "$work/ones" "$target" MARKOV=1 num_hidden_layers=2 block_size=8 \
  'dflash_config={"mask_token_id": 16, "target_layer_ids": [0, 2, 4]}'
python3 "$here/random_stop.py" "$work/stop"
python3 "$here/random_head.py" "$work/other" "$target" vocab_size=500 draft_vocab_size=500
good=$root/configs/models/eagle3
[ -d "$good" ] || good=$work/random

dflash() { echo "speculation.drafters=[{method: dflash, path: $1}${2:+, $2}]"; }
eagle() { echo "speculation.drafters=[{method: eagle3, path: $1}${2:+, $2}]"; }
stopped() { echo "speculation.drafters=[{method: eagle3, path: $good, stop: $1}]"; }
s() { printf ' --set speculation.%s' "$@"; }  # short for settings of the section
tree=$(s policy=fixed max_length=4 paths=3)
whole_tree=$(s policy=fixed max_length=8 paths=10)
chain=$(s policy=fixed max_length=4)

# verified WHAT: of the drafts that verifiers had in the last run() some were accepted. Where a head on drafter ranks is
# the only drafter they are from there.
verified() {
  local count
  count=$("$(command -v /usr/bin/python3 || command -v python3)" - "$work/run/telemetry.h5" 2>/dev/null <<'PY' || echo skip
import sys, h5py
with h5py.File(sys.argv[1]) as f:
    print(int(f["summary/accepted"][:][f["summary/role"][:] == 0].sum()))
PY
  )
  case $count in
    skip) echo "SKIP: $1: h5py is not there" ;;
    0) fail "$1: none" ;;
    *) ok "$1: $count" ;;
  esac
}

plain() {  # [ARG...]: sets the reference
  rm -rf "$work/plain"
  rollout 1 "$work/plain" "$@" || { cat "$work/plain.log"; exit 1; }
  reference=$(digest "$work/plain")
}

ahead() { echo "--set layout.drafters=${1-1} $chain"; }  # chains on so many drafter ranks

# shellcheck disable=SC2086
every_layout() {  # BATCH...: with moves and stops midway
  local batch layout
  plain
  for batch in "$@"; do
    for layout in "2 [1]" "3 [2]" "3 [1,1]" "4 [2,1]"; do
      run "a head on a drafter rank, groups of ${layout#* }, batch $batch" "${layout% *}" --set "$(eagle "$good")" \
        $(ahead) --set layout.verifier_tp="${layout#* }" --set engine.max_batch=$batch
      verified "accepted of a drafter rank's drafts, groups of ${layout#* }, batch $batch"
    done
    run "two drafter ranks for two groups, batch $batch" 4 --set "$(eagle "$good")" $(ahead 2) \
      --set engine.max_batch=$batch
    verified "accepted of two drafter ranks' drafts, batch $batch"
    run "moves at random, batch $batch" 3 --set "$(eagle "$good")" $(ahead) --set test.shuffle=[moves] \
      --set engine.max_batch=$batch
    groups=(--set "$(eagle "$good")" $(ahead) --set layout.verifier_tp=[1,1] --set engine.max_batch=$batch)
    pair=(--set "$(eagle "$good")" $(ahead) --set layout.verifier_tp=[2] --set engine.max_batch=$batch)
    cut_and_resume USR1 "two groups, batch $batch" 3 groups 3 pair
    cut_and_resume KILL "TP 2, batch $batch" 3 pair 3 groups
  done
  finish
}

# shellcheck disable=SC2086
every_draft() {  # BATCH...: with stops midway, after which the other number of ranks goes on
  local batch kind
  local -A settings=([chains]="$(eagle "$good")" [trees]="$(eagle "$good")" ["stopped trees"]="$(stopped "$work/stop")")
  local -A shape=([chains]=$chain [trees]=$whole_tree ["stopped trees"]=$whole_tree)
  plain
  for batch in "$@"; do
    for kind in chains trees "stopped trees"; do
      one=(--set "${settings[$kind]}" ${shape[$kind]} --set engine.max_batch=$batch)
      pair=("${one[@]}" --set layout.verifier_tp=2)
      run "$kind, one rank, batch $batch" 1 "${one[@]}"
      counted "accepted of $kind, batch $batch" accepted
      run "$kind, TP 2, batch $batch" 2 "${pair[@]}"
      cut_and_resume USR1 "$kind, batch $batch" 1 one 2 pair
      cut_and_resume KILL "$kind, TP 2, batch $batch" 2 pair 1 one
    done
  done
  finish
}
case ${2-} in
  ahead) every=every_layout ;;
  coupled) every=every_draft ;;
esac
if [ -n "${every-}" ]; then
  if [ $# -gt 2 ]; then $every "${@:3}"; else $every 1 7 64; fi
  exit
fi

# shellcheck disable=SC2086
{
plain
run "a head on a drafter rank" 2 --set "$(eagle "$good")" $(ahead) --set engine.max_batch=7
verified "accepted of a drafter rank's drafts"
run "a head on a drafter rank for two groups, moves at random" 3 --set "$(eagle "$good")" $(ahead) \
  --set test.shuffle=[moves] --set engine.max_batch=20
run "a head on a drafter rank, TP 2" 3 --set "$(eagle "$good")" $(ahead) --set layout.verifier_tp=2
run "a head of reduced vocabulary on a drafter rank beside trees, short KV, small chunks" 2 \
  --set "$(eagle "$work/reduced" "{method: suffix}")" $(ahead) --set engine.kv_memory=1MiB --set engine.prefill_chunk=17
run "a drafter rank that sends garbage" 2 --set "test.faults={drafters: garbage}" --set "$(eagle "$good")" $(ahead) \
  --set engine.max_batch=7
run "heads on ranks that change roles" 3 --set "$(eagle "$good")" $(ahead) --set test.shuffle=[roles] \
  --set test.seed=2 --set engine.max_batch=7
for batch in 1 7 64; do
  run "chains, batch $batch" 1 --set "$(eagle "$good")" $chain --set engine.max_batch=$batch
  run "trees, batch $batch" 1 --set "$(eagle "$good")" $tree --set engine.max_batch=$batch
done
run "chains, TP 2" 2 --set "$(eagle "$good")" $chain --set layout.verifier_tp=2
counted "accepted of chains" accepted
of_chains=$(summed accepted)
run "trees, TP 2" 2 --set "$(eagle "$good")" $tree --set layout.verifier_tp=2
counted "accepted of trees" accepted
of_trees=$(summed accepted)
case $of_chains/$of_trees in
  *skip*) echo "SKIP: trees against chains: h5py is not there" ;;
  *) if [ "$of_trees" -gt "$of_chains" ]; then ok "more than of chains"; else fail "trees: no more than of chains"; fi ;;
esac
run "whole trees" 2 --set "$(eagle "$good")" $whole_tree --set engine.max_batch=20
for batch in 1 20; do
  run "trees that a network ends, batch $batch" 2 --set "$(stopped "$work/stop")" $whole_tree --set engine.max_batch=$batch
done
run "trees that a network ends, TP 2" 2 --set "$(stopped "$work/stop")" $whole_tree --set layout.verifier_tp=2
counted "accepted of trees that a network ends" accepted
run "trees, TP 2, reduced vocabulary" 2 --set "$(eagle "$work/reduced")" $tree --set layout.verifier_tp=2
run "EAGLE-3.1, two layers, embeddings of its own" 2 --set "$(eagle "$work/newer")" $tree --set engine.max_batch=7
same "the plan says what it reads" 1 \
  "$(grep -c "reads the inputs of layers 0, 2 (the model has [0-9]* layers), and embeddings of its own" "$work/run.log" || true)"
run "EAGLE-3.1 on a drafter rank, TP 2" 3 --set "$(eagle "$work/newer")" $(ahead) --set layout.verifier_tp=2
run "P-EAGLE, chains" 2 --set "$(eagle "$work/parallel")" $chain --set layout.verifier_tp=2
run "P-EAGLE, trees, small chunks, short KV" 1 --set "$(eagle "$work/parallel")" $whole_tree --set engine.prefill_chunk=17 \
  --set engine.kv_memory=2MiB --set engine.max_batch=20
run "P-EAGLE on a drafter rank, moves at random" 3 --set "$(eagle "$work/parallel")" $(ahead) --set test.shuffle=[moves] \
  --set engine.max_batch=7
for batch in 1 20; do
  run "DFlash, chains, batch $batch" 1 --set "$(dflash "$work/blocks")" $chain --set engine.max_batch=$batch
done
run "DFlash, whole blocks, TP 2" 2 --set "$(dflash "$work/ones")" $(s policy=fixed max_length=20) --set layout.verifier_tp=2
counted "accepted of a DFlash head" accepted
run "DFlash, trees, small chunks, short KV" 1 --set "$(dflash "$work/blocks")" $whole_tree --set engine.prefill_chunk=17 \
  --set engine.kv_memory=2MiB --set engine.max_batch=20
run "DFlash on a drafter rank, groups of 2 and 1" 4 --set "$(dflash "$work/ones")" $(ahead) --set layout.verifier_tp=[2,1] \
  --set test.shuffle=[moves] --set engine.max_batch=7
run "DFlash by costs, beside trees of siblings" 2 --set "$(dflash "$work/blocks" "{method: suffix}")"
run "random weights, reduced vocabulary, small chunks" 1 --set "$(eagle "$work/reduced")" $chain \
  --set engine.prefill_chunk=17 --set engine.kv_block=32 --set engine.max_batch=7
run "by costs" 1 --set "$(eagle "$good")"
run "by costs, beside trees of siblings" 2 --set "$(eagle "$good" "{method: suffix}")" --set speculation.paths=4
run "beside a draft model" 2 --set "$(eagle "$good" "{method: model, path: $root/configs/models/draft}")" \
  $(s policy=fixed max_length=3 paths=2)
run "short KV: requests wait, and go on elsewhere" 2 --set "$(eagle "$good")" $tree --set engine.kv_memory=1MiB
run "chunks of 16 in little KV, a stop network" 2 --set "$(stopped "$work/stop")" $whole_tree --set schedule.chunk=16 \
  --set engine.kv_memory=2MiB --set engine.max_batch=20
run "best of N" 3 --set "$(eagle "$good" "{method: suffix}")" $tree --set speculation.best_of_n=true --set engine.max_batch=5
run "moves at random" 3 --set "$(eagle "$good")" $chain --set test.shuffle=[moves] --set engine.max_batch=5
run "a draft model on a drafter rank, a head on the verifier" 2 --set layout.drafters=1 $chain \
  --set "$(eagle "$good" "{method: model, path: $root/configs/models/draft}")"

plain --set sampling.temperature=0
run "greedy chains" 1 --set sampling.temperature=0 --set "$(eagle "$good")" $chain
run "greedy trees" 2 --set sampling.temperature=0 --set "$(eagle "$good")" $tree
plain --set sampling.temperature=0.8 --set sampling.top_p=0.9 --set sampling.min_tokens=20
run "filtered trees" 2 --set sampling.temperature=0.8 --set sampling.top_p=0.9 --set sampling.min_tokens=20 \
  --set "$(eagle "$good")" $tree
plain --set model.dtype=fp32
run "trees in fp32" 1 --set model.dtype=fp32 --set "$(eagle "$good")" $tree
run "a head on a drafter rank, in fp32" 2 --set model.dtype=fp32 --set "$(eagle "$good")" $(ahead) --set engine.max_batch=7
verified "accepted of a drafter rank's drafts in fp32"

plain
both=(--set "$(eagle "$good")" $tree --set engine.max_batch=2)
other=(--set "$(eagle "$work/reduced")" $chain)
cut_and_resume USR1 "trees" 2 both 1 other
cut_and_resume KILL "chains" 2 other 2 both
served=(--set "$(eagle "$good")" $(ahead) --set engine.max_batch=2)
cut_and_resume USR1 "a head on a drafter rank" 2 served 2 both
cut_and_resume KILL "trees" 2 both 3 served
}

# refused WHAT CODE PATTERN COMMAND [ARG...]
refused() {
  local what=$1 expected=$2 pattern=$3 code=0
  shift 3
  at_once "$here/launch.sh" 2 "$paceline" "$@" "${small[@]}" >"$work/refused.log" 2>&1 || code=$?
  same "$what: exit code" "$expected" "$code"
  if grep -qE "^paceline: .*$pattern" "$work/refused.log"; then ok "$what: says why"; else fail "$what: $(tail -n 3 "$work/refused.log")"; fi
}
refused "a stop network on drafter ranks" 64 "speculation.drafters: a stop network judges trees" check "$config" \
  --output "$work/none" --set "$(stopped "$work/stop")" $whole_tree --set layout.drafters=1
refused "stops recorded of drafter ranks" 64 "layout.drafters: record_stops" check "$config" \
  --output "$work/none" --set "speculation.drafters=[{method: eagle3, path: $good, record_stops: 4}]" $whole_tree --set layout.drafters=1
refused "a head of another model" 65 "config.json: vocab_size: expected 512" check "$config" --output "$work/none" --set "$(eagle "$work/other")"
refused "a head of a deeper model" 65 "config.json: eagle_aux_hidden_state_layer_ids: .*found what enters layer 40" \
  check "$config" --output "$work/none" --set "$(eagle "$work/beyond")"
refused "a stop network without the paths it reads" 64 "speculation.paths: .* reads the 10 likeliest paths.* found 3" \
  check "$config" --output "$work/none" --set "$(stopped "$work/stop")" $tree
refused "a stop network that is none" 65 "no tensor lstm.weight_ih_l0" check "$config" --output "$work/none" \
  --set "$(stopped "$work/random")" $whole_tree
refused "a stop network for a head of one pass" 64 "is a P-EAGLE head, .* expected neither stop nor record_stops, found stop" \
  check "$config" --output "$work/none" --set "speculation.drafters=[{method: eagle3, path: $work/parallel, stop: $work/stop}]" $whole_tree
# spoilt WHAT PATTERN KEY=VALUE...: a DFlash head whose config.json says otherwise
spoilt() {
  local what=$1 pattern=$2
  shift 2
  rm -rf "$work/spoilt"
  cp -r "$work/blocks" "$work/spoilt"
  python3 -c 'import json, sys
path = sys.argv[1] + "/config.json"
text = json.load(open(path))
for key, value in (argument.split("=") for argument in sys.argv[2:]):
    (text["dflash_config"] if key in text["dflash_config"] else text)[key] = json.loads(value)
json.dump(text, open(path, "w"))' "$work/spoilt" "$@"
  refused "$what" 65 "$pattern" check "$config" --output "$work/none" --set "$(dflash "$work/spoilt")"
}
spoilt "a mask outside the vocabulary" "dflash_config.mask_token_id: expected a whole number from 0 to 511, found 512" mask_token_id=512
spoilt "layers that the model lacks" "target_layer_ids: expected layers of the model, which has 6, found what enters layer 10" \
  target_layer_ids=[0,2,9]
spoilt "a block of one" "block_size: expected a whole number from 2 to 1024, found 1" block_size=1
spoilt "another width" "tensor 'fc.weight': expected shape \[128, 384\] .by config.json., found \[256, 768\]" hidden_size=128
spoilt "more layers than there are" "tensor 'layers.2.input_layernorm.weight': missing; expected shape \[256\]" num_hidden_layers=3
spoilt "windows" "layer_types: expected full_attention alone" 'layer_types=["sliding_attention", "full_attention"]'
refused "a DFlash head by the other method" 65 "architectures: expected .*, found 'DFlashDraftModel'" \
  check "$config" --output "$work/none" --set "$(eagle "$work/blocks")"
mkdir "$work/pickle"
cp "$work/random/config.json" "$work/pickle"
touch "$work/pickle/pytorch_model.bin"
refused "a pickle" 65 "found pytorch_model.bin; convert it" check "$config" --output "$work/none" --set "$(eagle "$work/pickle")"
finish
