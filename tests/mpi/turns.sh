#!/usr/bin/env bash
# turns.sh PACELINE: one digest of conversations, whoever answers their turns when: on any ranks, with drafters, chunks,
# little memory, moves and races, workers that fail, stops and kills.
source "$(dirname "$0")/lib.sh"
python=$(command -v /usr/bin/python3 || command -v python3)
small=(--set prompts.samples=2 --set sampling.max_tokens=150 --set engine.threads=1 --set environment.method=command
       --set environment.max_turns=4 --set environment.max_tokens_turn=20 --set environment.workers=2
       --set environment.attempts=3)
talks() { printf '%s\n' --set "environment.command=[$python, $here/turns_worker.py, $work/$1, $2]"; }
# conversations FOLDER "SEED, MODE...": the arguments; what was asked is in FOLDER/asked.
conversations() { rm -rf "${work:?}/$1"; mkdir "$work/$1"; mapfile -t talk < <(talks "$1" "$2"); }

conversations calm 1
rollout 1 "$work/reference" "${talk[@]}" --set environment.workers=1 || { cat "$work/reference.log"; exit 1; }
reference=$(digest "$work/reference")
mv "$work/calm/asked" "$work/asked"

# values DIR: what the file says of turns, checked against itself.
"$python" - "$work/reference" "$work/asked" <<'PY' && ok "turns and masks" || fail "turns and masks"
import json, sys
try:
    import h5py, numpy
except ImportError:
    print("SKIP: h5py is not there")
    sys.exit(0)
with h5py.File(sys.argv[1] + "/trajectories.h5") as f:
    t = f["trajectories"]
    offsets, turns, mask = t["offsets"][:], t["turn_offsets"][:], t["loss_mask"][:]
    given, end, reward = t["turn_given"][:], t["turn_end"][:], t["turn_reward"][:]
    expected = numpy.ones(len(mask), dtype=numpy.uint8)
    for i in range(len(turns) - 1):
        for k in range(turns[i], turns[i + 1]):
            expected[offsets[i] + given[k] : offsets[i] + end[k]] = 0
        rewards = reward[turns[i] : turns[i + 1]]
        assert abs(t["reward"][i] - rewards.sum()) < 1e-6, (i, rewards)
    assert (mask == expected).all() and 0 < mask.mean() < 1
    assert not t["logprob"][:][mask == 0].any() and t["logprob"][:][mask == 1].any()
    reasons = {n: t["finish_reason"].attrs[n] for n in t["finish_reason"].attrs}
    found = set(t["finish_reason"][:].tolist())
    assert reasons["turns"] in found and reasons["stop_id"] in found | {0}, found
    assert (numpy.diff(turns) <= 4).all() and numpy.diff(turns).max() == 4
    assert len(open(sys.argv[2]).readlines()) == len(given)
PY

drafters=(--set 'speculation.drafters=[{method: suffix}, {method: ngram}]' --set speculation.policy=fixed)
model="{method: model, path: $root/configs/models/draft}"
conversations slow "2, slow"
run "two ranks, answers in any order" 2 "${talk[@]}" --set environment.workers=4
run "TP 2" 2 "${talk[@]}" --set layout.verifier_tp=2 --set engine.max_batch=6
run "drafts, chunks, little memory and disk" 2 "${talk[@]}" "${drafters[@]}" --set schedule.chunk=16 \
  --set engine.kv_memory=2MiB --set kv_pool.memory=1MiB --set kv_pool.disk="$work" --set engine.max_batch=16
counted "positions that came back" positions_transferred
run "moves, drafter ranks, delays" 4 "${talk[@]}" "${delays[@]}" --set test.shuffle=[moves] \
  --set "speculation.drafters=[{method: suffix}, $model]" --set speculation.mode=decoupled --set layout.drafters=1
run "roles and races" 4 "${talk[@]}" --set test.shuffle=[roles,races] --set layout.verifier_tp=1 \
  --set layout.drafters=1 --set speculation.mode=decoupled --set "speculation.drafters=[$model, {method: suffix}]" \
  --set speculation.best_of_n=true
run "KV a block at a time, no pool" 1 "${talk[@]}" --set schedule.chunk=grow --set engine.kv_memory=2MiB \
  --set kv_pool.memory=none

conversations bad "3, slow, dies, hangs, garbles"
run "workers die, hang and talk nonsense" 2 "${talk[@]}" --set environment.timeout=0.5 --set environment.attempts=20

# What is on disk is asked for by nobody again: `recorded` lists it, of partial responses too.
recorded() {  # DIR
  "$python" - "$1" <<'PY'
import glob, sys
try:
    import h5py
except ImportError:
    sys.exit(0)
for path in glob.glob(sys.argv[1] + "/shards/trajectories-*.h5"):
    with h5py.File(path, "r", libver="latest", swmr=True) as f:
        names = {int(row["offset"]): f"{row['prompt_index']}:{row['sample_index']}" for row in f["index"][:]}
        seen = {}
        for row in f["turns"][:]:
            offset = int(row["offset"])
            seen[offset] = seen.get(offset, -1) + 1
            if offset in names:
                print(names[offset], seen[offset])
PY
}
again() {  # HOW RANKS RANKS-AFTER
  local how=$1
  rm -rf "$work/cut"
  conversations asked "4, slow"
  start "$2" "$work/cut" "${talk[@]}" --set output.flush_seconds=0.05
  if ! wait_for_finished "$work/cut" 12 "$pid"; then fail "$how: ended before 12 were finished"; return; fi
  if [ "$how" = USR1 ]; then kill -USR1 "$pid"; else pkill -KILL -P "$pid" || kill -KILL "$pid"; fi
  wait "$pid" || true
  sleep 1
  recorded "$work/cut" | sort -u >"$work/recorded"
  conversations asked "4, slow"
  rollout "$3" "$work/cut" "${talk[@]}" --resume || fail "resume after $how: $(tail -n 3 "$work/cut.log")"
  same "resumed after $how" "$reference" "$(digest "$work/cut")"
  same "asked again after $how, of $(wc -l <"$work/recorded") answers" 0 \
    "$(sort -u "$work/asked/asked" | comm -12 "$work/recorded" - | wc -l)"
}
again USR1 2 1
again KILL 1 2

# A conversation that fails is one line, and loses nothing but itself.
conversations refusing "5, refuses"
code=0; rm -rf "$work/run"; rollout 2 "$work/run" "${talk[@]}" || code=$?
same "a worker refuses: exit code" 0 "$code"
if grep -q "^warning: .*the conversation of prompt .* failed: an environment worker says: not this one" "$work/run.log"; then
  ok "it says so"; else fail "it says so: $(tail -n 5 "$work/run.log")"; fi
rm -rf "$work/run"; code=0
rollout 1 "$work/run" --set "environment.command=[$python, -m, tool_worker, $root/configs/calculator.py]" || code=$?
same "tools of Python: exit code" 0 "$code"
table=$("$paceline" report "$work/run" 2>/dev/null)
if grep -q "$work/run  *0  *64  *64  " <<<"$table"; then ok "and its rewards"; else fail "and its rewards: $(head -n 3 <<<"$table")"; fi
rm -rf "$work/run"; code=0
# Without workers a run ends, and loses nothing: the same command does better when the run is resumed.
conversations asked "6"
program="$work/program"; lame=(--set "environment.command=[sh, $program]")
echo 'while read -r l; do echo nonsense; done' >"$program"
rollout 2 "$work/run" "${lame[@]}" || code=$?
same "workers that only talk nonsense: exit code" 65 "$code"
if grep -q "no worker has ever answered, and the last one wrote no JSON object" "$work/run.log"; then ok "it says so"; else
  fail "it says so: $(tail -n 5 "$work/run.log")"; fi
echo "exec $python $here/turns_worker.py $work/asked 6" >"$program"
rollout 1 "$work/run" "${lame[@]}" --resume || fail "resume with better workers: $(tail -n 3 "$work/run.log")"
same "resumed with better workers" "$reference" "$(digest "$work/run")"
rm -rf "$work/run"; code=0
at_once rollout 1 "$work/run" --set 'environment.command=[./none/such]' || code=$?
same "no such program: exit code" 64 "$code"
finish
