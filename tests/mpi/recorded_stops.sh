#!/usr/bin/env bash
# recorded_stops.sh PACELINE: runs that record RADAR's dataset have the digest of any other, on 1 and 2 ranks of a group
# and through a resume, and what they record is what happens (recorded_stops.py).
source "$(dirname "$0")/lib.sh"

head -n 24 "$root/configs/prompts/unseen.jsonl" >"$work/prompts.jsonl"
# At temperature 1 the embedded target hardly hesitates. By seed 1 its tokens are unlikely ones (p = 0.006), and which of
# them are points depends a little on the machine's load: once in some twenty runs the test was beyond belief.
small=(--set prompts.path="$work/prompts.jsonl" --set prompts.samples=6 --set sampling.max_tokens=160 --set engine.threads=1
  --set sampling.temperature=2 --set sampling.seed=3)
head=$root/configs/models/eagle3
recording() {  # NOISE: sets `how`
  how=(--set "speculation.drafters=[{method: eagle3, path: $head, noise: $1, max_tokens: 19, record_stops: 9}]"
    --set speculation.policy=fixed --set speculation.paths=10)
}
believed() {  # WHAT LEAST: the points of the last run
  local python=/usr/bin/python3
  "$python" -c 'import h5py' 2>/dev/null || python=python3
  if ! "$python" -c 'import h5py' 2>/dev/null; then
    echo "SKIP: $1: h5py is not there"
  elif "$python" "$here/recorded_stops.py" "$work/run" "$2" >"$work/points.log" 2>&1; then
    ok "$1: $(tail -n 1 "$work/points.log")"
  else
    fail "$1: $(cat "$work/points.log")"
  fi
}

rollout 1 "$work/plain" || { cat "$work/plain.log"; exit 1; }
reference=$(digest "$work/plain")
recording false
run "recorded, batch 4" 1 "${how[@]}" --set engine.max_batch=4
believed "lengths are drawn from what is recorded" 600
run "recorded, TP 2" 2 "${how[@]}" --set layout.verifier_tp=2 --set engine.max_batch=9
believed "lengths at TP 2" 200
recording true
run "recorded under the target's noise" 1 "${how[@]}" --set engine.max_batch=20
one=(--set engine.max_batch=3 "${how[@]}")
recording false
other=(--set engine.max_batch=2 "${how[@]}")
cut_and_resume USR1 "recorded" 1 one 1 other
finish
