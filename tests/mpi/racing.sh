#!/usr/bin/env bash
# racing.sh PACELINE: one digest whoever races (best-of-N): groups that run dry, and any group for any request at
# random, with all drafters, TP groups, moves, role changes, delays, a stop and a kill.
source "$(dirname "$0")/lib.sh"

rollout 1 "$work/reference" || { cat "$work/reference.log"; exit 1; }
reference=$(digest "$work/reference")
python=$(command -v /usr/bin/python3 || command -v python3)

# raced DIR: races, tokens by racers, tokens of them that the holders heard first; "skip" without h5py.
raced() {
  PYTHONPATH=$root/io/python "$python" - "$1" 2>/dev/null <<'PY' || echo skip
import sys, h5py
from paceline_reader import races
with h5py.File(sys.argv[1] + "/telemetry.h5") as f:
    tokens, first = (int(f["summary/" + name][:].sum()) for name in ("raced", "foretold"))
    held = int(f["summary/response_tokens"][:].sum())
table = races(sys.argv[1])
assert len(table["rank"]) == 0 or all(table["tokens"] >= -1)
assert held <= int(h5py.File(sys.argv[1] + "/trajectories.h5")["trajectories/offsets"][-1]), "tokens counted twice"
print(len(table["rank"]), tokens, first)
PY
}

# races_in WHAT DIR: some did, and said something first.
races_in() {
  local counts
  counts=$(raced "$2")
  case $counts in
    skip) echo "SKIP: races are not counted: h5py is not there" ;;
    *" 0 "* | *" 0" | 0*) fail "$1: nobody raced, or to no end: $counts" ;;
    *) ok "$1: races, tokens by racers, tokens said first by them: $counts" ;;
  esac
}

model="{method: model, path: $root/configs/models/draft}"
two=(--set "speculation.drafters=[{method: suffix}, $model]")
chance=(--set test.shuffle=[races])

run "races at random, two methods" 3 "${chance[@]}" "${two[@]}" --set speculation.policy=fixed
races_in "two methods" "$work/run"
run "races at random under goodput" 3 "${chance[@]}" "${two[@]}"
run "races at random, nothing drafts" 3 "${chance[@]}"
run "races at random between TP 2 and 1" 4 "${chance[@]}" "${two[@]}" --set 'layout.verifier_tp=[2,1,1]' --set schedule.move_kv=both
races_in "TP 2 and 1" "$work/run"
run "races at random, a drafter rank" 4 "${chance[@]}" "${two[@]}" --set layout.drafters=1 --set speculation.policy=fixed
run "races at random, little memory" 3 "${chance[@]}" "${two[@]}" --set schedule.chunk=grow --set engine.kv_memory=3MiB

all=(--set test.shuffle=[moves,roles,races] "${delays[@]}" --set layout.drafters=1
  --set speculation.policy=fixed "${two[@]}")
for seed in 1 2 3; do
  run "races, moves, role changes, delays under seed $seed" 5 "${all[@]}" \
    --set test.seed=$seed
done

# Where costs are known, of two draft models the better one drafts and the other races alone.
models=(--set "speculation.drafters=[$model, {method: model, path: $root/configs/models/target}]"
  --set engine.threads=1 --set layout.verifier_tp=1)
if "$paceline" profile "$config" "${backend[@]}" "${models[@]}" --seconds 1 --output "$work/costs.yaml" 2>"$work/log"; then
  run "races at random, two draft models" 3 "${chance[@]}" "${models[@]}" --set engine.profile="$work/costs.yaml" \
    --set speculation.policy=fixed --set speculation.mode=coupled
  races_in "two draft models" "$work/run"
  # Where a step costs much, whoever runs dry drafts for the last requests by the run's own policy. That somebody runs
  # dry while another still has requests is near certain, and certain in three runs.
  sed -E '/^decode:/,/^drafted_position:/ s/, [^,]*\]$/, 0.05]/' "$work/costs.yaml" >"$work/dear.yaml"
  changed=""
  for attempt in 1 2 3; do
    run "freed ranks draft, $attempt" 4 "${models[@]}" --set engine.profile="$work/dear.yaml" \
      --set speculation.best_of_n=true --set speculation.policy=fixed --set schedule.rebalance=false \
      --set speculation.keep_history=false
    changed=$(grep "ranks changed roles [0-9]* times*" "$work/run.log") && break
  done
  if [ -n "$changed" ]; then ok "$changed"; else fail "nobody changed roles: $(tail -n 20 "$work/run.log")"; fi
else
  fail "a profile of two draft models: $(cat "$work/log")"
fi

# The run's own policy: one long response that others help with at the end.
run "best of N" 3 --set speculation.best_of_n=true "${two[@]}" --set schedule.rebalance=false
if grep -q 'a group without requests races another group: both generate the same response' "$work/run.log"; then ok "the banner says so"; else fail "the banner: $(head -n 20 "$work/run.log")"; fi
rm -rf "$work/one"
if rollout 3 "$work/one" --set speculation.best_of_n=true --set speculation.drafters='[{method: suffix}]' \
  --set limits.wall_clock=600 && grep -q 'no group races another' "$work/one.log"; then
  ok "and that one drafter is too few"
else
  fail "one drafter: $(head -n 20 "$work/one.log")"
fi

# A stop and a kill in the midst of races, then the rest on another layout.
for how in USR1 KILL; do
  cut_and_resume $how "races" 4 all 2 chance
done
finish
