#!/usr/bin/env bash
# elastic.sh PACELINE: one digest where the memory of draft models becomes KV's and theirs again, at random steps and by
# the policy: with groups of TP 2, trees, requests that move, chunks, roles that change, stops and kills.
source "$(dirname "$0")/lib.sh"

python=$(command -v /usr/bin/python3 || command -v python3)
if ! "$python" -c 'import h5py' 2>/dev/null; then
  echo "SKIP: telemetry of draft models' memory is not checked: h5py is not there"
  python=
fi
# changed: whether in the last run memory went to and fro, blocks moved when a pool shrank, and models came back; says it
# in $counts.
changed() {
  local expanded contracted resumed moved sizes
  read -r expanded contracted resumed moved sizes < <(PYTHONPATH="$root/io/python" "$python" - "$work/run" <<'PY'
import sys
from paceline_reader import draft_memory
changes = draft_memory(sys.argv[1])
kinds = list(changes["kind"])
print(*(kinds.count(kind) for kind in ("expanded", "contracted", "resumed")), changes["moved"].sum(),
      len(set(changes["blocks"])))
PY
  ) || return 1
  counts="$expanded expansions, $contracted contractions, $moved blocks moved, models back $resumed times"
  [ "$expanded" -gt 0 ] && [ "$contracted" -gt 0 ] && [ "$resumed" -gt 0 ] && [ "$moved" -gt 0 ] && [ "$sizes" = 2 ]
}

rollout 1 "$work/reference" || { cat "$work/reference.log"; exit 1; }
reference=$(digest "$work/reference")
model="{method: model, path: $root/configs/models/draft}"
seed=0
# forced WHAT RANKS [ARG...]: with room for four or five requests on each rank.
forced() {
  local what=$1 ranks=$2
  shift 2
  run "$what" "$ranks" --set test.shuffle=[memory] --set test.seed=$((++seed)) \
    --set speculation.policy=fixed --set "speculation.drafters=[$model]" --set engine.kv_memory=3MiB \
    --set engine.max_batch=16 "$@"
}
# changes WHAT RANKS [ARG...]: a forced run in which memory did change hands. Steps at which it may are drawn, and what
# is in the way then depends on the machine: one of three runs is enough.
changes() {
  local attempt counts="nothing is known"
  for attempt in 1 2 3; do
    forced "$@"
    [ -n "$python" ] || return 0
    if changed; then ok "memory: $counts"; return 0; fi
  done
  fail "memory, in $attempt runs: $counts"
}
chunks=(--set schedule.chunk=16)
trees=(--set "speculation.drafters=[{method: ngram}, $model]" --set speculation.paths=2 --set speculation.max_length=4)
changes "one rank, whose weights go too" 1
changes "TP 2, trees, chunks" 2 --set layout.verifier_tp=2 "${trees[@]}" "${chunks[@]}"
changes "groups of TP 2 and 1, moves" 3 --set layout.verifier_tp=[2,1] --set test.shuffle=[memory,moves] "${trees[@]}" "${chunks[@]}"
if grep -q "lends their memory to KV: [0-9]* more KV blocks" "$work/run.log"; then ok "the plan says so"; else fail "the plan: $(head -n 30 "$work/run.log")"; fi
forced "roles that change, races" 3 --set layout.verifier_tp=[2,1] --set test.shuffle=[memory,moves,roles,races] "${chunks[@]}"
forced "messages delayed, parking" 2 "${delays[@]}" --set test.shuffle=[memory,moves] --set schedule.chunk=grow

# The policy's own changes depend on what drafts are worth on this machine.
tight=(--set speculation.elastic_memory=true --set "speculation.drafters=[$model]" --set engine.kv_memory=2MiB
  --set engine.max_batch=16)
run "by the policy" 2 "${tight[@]}"
before=("${tight[@]}" --set test.shuffle=[memory])
cut_and_resume USR1 "memory that changes hands" 2 before 1 tight
run "no draft model" 1 --set speculation.elastic_memory=true
finish
