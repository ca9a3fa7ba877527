#!/usr/bin/env bash
# carried.sh PACELINE: responses that a run with prompts.partial: keep left unfinished go on in a later run, which is the
# same however it goes, and says which weights sampled which token.
source "$(dirname "$0")/lib.sh"
python=$(command -v /usr/bin/python3 || command -v python3)
"$python" -c 'import h5py' 2>/dev/null || { echo "SKIP: h5py is not there"; exit 0; }
says() {
  if [ "$(grep -cE "$2" "$1.log")" -gt 0 ]; then ok "it says: $(grep -E "$2" "$1.log" | head -n 1 | cut -c1-120)"
  else fail "not said: $2: $(tail -n 5 "$1.log")"; fi
}

cat >"$work/worker.py" <<'PY'
import hashlib, json, random, sys, time
for line in sys.stdin:
    request = json.loads(line)
    time.sleep(random.random() * float(sys.argv[1]))
    print(json.dumps({"id": request["id"], "score": float(hashlib.sha1(request["response"].encode()).digest()[0] < 128)}), flush=True)
PY
worker() { printf '%s\n' --set reward.method=command --set "reward.command=[$python, $work/worker.py, '$1']"; }
mapfile -t fast < <(worker 0)
mapfile -t late < <(worker 0.2)
small+=(--set sampling.temperature=1.5)  # answers that are right and wrong
few=(--set prompts.filter=mixed_rewards --set prompts.enough=8)
all=(--set prompts.filter=mixed_rewards --set prompts.enough=1000)

# A run that is to leave unfinished responses does so on any machine: it has enough once the first prompts, which ask
# for one token, have their rewards. Others that began with them then have most of their tokens before them. The one
# token is one of two, and one of them is right; the rewards come from the run's own process.
"$python" - "$root/configs/prompts/quickstart.jsonl" >"$work/prompts.jsonl" <<'PY'
import json, sys
one, two, ends = "16", "17", {"509": -100, "511": -100}  # ids of the embedded model's tokenizer
for at, line in enumerate(open(sys.argv[1])):
    line = json.loads(line)
    if at < 10:
        line |= {"samples": 8, "max_tokens": 1, "temperature": 10, "logit_bias": {one: 100, two: 100}}
        line["reward_model"]["ground_truth"] = "1"
    else:
        line["logit_bias"] = ends
    print(json.dumps(line))
PY
small+=(--set prompts.path="$work/prompts.jsonl")
answers=(--set reward.method=match --set reward.rule=regex --set "reward.pattern='(\S+)\s*\$'")
# leaves DIR [ARG...]: a run that leaves unfinished responses; how many hangs on who is first.
leaves() {
  local dir=$1 n=0
  shift
  rollout 1 "$dir" "${answers[@]}" "${few[@]}" --set prompts.partial=keep "$@" ||
    { fail "$(basename "$dir"): $(tail -n 3 "$dir.log")"; return; }
  n=$("$python" -c 'import json, sys; print(len(json.load(open(sys.argv[1]))))' "$dir/left/versions.json" 2>/dev/null || echo 0)
  if [ "$n" -ge 3 ]; then ok "$(basename "$dir") leaves $n"; else fail "$(basename "$dir") leaves $n"; fi
}
leaves "$work/one"
says "$work/one" "one/left: [1-9][0-9]* unfinished responses? for a later run"

# Under the same weights and version they come to what they would have been.
rollout 1 "$work/whole" "${fast[@]}" "${all[@]}" || fail "whole: $(tail -n 3 "$work/whole.log")"
reference=$(digest "$work/whole")
begun=(--set "prompts.begun=$work/one")
run "under the same version" 2 "${fast[@]}" "${all[@]}" "${begun[@]}"
says "$work/run" "^continues [1-9][0-9]* unfinished responses? of .*one \(prompts.begun\)"

# Under those of a later version: the same wherever they go on.
next=(--set model.weight_version=1 "${all[@]}" "${begun[@]}")
rollout 1 "$work/two" "${fast[@]}" "${next[@]}" || fail "the next version: $(tail -n 3 "$work/two.log")"
reference=$(digest "$work/two")
rollout 1 "$work/anew" "${fast[@]}" "${all[@]}" --set model.weight_version=1 || fail "anew: $(tail -n 3 "$work/anew.log")"
if [ "$reference" != "$(digest "$work/anew")" ]; then ok "they are others than those sampled anew"; else fail "nothing was gone on with"; fi
run "2 ranks" 2 "${fast[@]}" "${next[@]}" --set engine.max_batch=5
run "3 ranks of TP 2 and 1, by lookup" 3 "${fast[@]}" "${next[@]}" --set 'layout.verifier_tp=[2,1]' \
  --set 'speculation.drafters=[{method: suffix},{method: ngram}]' --set speculation.mode=coupled
run "4 ranks, moves at random, in chunks" 4 "${fast[@]}" "${next[@]}" --set test.shuffle=[moves] --set schedule.chunk=24 \
  --set layout.verifier_tp=1
some=("${late[@]}" "${next[@]}" --set engine.max_batch=6)
other=("${fast[@]}" "${next[@]}")
cut_and_resume KILL "late rewards" 2 some 1 other
cut_and_resume USR1 "late rewards" 2 some 3 other
code=0; at_once rollout 1 "$work/cut" "${fast[@]}" "${all[@]}" --set model.weight_version=1 --resume || code=$?
same "a resume without them: exit code" 64 "$code"
says "$work/cut" "cannot resume .*the unfinished responses of prompts.begun: "

# values LEFT RUN VERSION: what the file says of versions, beside what was left.
values() {
  PYTHONPATH=$root/io/python "$python" - "$@" <<'PY'
import json, sys
import h5py, numpy
from paceline_reader import open_run
left = h5py.File(sys.argv[1] + "/left/shards/trajectories-0-0.h5")
spans = {(p, s): of for p, s, of in json.load(open(sys.argv[1] + "/left/versions.json"))}
run, now, carried, most = open_run(sys.argv[2]), int(sys.argv[3]), 0, 0
found = {(run.prompts[r.prompt_index].run_index, r.sample_index): r for r in run}
for row in left["index"][:]:
    key = int(row["prompt_index"]), int(row["sample_index"])
    if key not in found: continue
    r, a, n = found[key], int(row["offset"]), int(row["length"])
    assert spans[key][-1][0] == n < len(r.tokens) == r.version_spans[-1][0], key
    assert (r.tokens[:n] == left["tokens"][a:a + n]).all(), key
    for name in ("logprob", "sampling_logprob"):
        assert getattr(r, name)[:n].tobytes() == left[name][a:a + n].tobytes(), key
    begin = 0
    for end, version in spans[key]:
        assert (r.weight_versions[begin:end] == version).all(), key
        begin = end
    assert (r.weight_versions[n:] == now).all(), key
    carried += 1
    most = max(most, len(set(r.weight_versions.tolist())))
for key, r in found.items():
    assert r.weight_version == now
    assert key in spans or (r.weight_versions == now).all(), key
assert carried > 0
print(carried, most)
PY
}
if told=$(values "$work/one" "$work/two" 1 2>&1); then ok "versions of tokens: $told"; else fail "versions of tokens: $told"; fi

# A third step goes on with what the second left of both.
third=(--set model.weight_version=2 "${all[@]}" --set "prompts.begun=$work/middle")
leaves "$work/middle" "${begun[@]}" --set model.weight_version=1
rollout 1 "$work/three" "${fast[@]}" "${third[@]}" || fail "a third step: $(tail -n 3 "$work/three.log")"
if told=$(values "$work/middle" "$work/three" 2 2>&1); then ok "versions of tokens after a third step: $told"; else fail "a third step: $told"; fi
reference=$(digest "$work/three")
run "a third step on 3 ranks" 3 "${fast[@]}" "${third[@]}"

# Steps of a resident job, one after another.
mkdir "$work/steps"
printf 'model: {weight_version: 0}\nprompts: {enough: 8, filter: mixed_rewards, partial: keep}\n' >"$work/steps/1.yaml"
printf 'model: {weight_version: 1}\nprompts: {enough: 1000, filter: mixed_rewards, begun: 1}\n' >"$work/steps/2.yaml"
touch "$work/steps/stop"
"$here/launch.sh" 2 "$paceline" rollout "$config" --watch "$work/steps" "${backend[@]}" "${small[@]}" "${answers[@]}" \
  >"$work/resident.log" 2>&1 || fail "a resident job: $(tail -n 3 "$work/resident.log")"
says "$work/resident" "[1-9][0-9]* unfinished responses? of .*steps/1 \(prompts.begun\)"
rollout 1 "$work/alone" "${answers[@]}" "${all[@]}" --set model.weight_version=1 --set "prompts.begun=$work/steps/1" ||
  fail "alone: $(tail -n 3 "$work/alone.log")"
same "a step of a resident job that goes on: digest" "$(digest "$work/alone")" "$(digest "$work/steps/2")"

refuses() {  # WHAT PATTERN [ARG...]
  local what=$1 pattern=$2 code=0
  shift 2
  rm -rf "$work/bad"
  at_once rollout 1 "$work/bad" "$@" || code=$?
  same "$what: exit code" 64 "$code"
  says "$work/bad" "^paceline: .*$pattern"
}
refuses "other sampling" "prompts.begun: .*one began its responses by other settings: sampling.temperature: 1.5, now 0.5" \
  "${fast[@]}" "${next[@]}" --set sampling.temperature=0.5
refuses "no run" "not a finished run" "${fast[@]}" "${all[@]}" --set "prompts.begun=$work"
refuses "no choice of prompts" "prompts.partial: expected drop where prompts.enough is none, found keep" "${fast[@]}" --set prompts.partial=keep
refuses "an environment" "environment.method: expected none where responses are carried" "${fast[@]}" "${all[@]}" \
  --set prompts.partial=keep --set environment.method=command --set 'environment.command=[x]'
finish
