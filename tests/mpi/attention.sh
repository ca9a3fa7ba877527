#!/usr/bin/env bash
# attention.sh PACELINE: groups whose ranks have the KV of their own requests (layout.attention: data) give the digest of
# plain decoding on one rank: dense models, mixtures and latent attention, with drafts and trees, batches in which some
# rank has nothing to do, little KV, chunks whose KV is stored and restored, moves, races, roles that change, kill and
# resume.
source "$(dirname "$0")/lib.sh"
data() { echo --set layout.attention=data --set "layout.verifier_tp=$1"; }
drafts() { echo "speculation.drafters=[$1]"; }
trees=(--set speculation.policy=fixed --set speculation.max_length=5 --set speculation.paths=3
  --set "$(drafts '{method: ngram, min_match: 1}, {method: suffix, min_probability: 0.02}')")

# The embedded model.
rollout 1 "$work/plain" || { cat "$work/plain.log"; exit 1; }
reference=$(digest "$work/plain")
run "2 ranks" 2 $(data 2)
run "2 groups, batch 1: a rank of each has nothing to do" 4 $(data 2) --set engine.max_batch=1 --set engine.prefill_chunk=17
run "little KV, bit by bit, trees" 2 $(data 2) --set engine.kv_memory=5MB --set schedule.chunk=grow "${trees[@]}"
run "draft models beside it, chunks, their memory comes and goes" 2 $(data 2) --set schedule.chunk=16 \
  --set test.shuffle=[memory] --set speculation.policy=fixed --set speculation.elastic_memory=true \
  --set "$(drafts "{method: model, path: $root/configs/models/draft}, {method: suffix}")"
run "drafter ranks, races and roles at random" 4 $(data '[2,1]') --set layout.drafters=1 --set test.shuffle=[roles,races,moves] \
  --set speculation.policy=fixed --set "$(drafts "{method: model, path: $root/configs/models/draft}, {method: suffix}")"

# The embedded mixture: experts of each token are recorded where their KV is.
small+=(--set model.path="$root/configs/models/experts" --set prompts.samples=2)
rollout 1 "$work/experts" --set sampling.keep_routing=true || { cat "$work/experts.log"; exit 1; }
reference=$(digest "$work/experts")
# experts DIR: a hash of the experts that a run recorded; "skip" without h5py.
experts() {
  PYTHONPATH=$root/io/python "$(command -v /usr/bin/python3 || command -v python3)" - "$1" 2>/dev/null <<'PY' || echo skip
import hashlib, sys
import h5py
from paceline_reader import open_run
with open_run(sys.argv[1]) as run:
    print(hashlib.blake2b(b"".join(run.routed_experts(i).tobytes() for i in range(len(run))), digest_size=8).hexdigest())
PY
}
recorded=$(experts "$work/experts")
run "experts, 2 groups" 4 $(data 2) --set sampling.keep_routing=true --set engine.max_batch=5
same "and the experts that they used" "$recorded" "$(experts "$work/run")"
run "experts, chunks, little KV pool, moves" 3 $(data '[2,1]') --set schedule.chunk=16 --set test.shuffle=[moves] \
  --set schedule.move_kv=both --set engine.max_batch=5 --set kv_pool.memory=1MiB --set sampling.keep_routing=true
same "and the experts that they used" "$recorded" "$(experts "$work/run")"
for part in 1 2; do
  start $((2 * part)) "$work/killed" $(data 2) --set engine.max_batch=4 --set output.flush_seconds=0.05 --resume
  sleep 1.$((part * 3))
  kill -9 "$pid" 2>/dev/null || true
  wait "$pid" 2>/dev/null || true
  sleep 1
done
rollout 4 "$work/killed" --resume $(data 2) || fail "killed: $(tail -n 3 "$work/killed.log")"
same "killed twice and resumed by 4 ranks" "$reference" "$(digest "$work/killed")"

# Latent attention, of random weights, with a next-token layer behind it.
for i in $(seq 0 7); do
  echo "{\"uid\": \"t$i\", \"prompt_tokens\": [$(seq -s, $((i + 1)) 3 $((i * 11 + 7)))]}"
done >"$work/tokens.jsonl"
small=(--set prompts.path="$work/tokens.jsonl" --set prompts.samples=3 --set sampling.ignore_eos=true
  --set sampling.max_tokens=32 --set engine.threads=1)
path=$work/latent
python3 "$here/random_model.py" "$path" EXPERTS=deepseek_v3 num_key_value_heads=4 num_nextn_predict_layers=1
small+=(--set model.path="$path")
rollout 1 "$work/reference" || { cat "$work/reference.log"; exit 1; }
reference=$(digest "$work/reference")
run "latent, 4 ranks" 4 $(data 4) --set engine.max_batch=7 --set engine.prefill_chunk=5
run "latent, chunks in memory and on disk, moves between groups of 4 and 1" 5 $(data '[4,1]') --set schedule.chunk=7 \
  --set kv_pool.memory=1MiB --set kv_pool.disk="$work" --set test.shuffle=[moves] --set schedule.move_kv=transfer
moved=$(summed positions_transferred)
if [ "$moved" = skip ]; then echo "SKIP: KV is not counted: h5py is not there"; elif [ "$moved" -gt 0 ]; then ok "KV moved: $moved positions"; else fail "no KV moved"; fi
run "latent, its next-token layer's trees" 2 $(data 2) --set speculation.policy=fixed --set speculation.max_length=4 \
  --set speculation.paths=3 --set "$(drafts '{method: mtp, noise: true}')" --set schedule.chunk=7

code=0; at_once rollout 2 "$work/gpu" --set layout.attention=date || code=$?
same "a word that is near: exit code" 64 "$code"
if grep -q "layout.attention: expected auto, or one of tensor, data, found 'date'; did you mean 'data'?" "$work/gpu.log"; then
  ok "and says so"
else
  fail "it says: $(tail -n 1 "$work/gpu.log")"
fi
finish
