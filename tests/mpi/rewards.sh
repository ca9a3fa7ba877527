#!/usr/bin/env bash
# rewards.sh PACELINE: rewards are the same however a run goes, a failing scorer loses nothing but them, and --resume
# scores what is left.
source "$(dirname "$0")/lib.sh"
python=$(command -v /usr/bin/python3 || command -v python3)

# rewards DIR: of all responses in order, as one word, and how many are missing; "skip" without h5py.
rewards() {
  "$python" - "$1" 2>/dev/null <<'PY' || echo skip
import sys, hashlib, h5py, numpy
column = h5py.File(sys.argv[1] + "/trajectories.h5")["trajectories/reward"][:]
print(hashlib.sha1(column.tobytes()).hexdigest()[:12], int(numpy.isnan(column).sum()))
PY
}

# expect WHAT DIR CODE [EXPECTED-REWARDS]: what a rollout came to.
expect() {
  local what=$1 dir=$2 code=$3 expected=${4-$truth}
  same "$what: exit code" 0 "$code"
  same "$what: digest" "$reference" "$(digest "$dir")"
  [ "$truth" = skip ] || same "$what: rewards" "$expected" "$(rewards "$dir")"
}

# scores WHAT RANKS [ARG...]: a rollout with rewards as they should be.
scores() {
  local what=$1 ranks=$2 code=0
  shift 2
  rm -rf "$work/run"
  rollout "$ranks" "$work/run" "$@" || code=$?
  expect "$what" "$work/run" "$code"
}

says() { if grep -qE "$2" "$1.log"; then ok "it says: $(grep -E "$2" "$1.log" | head -n 1 | cut -c1-120)"; else fail "not said: $2: $(tail -n 5 "$1.log")"; fi; }

match=(--set reward.method=match --set reward.rule=regex --set "reward.pattern='####\\s*(.*?)\\s*\$'")
# worker WORDS: settings for a program and its arguments, by comma.
worker() { printf "%s\n" --set reward.method=command --set "reward.command=[$1]"; }
# The module is found beside the program, wherever that is.
mapfile -t command < <(worker "$python, -m, score_worker, $root/configs/gsm8k_reward.py")

rollout 1 "$work/plain" || { cat "$work/plain.log"; exit 1; }
reference=$(digest "$work/plain")
rollout 1 "$work/match" "${match[@]}" || { cat "$work/match.log"; exit 1; }
truth=$(rewards "$work/match")
[ "$truth" != skip ] || echo "SKIP: rewards are not compared: h5py is not there"
same "match: digest" "$reference" "$(digest "$work/match")"
says "$work/match" "rewards: 96 responses scored, mean 0\.[1-9]"

scores "match, TP 2 and 1" 3 "${match[@]}" --set 'layout.verifier_tp=[2,1]'
scores "match, moves and roles at random" 4 "${match[@]}" --set test.shuffle=[moves,roles] \
  --set layout.drafters=1 --set 'speculation.drafters=[{method: suffix}]' --set speculation.policy=fixed --set layout.verifier_tp=1
scores "workers of Python" 2 "${command[@]}"
says "$work/run" "rewards: 96 responses scored, .*% of it while responses were generated"

# A run that was complete without rewards, then with.
code=0; rollout 2 "$work/plain" "${match[@]}" --resume || code=$?
expect "a complete run is scored" "$work/plain" "$code"
code=0; rollout 1 "$work/plain" "${match[@]}" --resume || code=$?
expect "and nothing is left to do then" "$work/plain" "$code"

# A scorer with every fault: it hangs, dies, says what is no answer, or answers another's question.
cat >"$work/faulty.py" <<'PY'
import json, os, sys, time
with open(sys.argv[1], "a") as file:
    print(os.getpid(), file=file)
pause, faults = float(sys.argv[2]), sys.argv[3] == "faulty"
for line in sys.stdin:
    request = json.loads(line)
    answer = {"id": request["id"], "score": float(request["response"].rpartition("####")[2].strip() == request["ground_truth"]
                                                  and "####" in request["response"])}
    time.sleep(pause)
    fault = request["id"] if faults else ""
    if fault == "1:0": time.sleep(1000)
    if fault == "3:1": os.kill(os.getpid(), 11)
    if fault == "5:2": sys.exit(3)
    if fault == "7:0": print("Loading...", flush=True)
    if fault == "9:1": answer["score"] = float("nan")
    if fault == "11:0": answer["id"] = "11:1"
    if fault == "13:2": answer = {"id": request["id"], "error": "no idea"}
    print(json.dumps(answer), flush=True)
PY
faulty() { mapfile -t scorer < <(worker "$python, $work/faulty.py, $work/pids, $1, $2"); }
# gone WHAT: no worker is left, nor becomes one.
gone() {
  local pid left=1
  for _ in $(seq 50); do
    left=0
    while read -r pid; do if grep -q faulty.py "/proc/$pid/cmdline" 2>/dev/null; then left=$((left + 1)); fi; done <"$work/pids"
    [ "$left" = 0 ] && break
    sleep 0.1
  done
  same "$1: workers left" 0 "$left"
}
faulty 0 faulty
rm -rf "$work/run"
code=0; rollout 2 "$work/run" "${scorer[@]}" --set reward.timeout=5 || code=$?
same "a faulty scorer: exit code" 0 "$code"
same "a faulty scorer: digest" "$reference" "$(digest "$work/run")"
[ "$truth" = skip ] || same "a faulty scorer: missing rewards" 7 "$(rewards "$work/run" | cut -d' ' -f2)"
says "$work/run" "^warning: 7 responses have no reward \(1 refused by the scorer, 3 answered without a valid score, 1 not answered in time, 2 lost when a worker ended\), for example prompt .*--resume"
says "$work/run" "^warning: no reward: prompt"
gone "a faulty scorer"
code=0; rollout 2 "$work/run" "${command[@]}" --resume || code=$?
expect "scored again" "$work/run" "$code"
says "$work/run" "^7 responses have no reward"

faulty 0 faulty
code=0; rollout 2 "$work/all" "${scorer[@]}" --set reward.timeout=5 --set reward.required=all || code=$?
same "a faulty scorer where all are required: exit code" 65 "$code"
same "a faulty scorer where all are required: digest" "$reference" "$(digest "$work/all")"
says "$work/all" "^paceline: 7 of 96 responses have no reward \(reward.required\), for example prompt .*--resume"

# One that never runs is found before anything is generated; where no rewards are required the run goes on.
mapfile -t broken < <(worker "$python, $work/nowhere.py")
rm -rf "$work/run"
code=0; rollout 2 "$work/run" "${broken[@]}" || code=$?
same "a scorer that cannot start: exit code" 64 "$code"
says "$work/run" "^paceline: reward.command: the trial with .*failed: .*exited with code 2"
same "a scorer that cannot start: what is written" no "$(if [ -e "$work/run" ]; then echo yes; else echo no; fi)"
code=0; rollout 2 "$work/run" "${broken[@]}" --set reward.required=none || code=$?
same "and where no rewards are required: exit code" 0 "$code"
same "and where no rewards are required: digest" "$reference" "$(digest "$work/run")"
says "$work/run" "^warning: reward.command: the trial with .*failed: .*exited with code 2"
says "$work/run" "^rewards: 0 responses scored; scoring took"
says "$work/run" "^warning: 96 responses have no reward .*exited with code 2"

# A function that fails for all responses but the one it is tried with; the next one says more than a number.
cat >"$work/functions.py" <<'PY'
class Explained:
    async def __call__(self, solution_str, ground_truth):
        right = "####" in solution_str and solution_str.rpartition("####")[2].strip() == ground_truth
        return {"score": float(right), "acc": right, "length": len(solution_str)}


def brittle(data_source, solution_str, ground_truth, extra_info=None):
    return {ground_truth: 1}[solution_str]
PY
mapfile -t brittle < <(worker "$python, -m, score_worker, $work/functions.py, brittle")
mapfile -t explained < <(worker "$python, -m, score_worker, $work/functions.py, Explained")
rm -rf "$work/run"
code=0; rollout 2 "$work/run" "${brittle[@]}" || code=$?
same "no response can be scored: exit code" 65 "$code"
same "no response can be scored: digest" "$reference" "$(digest "$work/run")"
says "$work/run" "^rewards: 0 responses scored; scoring took"
says "$work/run" "^paceline: 96 of 96 responses have no reward .* for example prompt .*KeyError.*--resume"
code=0; rollout 2 "$work/run" "${explained[@]}" --resume || code=$?
expect "and then they can, by what explains itself" "$work/run" "$code"
# extras DIR: what was given with the rewards of all responses, in order.
extras() { "$paceline" show "$1" $(seq 0 31) 2>/dev/null | grep '^given with the reward: '; }
cp -r "$work/run" "$work/explained"
same "what was given with the rewards: responses" 96 "$(extras "$work/run" | grep -cE '\{"acc":(true|false),"length":[0-9]+\}$')"
scores "by what explains itself, on other ranks" 3 "${explained[@]}" --set 'layout.verifier_tp=[2,1]'
same "what was said is the same" "$(extras "$work/explained" | md5sum)" "$(extras "$work/run" | md5sum)"

# A kill in the midst: what was scored and flushed is kept, the rest is scored by others on other ranks.
faulty 0.02 sound
: >"$work/pids"
rm -rf "$work/cut"
start 3 "$work/cut" "${scorer[@]}" --set output.flush_seconds=0.1
if wait_for_finished "$work/cut" 20 "$pid"; then pkill -KILL -P "$pid" || kill -KILL "$pid"; fi
wait "$pid" || true
gone "kill -9"
code=0; rollout 2 "$work/cut" "${command[@]}" --resume || code=$?
expect "resumed after kill -9" "$work/cut" "$code"

# A stop while nothing but scoring is left: the trajectories are there, and so is what was scored.
faulty 0.2 sound
: >"$work/pids"
rm -rf "$work/slow"
start 1 "$work/slow" "${scorer[@]}" --set reward.workers=1
for _ in $(seq 300); do grep -q "not scored yet" "$work/slow.log" 2>/dev/null && break; sleep 0.1; done
kill -USR1 "$pid"
code=0; wait "$pid" || code=$?
same "a stop while scoring: exit code" 75 "$code"
same "a stop while scoring: digest" "$reference" "$(digest "$work/slow")"
says "$work/slow" "^warning: .* responses have no reward \(.* not scored before the stop\)"
gone "a stop while scoring"
code=0; rollout 3 "$work/slow" "${command[@]}" --resume || code=$?
expect "scored to the end" "$work/slow" "$code"

# What cannot be scored is refused at once.
refuses() {  # WHAT CODE PATTERN [ARG...]
  local what=$1 expected=$2 pattern=$3 code=0
  shift 3
  rm -rf "$work/bad"
  at_once rollout 1 "$work/bad" "$@" || code=$?
  same "$what: exit code" "$expected" "$code"
  if [ "$(grep -cE "^paceline: .*($pattern)" "$work/bad.log")" = 1 ]; then ok "$what: $(grep -E "^paceline: " "$work/bad.log" | cut -c1-150)"
  else fail "$what"; cat "$work/bad.log"; fi
}
printf '%s\n' '{"prompt": "a", "answer": "1"}' '{"prompt": "b"}' >"$work/some.jsonl"
refuses "a prompt without a truth" 65 "some.jsonl:2: .*no ground truth" --set prompts.path="$work/some.jsonl" --set reward.method=match
refuses "a truth that is no number" 65 "quickstart.jsonl:4: .*no number" --set reward.method=match
refuses "no pattern" 64 "reward.pattern" --set reward.method=match --set reward.rule=regex
refuses "a pattern that does not compile" 64 "reward.pattern.*parenthes" --set reward.method=match --set reward.rule=regex --set 'reward.pattern="a("'
refuses "no such program" 64 "reward.command.*no-such-program" --set reward.method=command --set 'reward.command=[no-such-program]'
code=0; "$paceline" check "$config" --output "$work/none" "${broken[@]}" >"$work/check.log" 2>&1 || code=$?
same "check tries a worker: exit code" 64 "$code"
says "$work/check" "^paceline: reward.command: the trial with .*failed: .*exited with code 2"
code=0; "$paceline" check "$config" --output "$work/none" "${command[@]}" >"$work/check.log" 2>&1 || code=$?
same "check of a sound worker: exit code" 0 "$code"
finish
