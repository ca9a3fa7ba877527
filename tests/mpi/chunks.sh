#!/usr/bin/env bash
# chunks.sh PACELINE: one digest in whatever chunks requests run and however little KV there is room for, preempted ones
# included; in groups of several degrees, and beside all else that moves, under delays. (divided.sh has orders and tiers.)
source "$(dirname "$0")/lib.sh"

rollout 1 "$work/reference" || { cat "$work/reference.log"; exit 1; }
reference=$(digest "$work/reference")

# none WHAT FIELD: counted, and none of it.
none() { same "no $1" "0|skip" "$(summed "$2")"; }

# 1 MiB holds one request at its longest, and little more.
least=(--set engine.kv_memory=1MiB)
little=(--set engine.kv_memory=3MiB)
mkdir "$work/disk"
disk=(--set kv_pool.memory=1MiB --set kv_pool.disk="$work/disk" --set kv_pool.disk_size=64MiB)

run "chunks of 16" 2 "${little[@]}" --set schedule.chunk=16
counted "positions out of stores" positions_transferred
none "preemptions" preempted
run "chunks of 16, room for one" 2 "${least[@]}" --set schedule.chunk=16
run "chunks of 128" 2 "${little[@]}" --set schedule.chunk=128
run "whole responses, room for one" 2 "${least[@]}" --set schedule.chunk=0 --set schedule.rebalance=false
none "moves" moved
run "KV bit by bit, and preempted" 2 "${least[@]}" --set schedule.policy=group --set schedule.chunk=grow
counted "preemptions" preempted
run "groups of TP 2 and 1" 4 "${least[@]}" --set schedule.chunk=16 --set test.shuffle=[moves] \
  --set 'layout.verifier_tp=[2,1,1]' "${disk[@]}"

model="{method: model, path: $root/configs/models/draft}"
all=(--set engine.kv_memory=6MiB --set schedule.chunk=16 --set test.shuffle=[moves,roles]
  --set layout.drafters=1 --set "speculation.drafters=[{method: suffix, servers: 2}, $model]" --set speculation.policy=fixed)
for seed in 1 2; do
  run "moves, role changes, drafts, delays under seed $seed" 4 "${all[@]}" "${delays[@]}" \
    --set test.seed=$seed
done

finish
