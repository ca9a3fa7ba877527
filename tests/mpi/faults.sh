#!/usr/bin/env bash
# faults.sh PACELINE: a fault on any rank, at any time, ends the job within seconds, with one message and the right
# exit code, and loses nothing that was finished.
source "$(dirname "$0")/lib.sh"
model=$root/configs/models/target
small=(--set prompts.samples=4 --set sampling.max_tokens=300 --set engine.threads=1 --set engine.max_batch=8
       --set output.flush_seconds=0.1)

# ends WHAT CODE PATTERN DIR PID: the job in the background ends with CODE, saying PATTERN and nothing else, unless it
# is $also.
also='^$'
ends() {
  local what=$1 code=$2 pattern=$3 dir=$4 found=0
  within_a_minute "$5" || found=$?
  same "$what: exit code" "$code" "$found"
  if [ "$(grep -E "^paceline: " "$dir.log" | grep -cvE "$also")" = 1 ] && grep -qE "^paceline: .*($pattern)" "$dir.log"; then
    ok "$what: $(grep "^paceline: " "$dir.log" | cut -c1-150)"
  else
    fail "$what: not one message with '$pattern':"; cat "$dir.log"
  fi
}
faults() {  # WHAT CODE PATTERN RANKS [ARG...]: a whole run in $work/run, which may be there
  local what=$1 code=$2 pattern=$3 ranks=$4
  shift 4
  start "$ranks" "$work/run" "$@"
  ends "$what" "$code" "$pattern" "$work/run" "$pid"
}

# Finite weights whose products are not: the same fault strikes every rank, in its first step.
overflowing() {  # FROM TO
  cp -r "$1" "$2"
  python3 - "$2/model.safetensors" <<'PY'
import json, struct, sys
raw = bytearray(open(sys.argv[1], "rb").read())
n = struct.unpack("<Q", raw[:8])[0]
norm = json.loads(raw[8:8 + n])["model.norm.weight"]
begin, end = (8 + n + at for at in norm["data_offsets"])
raw[begin:end] = b"\x7f\x7f" * ((end - begin) // 2)  # 3.4e38 in bf16
open(sys.argv[1], "wb").write(raw)
PY
}
overflowing "$model" "$work/model"
overflowing "$root/configs/models/draft" "$work/draft"
# Prompts so long that leases wait for their receiver.
python3 - >"$work/long.jsonl" <<'PY'
for i in range(200):
    print('{"prompt_tokens": %s}' % [(i * 7 + j) % 500 for j in range(700)])
PY
numbers="(model|draft): what these weights compute overflows: logits are NaN or infinite"
for ranks in 1 4; do
  rm -rf "$work/run"; faults "overflow on $ranks ranks" 65 "$numbers" "$ranks" --set model.path="$work/model"
done
rm -rf "$work/run"; faults "overflow, greedy" 65 "$numbers" 1 --set model.path="$work/model" --set sampling.temperature=0
rm -rf "$work/run"; faults "overflow, long leases" 65 "$numbers" 1 --set model.path="$work/model" \
  --set prompts.path="$work/long.jsonl" --set engine.max_batch=512
rm -rf "$work/run"; faults "overflow of a draft model" 65 "$numbers" 2 \
  --set "speculation.drafters=[{method: suffix}, {method: model, path: $work/draft}]"
rm -rf "$work/run"; faults "overflow on 4 ranks, TP 2" 65 "$numbers" 4 --set model.path="$work/model" --set layout.verifier_tp=2

# Files that cannot be made, on one rank alone: something is in the way.
blocked() {  # FILE RANKS [ARG...]
  local file=$1 ranks=$2
  shift 2
  rm -rf "$work/run"; mkdir -p "$work/run/$(dirname "$file")/.$(basename "$file").tmp"
  faults "$file is blocked, $ranks ranks${*:+, $*}" 74 "$file: " "$ranks" "$@"
}
blocked shards/trajectories-0-0.h5 1
blocked shards/trajectories-0-1.h5 2
blocked shards/telemetry-0-0.h5 2 --set layout.verifier_tp=2
blocked shards/telemetry-0-3.h5 4 --set layout.verifier_tp=2

# A file at its size limit in mid-run, on one rank alone. What was finished is kept.
rollout 1 "$work/reference" || { cat "$work/reference.log"; exit 1; }
reference=$(digest "$work/reference")
limit_and_go_on() {  # RANKS VICTIM [ARG...]
  local ranks=$1 victim=$2 what="size limit on rank $2 of $1" kept
  shift 2
  what+=${*:+, $*}
  rm -rf "$work/run"
  start "$ranks" "$work/run" "$@"
  if ! wait_for_finished "$work/run" 10 "$pid"; then fail "$what: ended too soon"; cat "$work/run.log"; return; fi
  prlimit --fsize=30000:unlimited \
    --pid "$(pgrep -P "$pid" -x paceline | sort -n | sed -n "$((victim + 1))p")"
  ends "$what" 74 "rank $victim: cannot write $work/run/shards/.*-0-$victim.h5: File too large" "$work/run" "$pid"
  kept=$(finished "$work/run")
  if [ "${kept:-0}" -ge 10 ]; then ok "$what: $kept are kept"; else fail "$what: ${kept:-0} are kept of 10"; fi
  rollout "$ranks" "$work/run" --resume || fail "$what: resume failed: $(tail -n 3 "$work/run.log")"
  same "$what: digest" "$reference" "$(digest "$work/run")"
}
if command -v prlimit >/dev/null; then
  limit_and_go_on 1 0
  limit_and_go_on 4 3 --set "speculation.drafters=[{method: suffix}, {method: model, path: $root/configs/models/draft}]"
  limit_and_go_on 2 0 --set layout.verifier_tp=2
else
  echo "SKIP: size limits: prlimit is not there"
fi

# A final file that cannot be made: it is all there for --resume.
blocked trajectories.h5 2 --set sampling.max_tokens=20
rmdir "$work/run/.trajectories.h5.tmp"
rollout 2 "$work/run" --resume --set sampling.max_tokens=20 || fail "resume after a blocked final file"

# A directory that is deleted in mid-run.
rm -rf "$work/run"
start 2 "$work/run"
wait_for_finished "$work/run" 5 "$pid" || fail "a deleted directory: ended too soon"
rm -r "$work/run"
ends "a deleted directory" 74 "$work/run.*: it is gone" "$work/run" "$pid"

# A model that is cut short while it is mapped.
cp -r "$model" "$work/cut"
for ranks in 1 4; do
  cp "$model/model.safetensors" "$work/cut"
  rm -rf "$work/run"
  start "$ranks" "$work/run" --set model.path="$work/cut"
  wait_for_finished "$work/run" 5 "$pid" || fail "a model cut short: ended too soon"
  truncate -s 5000 "$work/cut/model.safetensors"
  ends "a model cut short, $ranks ranks" 74 "$work/cut/model.safetensors: cannot be read any more" "$work/run" "$pid"
done

# A rank that is stopped for good, as by a node that hangs: the others end the job, and it goes on from what they had.
rank_of() { pgrep -P "$1" -x paceline | sort -n | sed -n "$(($2 + 1))p"; }  # MPIRUN RANK
stopped() {  # WHAT VICTIM PATTERN RANKS [ARG...]
  local what=$1 victim=$2 pattern=$3 ranks=$4
  shift 4
  rm -rf "$work/run"
  start "$ranks" "$work/run" --set limits.stall=3 "$@"
  wait_for_finished "$work/run" 5 "$pid" || fail "$what: ended too soon"
  kill -STOP "$(rank_of "$pid" "$victim")"
  ends "$what" 70 "$pattern" "$work/run" "$pid"
  rollout "$ranks" "$work/run" --resume "$@" || fail "$what: resume failed: $(tail -n 3 "$work/run.log")"
  same "$what: digest" "$reference" "$(digest "$work/run")"
}
# mpirun wakes a process before it kills it, which may find that the others are gone.
also='^paceline: rank 0: messages: lost rank'
leader="rank 0, which leads the job, has not been heard from for .s .limits.stall.: .*--resume"
stopped "rank 0 is stopped" 0 "rank 1: $leader" 3
stopped "rank 0 is stopped, TP 2" 0 "rank 1: $leader" 2 --set layout.verifier_tp=2
stopped "another rank is stopped" 1 "no progress for .*; waiting for rank 1 .verifier; " 2

# Before there is anything to report: rank 0 waits for a pipe, the others for rank 0.
mkfifo "$work/profile.yaml"
exec 3<>"$work/profile.yaml"
for victim in 0 1; do
  rm -rf "$work/run"
  start 2 "$work/run" --set limits.stall=2 --set engine.profile="$work/profile.yaml"
  # shellcheck disable=SC2010  # links are what is wanted
  while kill -0 "$pid" && ! ls -l "/proc/$(rank_of "$pid" 0)/fd" 2>/dev/null | grep -q "$work/profile.yaml"; do sleep 0.1; done
  kill -STOP "$(rank_of "$pid" "$victim")"
  ends "rank $victim is stopped at the start" 70 "rank $((1 - victim)): rank $victim.* has not been heard from for" "$work/run" "$pid"
done
exec 3>&-

# Rank 0 lives, but its coordinator waits for a file system. So does whoever says so, and ends the job for all that.
if [ -n "${PACELINE_HUNG_LOG-}" ]; then
  rm -rf "$work/run"
  PACELINE_TEST_HANG=$work/hang LD_PRELOAD=$PACELINE_HUNG_LOG \
    start 3 "$work/run" --set limits.stall=2 --set prompts.samples=100
  wait_for_finished "$work/run" 5 "$pid" || fail "a log that hangs: ended too soon"
  : >"$work/hang"
  ends "a log that hangs" 70 "rank 1: $leader" "$work/run" "$pid"
  rm "$work/hang"
fi
finish
