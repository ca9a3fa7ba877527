#!/usr/bin/env bash
# dynamic.sh PACELINE: prompts.enough keeps the first prompts whose rewards differ, the same ones however a run goes, and
# its file is that of a run of these prompts alone.
source "$(dirname "$0")/lib.sh"
python=$(command -v /usr/bin/python3 || command -v python3)
"$python" -c 'import h5py' 2>/dev/null || { echo "SKIP: h5py is not there"; exit 0; }

says() {
  if [ "$(grep -cE "$2" "$1.log")" -gt 0 ]; then ok "it says: $(grep -E "$2" "$1.log" | head -n 1 | cut -c1-120)"
  else fail "not said: $2: $(tail -n 5 "$1.log")"; fi
}

# A worker that gives one response in five a point, after a moment of up to so many seconds; of some prompts it knows nothing.
cat >"$work/worker.py" <<'PY'
import hashlib, json, random, sys, time
for line in sys.stdin:
    request = json.loads(line)
    time.sleep(random.random() * float(sys.argv[1]))
    answer = {"id": request["id"], "score": float(hashlib.sha1(request["response"].encode()).digest()[0] < 51)}
    if request["id"].split(":")[0] in sys.argv[2:]:
        answer = {"id": request["id"], "error": "no idea"}
    print(json.dumps(answer), flush=True)
PY
# worker SECONDS[, PROMPT]: its settings.
worker() { printf '%s\n' --set reward.method=command --set "reward.command=[$python, $work/worker.py, $1]"; }
mapfile -t fast < <(worker "'0'")
mapfile -t late < <(worker "'0.2'")
mixed=(--set prompts.filter=mixed_rewards)

# chosen DIR: the numbers of its prompts among those of the run.
chosen() {
  PYTHONPATH=$root/io/python "$python" -c 'import sys; from paceline_reader import open_run
run = open_run(sys.argv[1]); assert len(run) == 3 * len(run.prompts)
assert all(r.reward is not None for r in run)
print(*[p.run_index for p in run.prompts])' "$1"
}
# by_hand DIR ENOUGH [SKIPPED]: the prompts that count, of a run of all prompts, in the order of the file.
by_hand() {
  "$python" - "$@" <<'PY'
import sys, h5py
rewards = h5py.File(sys.argv[1] + "/trajectories.h5")["trajectories/reward"][:].reshape(-1, 3)
print(*[i for i, row in enumerate(rewards) if len(set(row.tolist())) > 1 and str(i) not in sys.argv[3:]][: int(sys.argv[2])])
PY
}
# kept WHAT RANKS [ARG...]: a run that is to keep $expected, with $reference.
kept() {
  run "$@"
  same "$1: prompts" "$expected" "$(chosen "$work/run" 2>&1)"
}
# lines NUMBER...: these lines of the prompts, from 0.
prompts=$root/configs/prompts/quickstart.jsonl
lines() { for i in "$@"; do sed -n "$((i + 1))p" "$prompts"; done; }

rollout 1 "$work/all" "${fast[@]}" || { cat "$work/all.log"; exit 1; }
read -ra passing <<<"$(by_hand "$work/all" 32)"
if [ "${#passing[@]}" -ge 8 ]; then ok "prompts with differing rewards: ${#passing[@]} of 32"
else fail "too few prompts with differing rewards: ${#passing[@]}"; fi
enough=$((${#passing[@]} / 2))
expected=${passing[*]:0:$enough}

# The same prompts alone, without any choice: their digest is that of what is chosen.
lines $expected >"$work/few.jsonl"
rollout 1 "$work/few" "${fast[@]}" --set prompts.path="$work/few.jsonl" || { cat "$work/few.log"; exit 1; }
reference=$(digest "$work/few")

dynamic=("${fast[@]}" "${mixed[@]}" --set prompts.enough=$enough)
kept "1 rank" 1 "${dynamic[@]}"
cp -r "$work/run" "$work/one"
says "$work/run" "^kept $enough of 32 prompts \(only prompts whose responses got different rewards\); [0-9]+ dropped, [0-9]+ left over"
kept "2 ranks" 2 "${dynamic[@]}" --set engine.max_batch=5
kept "3 ranks of TP 2 and 1, by lookup" 3 "${dynamic[@]}" --set 'layout.verifier_tp=[2,1]' \
  --set 'speculation.drafters=[{method: suffix},{method: ngram}]' --set speculation.mode=coupled
kept "4 ranks, moves at random, in chunks" 4 "${dynamic[@]}" --set test.shuffle=[moves] --set schedule.chunk=24 \
  --set layout.verifier_tp=1
kept "4 ranks, a drafter, roles at random" 4 "${dynamic[@]}" --set test.shuffle=[moves,roles] --set layout.drafters=1 \
  --set 'speculation.drafters=[{method: suffix}]' --set speculation.policy=fixed --set layout.verifier_tp=1
kept "first come, first served" 2 "${dynamic[@]}" --set schedule.policy=fcfs
slow=("${late[@]}" "${mixed[@]}" --set prompts.enough=$enough)
kept "rewards that come late, in any order" 2 "${slow[@]}" --set reward.workers=3

# Killed and stopped in the midst.
some=("${slow[@]}" --set engine.max_batch=4)
other=("${dynamic[@]}" --set 'layout.verifier_tp=[2,1]')
cut_and_resume KILL "late rewards" 2 some 3 other
same "resumed after KILL: prompts" "$expected" "$(chosen "$work/cut" 2>&1)"
cut_and_resume USR1 "late rewards" 3 some 1 dynamic
same "resumed after USR1: prompts" "$expected" "$(chosen "$work/cut" 2>&1)"
code=0; rollout 2 "$work/cut" "${dynamic[@]}" --resume || code=$?
same "a complete run again: exit code" 0 "$code"
says "$work/cut" "holds a complete run: nothing to generate"
code=0; at_once rollout 1 "$work/cut" "${dynamic[@]}" --set prompts.enough=1 --resume || code=$?
same "a complete run with another number: exit code" 64 "$code"
says "$work/cut" "cannot resume .*prompts.enough: $enough, now 1"

# Steps of a resident job.
mkdir "$work/steps"
printf 'model: {weight_version: 0}\nprompts: {enough: %s, filter: mixed_rewards}\n' "$enough" >"$work/steps/1.yaml"
printf 'model: {weight_version: 0}\n' >"$work/steps/2.yaml"
touch "$work/steps/stop"
"$here/launch.sh" 2 "$paceline" rollout "$config" --watch "$work/steps" "${backend[@]}" "${small[@]}" "${fast[@]}" \
  >"$work/resident.log" 2>&1 || fail "a resident job: $(tail -n 3 "$work/resident.log")"
same "a step of a resident job: prompts" "$expected" "$(chosen "$work/steps/1")"
same "a step of a resident job: digest" "$reference" "$(digest "$work/steps/1")"
same "and the next, without a choice: digest" "$(digest "$work/all")" "$(digest "$work/steps/2")"

# The order of prompts.shuffle is that of prompts.
rollout 1 "$work/shuffled" "${dynamic[@]}" --set prompts.shuffle=true || fail "shuffled: $(tail -n 3 "$work/shuffled.log")"
expected=$(chosen "$work/shuffled")
if [ "$expected" != "${passing[*]:0:$enough}" ]; then ok "shuffled, others are kept: $expected"; else fail "shuffled: the same are kept"; fi
reference=$(digest "$work/shuffled")
kept "shuffled, on 3 ranks" 3 "${dynamic[@]}" --set prompts.shuffle=true

# Prompts run out.
expected=${passing[*]}
lines "${passing[@]}" >"$work/few.jsonl"
rollout 1 "$work/more" "${fast[@]}" --set prompts.path="$work/few.jsonl" || { cat "$work/more.log"; exit 1; }
reference=$(digest "$work/more")
kept "prompts run out" 2 "${dynamic[@]}" --set prompts.enough=1000
says "$work/run" "^warning: no prompts are left, and ${#passing[@]} of the 1000 wanted have rewards that differ"
lines 0 1 2 3 | sed 's/^{/{"samples": 1, /' >"$work/single.jsonl"
code=0; rollout 1 "$work/none" "${dynamic[@]}" --set prompts.path="$work/single.jsonl" || code=$?
same "lines of one sample, which never count: exit code" 0 "$code"
says "$work/none" "^kept 0 of 4 prompts"
same "and an empty run: prompts" "" "$(chosen "$work/none")"

# Without its run.json, which a complete run does not need.
rm "$work/cut/run.json"
code=0; rollout 2 "$work/cut" "${dynamic[@]}" --resume || code=$?
same "a complete run without run.json: exit code" 0 "$code"
says "$work/cut" "holds a complete run: nothing to generate"
code=0; at_once rollout 1 "$work/cut" "${dynamic[@]}" --set prompts.path="$work/few.jsonl" --resume || code=$?
same "and with other prompts: exit code" 64 "$code"
says "$work/cut" "cannot resume .*prompts"

# What is told of it.
"$paceline" report "$work/one" >"$work/report.log"
if "$paceline" report "$work/one" --json | "$python" -c 'import json, sys
said = json.load(sys.stdin)["runs"][0]["responses"]
assert said["finished"] == said["expected"] == 3 * int(sys.argv[1]) and said["finished_besides"] > 0, said' "$enough"
then ok "responses of the file, and others"; else fail "responses of the file, and others"; fi
# Its tables name prompts as the file and `show` do, and those that are not there by their numbers in the run, in brackets.
"$python" - "$work/report.log" $(chosen "$work/one") <<'PY' && ok "prompts' numbers" || fail "prompts' numbers: $(cat "$work/report.log")"
import re, sys
kept = len(sys.argv) - 2
table = re.search(r"Prompts, longest response first; \(N\): prompt N of the run, .*\n.*\n((?:  .*\n)+)", open(sys.argv[1]).read())[1]
names = [line.split()[0] for line in table.splitlines()]
there = [int(n) for n in names if n[0] != "("]
gone = {n[1:-1] for n in names if n[0] == "("}
assert there and max(there) < kept and gone and not gone & set(sys.argv[2:]), names
PY
"$paceline" show "$work/one" 1:0 >"$work/show.log"
read -ra numbers <<<"$(chosen "$work/one")"
says "$work/show" "^prompt 1 \(quickstart-000*${numbers[1]}\), number ${numbers[1]} among all prompts of the run, "
code=0; "$paceline" show "$work/none" 0 >"$work/show.log" 2>&1 || code=$?
same "a response of an empty run: exit code" 64 "$code"
says "$work/show" "^paceline: 0: the run has no prompts"
says "$work/report" "$enough of 32 prompts kept, [0-9]+ dropped, [0-9]+ left over; [0-9]+ responses? finished but not used, [0-9]+ cancelled"
"$paceline" check "$config" --output "$work/new" "${dynamic[@]}" >"$work/check.log" 2>&1 || true
says "$work/check" "the run ends when $enough prompts have rewards that differ \(prompts.enough\); there are 32 prompts"

# A response without a reward (not of the first prompt, by which the worker is tried).
mapfile -t lacking < <(worker "'0', '${passing[1]}'")
two=("${mixed[@]}" --set prompts.enough=2)
rm -rf "$work/lacking"
code=0; rollout 2 "$work/lacking" "${lacking[@]}" "${two[@]}" --set reward.required=all || code=$?
same "a reward is missing and all are required: exit code" 65 "$code"
says "$work/lacking" "^paceline: 1 prompt with a response that got no reward \(reward.required\)"
code=0; rollout 2 "$work/lacking" "${fast[@]}" "${two[@]}" --set reward.required=all --resume || code=$?
same "and scored again: exit code" 0 "$code"
same "and scored again: prompts" "${passing[*]:0:2}" "$(chosen "$work/lacking")"
rm -rf "$work/lacking"
code=0; rollout 2 "$work/lacking" "${lacking[@]}" "${two[@]}" || code=$?
same "a reward is missing and some are required: exit code" 0 "$code"
same "a reward is missing: prompts" "${passing[0]} ${passing[2]}" "$(chosen "$work/lacking")"
says "$work/lacking" "^warning: dropped: 1 prompt with a response that got no reward"
# Prompts run out while one waits for a reward: a run that would have been whole with it.
every=("${mixed[@]}" --set prompts.enough="${#passing[@]}")
rm -rf "$work/lacking"
code=0; rollout 2 "$work/lacking" "${lacking[@]}" "${every[@]}" || code=$?
same "a reward is missing and prompts run out: exit code" 65 "$code"
says "$work/lacking" "$((${#passing[@]} - 1)) of the ${#passing[@]} wanted have rewards that differ"
code=0; rollout 1 "$work/lacking" "${fast[@]}" "${every[@]}" --set prompts.shuffle=true --resume || code=$?
same "resumed in another order: exit code" 64 "$code"
says "$work/lacking" "prompts.shuffle"
rollout 1 "$work/lacking" "${fast[@]}" "${every[@]}" --resume || fail "and scored again: $(tail -n 3 "$work/lacking.log")"
same "and scored again: prompts" "${passing[*]}" "$(chosen "$work/lacking")"
# A step of a resident job is refused, and its responses stay.
rm -r "$work/steps" && mkdir "$work/steps"
printf 'model: {weight_version: 0}\nprompts: {enough: 2, filter: mixed_rewards}\nreward: {required: all}\n' >"$work/steps/1.yaml"
touch "$work/steps/stop"
"$here/launch.sh" 2 "$paceline" rollout "$config" --watch "$work/steps" "${backend[@]}" "${small[@]}" "${lacking[@]}" \
  >"$work/resident.log" 2>&1 || fail "a resident job: $(tail -n 3 "$work/resident.log")"
same "a step without a reward is refused" 1 "$(grep -c 'with a response that got no reward' "$work/steps/1.error")"
if ls "$work/steps/1.part/shards/"*.h5 >/dev/null 2>&1; then ok "its responses stay"; else fail "its responses are gone"; fi

# Rewards by rule, and those of an environment without a scorer.
match=(--set reward.method=match --set reward.rule=regex --set "reward.pattern='####\\s*(.*?)\\s*\$'")
rollout 1 "$work/matched" "${match[@]}" || fail "match: $(tail -n 3 "$work/matched.log")"
expected=$(by_hand "$work/matched" 1)
lines $expected >"$work/few.jsonl"
rollout 1 "$work/alone" "${match[@]}" --set prompts.path="$work/few.jsonl" || fail "match: $(tail -n 3 "$work/alone.log")"
reference=$(digest "$work/alone")
kept "rewards by rule" 2 "${match[@]}" "${mixed[@]}" --set prompts.enough=1
mkdir "$work/talks"
talk=(--set environment.method=command --set "environment.command=[$python, $here/turns_worker.py, $work/talks, 1]"
  --set environment.max_turns=3 --set environment.max_tokens_turn=20 --set environment.attempts=3)
rollout 1 "$work/spoken" "${talk[@]}" || fail "conversations: $(tail -n 3 "$work/spoken.log")"
expected=$(by_hand "$work/spoken" 5)
rollout 1 "$work/talked" "${talk[@]}" "${mixed[@]}" --set prompts.enough=5 ||
  fail "an environment's rewards: $(tail -n 3 "$work/talked.log")"
reference=$(digest "$work/talked")
# One that gives none at all: who wants all is told so.
echo 'def tool() -> str: return "x"' >"$work/mute.py"
mute=(--set environment.method=command --set "environment.command=[$python, -m, tool_worker, $work/mute.py]"
  --set prompts.samples=2 --set reward.required=all)
code=0; rollout 1 "$work/mute" "${mute[@]}" || code=$?
same "an environment without rewards, and all are required: exit code" 65 "$code"
says "$work/mute" "^paceline: 64 of 64 responses got no reward from their environment \(reward.required: all\)"
code=0; rollout 1 "$work/muted" "${mute[@]}" "${mixed[@]}" --set prompts.enough=2 || code=$?
same "likewise of kept prompts: exit code" 65 "$code"
says "$work/muted" "^paceline: .*prompts? with a response that got no reward from its environment"
kept "an environment's rewards, on 2 ranks" 2 "${talk[@]}" "${mixed[@]}" --set prompts.enough=5 --set environment.workers=3

# What cannot be is refused at once.
refuses() {  # WHAT PATTERN [ARG...]
  local what=$1 pattern=$2 code=0
  shift 2
  rm -rf "$work/bad"
  at_once rollout 1 "$work/bad" "$@" || code=$?
  same "$what: exit code" 64 "$code"
  says "$work/bad" "^paceline: .*$pattern"
}
refuses "no rewards" "reward.method: expected match or command where prompts.enough is set, .* found none" \
  "${mixed[@]}" --set prompts.enough=4
refuses "no filter" "prompts.filter: expected mixed_rewards where prompts.enough is set, found none" "${fast[@]}" --set prompts.enough=4
refuses "no number" "prompts.enough: expected a number of prompts where prompts.filter is mixed_rewards, found none" \
  "${fast[@]}" "${mixed[@]}"
refuses "one sample" "prompts.samples: expected at least 2 where prompts.enough is set, .* found 1" "${dynamic[@]}" --set prompts.samples=1
refuses "prompts dealt out beforehand" "schedule.policy: expected another than group where prompts.enough is set" \
  "${dynamic[@]}" --set schedule.policy=group
refuses "another filter" "prompts.filter: expected .*mixed_rewards, found 'mixed'" "${fast[@]}" --set prompts.filter=mixed
finish
