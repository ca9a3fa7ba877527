#!/usr/bin/env bash
# divided.sh PACELINE: one digest where requests run in chunks and KV memory is short: in every order, with what waits in
# memory, on disk, on a disk that is full or whose directory vanishes, or nowhere; through changes of roles, stops and kills.
source "$(dirname "$0")/lib.sh"
trap 'umount "$work/small" 2>/dev/null || true; rm -rf "$work"' EXIT

rollout 1 "$work/reference" || { cat "$work/reference.log"; exit 1; }
reference=$(digest "$work/reference")

warned() { if grep -q "^warning: .*$2" "$work/run.log"; then ok "$1"; else fail "$1: $(tail -n 3 "$work/run.log")"; fi; }

# Room for three or four requests on each rank, where 16 might run.
short=(--set schedule.chunk=16 --set engine.kv_memory=2MiB --set engine.max_batch=16)
for policy in context no_context oracle group; do
  run "$policy" 2 "${short[@]}" --set schedule.policy=$policy --set schedule.lengths="$([ $policy = oracle ] && echo "$work/reference" || echo none)"
done
run "first come, chunks by themselves" 2 --set engine.kv_memory=2MiB --set schedule.policy=fcfs
if grep -q 'KV pool: up to' "$work/run.log"; then ok "the banner says what the pool is"; else fail "the banner: $(head -n 20 "$work/run.log")"; fi

again=("${short[@]}" --set schedule.policy=no_context)
run "what waits is stored" 2 "${again[@]}"
counted "positions that came back" positions_transferred
run "nothing is stored" 2 "${again[@]}" --set kv_pool.memory=none --set schedule.rebalance=false
same "positions that came back" "0|skip" "$(summed positions_transferred)"
counted "positions computed again" recomputed

mkdir "$work/disk" "$work/small"
tiers=("${again[@]}" --set kv_pool.memory=1MiB --set kv_pool.disk="$work/disk")
run "memory and disk" 2 "${tiers[@]}"
counted "bytes on disk at one time" pool_most_disk
counted "bytes that came from there" pool_disk_bytes
run "a pool without room for all" 2 "${tiers[@]}" --set kv_pool.disk_size=1MiB --set engine.kv_memory=1MiB
warned "it says so" "the KV pool is too small"
if mount -t tmpfs -o size=1m tmpfs "$work/small" 2>/dev/null; then
  run "a full disk" 2 "${tiers[@]}" --set kv_pool.disk="$work/small" --set kv_pool.disk_size=1GiB
  warned "it says so" "No space left on device"
else
  echo "SKIP: a full disk cannot be made here"
fi

# Files on disk have no names, so that only ranks that take a new place can miss the directory.
roles=("${tiers[@]}" --set test.shuffle=[roles] --set 'layout.verifier_tp=[2,1]')
rm -rf "$work/run"
start 3 "$work/run" "${roles[@]}" --set output.flush_seconds=0.1
if wait_for_finished "$work/run" 1 "$pid"; then rmdir "$work/disk"; else fail "the directory was to vanish in mid-run"; fi
code=0
wait "$pid" || code=$?
same "the directory vanishes while roles change" 0 "$code"
same "digest" "$reference" "$(digest "$work/run")"
warned "it says so" "this rank's part of the KV pool is in memory alone"

for how in USR1 KILL; do cut_and_resume $how "chunks" 2 short 2 again; done
finish
