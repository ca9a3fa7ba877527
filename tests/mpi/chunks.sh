#!/usr/bin/env bash
# chunks.sh PACELINE: one digest in whatever chunks requests run and however little KV there is room for, preempted ones
# included; in groups of several degrees, and beside all else that moves, under delays. (divided.sh has orders and tiers.)
source "$(dirname "$0")/lib.sh"
python=$(command -v /usr/bin/python3 || command -v python3)

rollout 1 "$work/reference" || { cat "$work/reference.log"; exit 1; }
reference=$(digest "$work/reference")

# sums FIELD: of the summaries of all ranks of the last run; "skip" without h5py.
sums() {
  "$python" - "$1" "$work/run" 2>/dev/null <<'PY' || echo skip
import sys, h5py
with h5py.File(sys.argv[2] + "/telemetry.h5") as f:
    print(int(f["summary/" + sys.argv[1]][:].sum()))
PY
}
# some WHAT FIELD; none WHAT FIELD
some() {
  local count
  count=$(sums "$2")
  case $count in
    skip) echo "SKIP: $1: h5py is not there" ;;
    0) fail "$1: none" ;;
    *) ok "$1: $count" ;;
  esac
}
none() { same "no $1" "0|skip" "$(sums "$2")"; }

# 1 MiB holds one request at its longest, and little more.
least=(--set engine.kv_memory=1MiB)
little=(--set engine.kv_memory=3MiB)
mkdir "$work/disk"
disk=(--set kv_pool.memory=1MiB --set kv_pool.disk="$work/disk" --set kv_pool.disk_size=64MiB)

run "chunks of 16" 2 "${little[@]}" --set schedule.chunk=16
some "positions out of stores" positions_transferred
none "preemptions" preempted
run "chunks of 16, room for one" 2 "${least[@]}" --set schedule.chunk=16
run "chunks of 128" 2 "${little[@]}" --set schedule.chunk=128
run "whole responses, room for one" 2 "${least[@]}" --set schedule.chunk=0 --set schedule.rebalance=false
none "moves" moved
run "KV bit by bit, and preempted" 2 "${least[@]}" --set schedule.policy=group --set engine.kv_growth=16
some "preemptions" preempted
run "groups of TP 2 and 1" 4 "${least[@]}" --set schedule.chunk=16 --set schedule.shuffle=true \
  --set 'layout.verifier_tp=[2,1,1]' "${disk[@]}"

model="{method: model, path: $root/configs/models/draft}"
all=(--set engine.kv_memory=6MiB --set schedule.chunk=16 --set schedule.shuffle=true --set schedule.shuffle_roles=true
  --set layout.drafters=1 --set "speculation.drafters=[{method: suffix}, $model]" --set speculation.policy=fixed
  --set speculation.servers=2)
for seed in 1 2; do
  PACELINE_TEST_DELAYS=$seed:0.004 run "moves, role changes, drafts, delays under seed $seed" 4 "${all[@]}" \
    --set schedule.shuffle_seed=$seed
done

finish
