# Shared by the tests that run the real executable on real MPI ranks. Sourced; expects $1 = the executable.
# shellcheck shell=bash
set -euo pipefail
paceline=$(realpath "$1")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
checks=0
failures=0

# Rank 0 alone prints; small runs of the embedded model that still fill several batches.
config=$root/configs/quickstart.yaml
backend=(--set engine.backend="${PACELINE_TEST_BACKEND-cpu}")
small=(--set prompts.samples=3 --set sampling.max_tokens=160 --set engine.threads=1)
delays=(--set 'test.faults={delayed: 1, delay: 0.004}')  # of messages

# start RANKS DIR [ARG...]: one attempt in the background, its output in DIR.log; sets pid to mpirun's.
start() {
  local ranks=$1 dir=$2
  shift 2
  "$here/launch.sh" "$ranks" "$paceline" rollout "$config" --output "$dir" "${backend[@]}" "${small[@]}" "$@" >"$dir.log" 2>&1 &
  pid=$!
}

# rollout RANKS DIR [ARG...]: the same, waited for; returns its exit code.
rollout() {
  local pid
  start "$@"
  wait "$pid"
}

# at_once COMMAND [ARG...]: for runs that are to be refused. mpirun gives ranks a second between SIGTERM and SIGKILL when
# one has ended badly; here all end by themselves, so that the second would be lost each time.
at_once() { OMPI_MCA_odls_base_sigkill_timeout=0 "$@"; }

# within_a_minute PID: waits for it, and kills what hangs; returns its exit code.
within_a_minute() {
  local code=0 watch
  # Without the test's output: killed, the shell leaves its sleep behind, and CTest waits for all that holds the output.
  (sleep 60; kill -9 "$1") >/dev/null 2>&1 & watch=$!
  wait "$1" || code=$?
  kill "$watch" 2>/dev/null || true
  return "$code"
}

digest() { "$paceline" digest "$1" 2>/dev/null; }

ok() { checks=$((checks + 1)); echo "ok   $*"; }
fail() {
  checks=$((checks + 1))
  failures=$((failures + 1))
  echo "FAIL $*"
}

# same WHAT EXPECTED FOUND
# EXPECTED may name several with |.
same() { if [[ "|$2|" == *"|$3|"* ]]; then ok "$1"; else fail "$1: expected '$2', found '$3'"; fi; }

# run WHAT RANKS [ARG...]: a rollout whose digest is to be $reference.
run() {
  local what=$1 ranks=$2 dir=$work/run
  shift 2
  rm -rf "$dir"
  if rollout "$ranks" "$dir" "$@"; then
    same "$what" "$reference" "$(digest "$dir")"
  else
    fail "$what: exit code $?: $(tail -n 3 "$dir.log")"
  fi
}

# summed FIELD: of the summaries of all ranks of the last run(); "skip" without h5py.
summed() {
  "$(command -v /usr/bin/python3 || command -v python3)" - "$work/run/telemetry.h5" "$1" 2>/dev/null <<'PY' || echo skip
import sys, h5py
with h5py.File(sys.argv[1]) as f:
    print(int(f["summary/" + sys.argv[2]][:].sum()))
PY
}

# counted WHAT FIELD: more than none.
counted() {
  local count
  count=$(summed "$2")
  case $count in
    skip) echo "SKIP: $1: h5py is not there" ;;
    0) fail "$1: none" ;;
    *) ok "$1: $count" ;;
  esac
}

# finished DIR: responses on disk so far, as a reader of the live run sees them; of a complete run, $complete.
complete=1000000
finished() {
  local words
  if words=$("$paceline" digest "$1" 2>&1 >/dev/null) && [ -z "$words" ]; then echo $complete; return; fi
  sed -n 's/.*: \([0-9]*\) of [0-9]* trajectories.*/\1/p' <<<"$words"
}

# wait_for_finished DIR COUNT PID: until so many are on disk; fails when the run ends before. The ranks stand still
# while they are counted, so that no run, however fast, goes on by much between two counts; and they go on for as long
# as the count took, so that no machine, however slow, keeps them standing.
wait_for_finished() {
  local n began took
  while kill -0 "$3" 2>/dev/null; do
    began=${EPOCHREALTIME/[.,]/}
    pkill -STOP -P "$3" -x paceline || true
    n=$(finished "$1")
    pkill -CONT -P "$3" -x paceline || true
    took=$((${EPOCHREALTIME/[.,]/} - began))
    if [ "${n:-0}" = $complete ]; then return 1; fi
    if [ "${n:-0}" -ge "$2" ]; then return 0; fi
    sleep "$(printf '%d.%06d' $((took / 1000000)) $((took % 1000000)))"
  done
  return 1
}

# cut_and_resume SIGNAL WHAT RANKS SETTINGS RANKS SETTINGS: a run that ends on a signal with some responses on disk, and
# the rest of it on other ranks. SETTINGS name arrays of arguments. The digest is to be $reference.
cut_and_resume() {
  local how=$1 what=$2 ranks=$3 rest=$5 code=0 pid
  local -n first=$4 second=$6
  rm -rf "$work/cut"
  start "$ranks" "$work/cut" "${first[@]}" --set output.flush_seconds=0.1
  if wait_for_finished "$work/cut" 5 "$pid"; then
    if [ "$how" = USR1 ]; then kill -USR1 "$pid"; else pkill -KILL -P "$pid" || kill -KILL "$pid"; fi
  fi
  wait "$pid" || code=$?
  if [ "$how" = USR1 ]; then same "a stop with $what" "75|0" "$code"; fi
  sleep 1
  if rollout "$rest" "$work/cut" "${second[@]}" --resume; then
    same "resumed after $how" "$reference" "$(digest "$work/cut")"
  else
    fail "resume after $how: $(tail -n 3 "$work/cut.log")"
  fi
}

finish() {
  echo "$((checks - failures)) of $checks checks passed"
  [ "$failures" = 0 ] && [ "$checks" -gt 0 ]
}
