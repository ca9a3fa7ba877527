#!/usr/bin/env bash
# roles.sh PACELINE: one digest where ranks change roles in mid-run: verifiers, members of groups of TP 1, 2 and 4,
# drafters and spare ranks, with requests that move meanwhile; and after a stop or a kill in the middle of it.
source "$(dirname "$0")/lib.sh"

python=$(command -v /usr/bin/python3 || command -v python3)
if ! "$python" -c 'import h5py' 2>/dev/null; then
  echo "SKIP: telemetry of roles is not checked: h5py is not there"
  python=
fi

# last_roles DIR: every rank's summary is that of its last role.
last_roles() {
  "$python" - "$1/telemetry.h5" <<'PY'
import sys, h5py
with h5py.File(sys.argv[1]) as f:
    names = ("role", "leader", "tp")
    rows = lambda table: zip(f[table + "/rank"][:], zip(*(f[f"{table}/{name}"][:].tolist() for name in names)))
    last = dict(rows("roles"))  # in the order of their beginning
    for rank, place in rows("summary"):
        if last[rank] != place: sys.exit(f"rank {rank} was {last[rank]} at last, but sums up as {place}")
PY
}

# drafted_at_once DIR: verifiers became drafters, and drafted one token for a request in each call.
drafted_at_once() {
  "$python" - "$1/telemetry.h5" <<'PY'
import sys, h5py
with h5py.File(sys.argv[1]) as f:
    roles, first = f["roles/role"][:], f["roles/epoch"][:] == 0
    if any(roles[first] != 0): sys.exit("not all ranks are verifiers at first")
    drafts = [(drafted, requests) for rank in f["ranks"].values() for role, drafted, requests in
              zip(*(rank["steps/" + name][:].tolist() for name in ("role", "drafted", "requests"))) if role == 2]
if not sum(drafted for drafted, _ in drafts): sys.exit("no freed rank drafted")
if any(drafted > requests for drafted, requests in drafts): sys.exit(f"several tokens in a call: {max(drafts)}")
PY
}

# changes WHAT RANKS [ARG...]: a run as run()'s in which ranks change roles.
changes() {
  run "$1" "$2" --set test.shuffle=[roles] --set test.seed=$((++seed)) "${@:3}"
  if grep -q "ranks changed roles [0-9]* times*" "$work/run.log"; then ok "they changed"; else fail "they did not change: $1"; fi
  if [ -n "$python" ]; then
    if last_roles "$work/run"; then ok "ranks sum up as what they were at last"; else fail "last roles: $1"; fi
  fi
}
seed=0

rollout 1 "$work/reference" || { cat "$work/reference.log"; exit 1; }
reference=$(digest "$work/reference")
model="{method: model, path: $root/configs/models/draft}"
ahead=(--set layout.drafters=1 --set "speculation.drafters=[{method: ngram}, $model]")
shuffle=(--set test.shuffle=[moves,roles,outcomes])
changes "verifiers and spare ranks" 3
changes "groups of TP 2 and 1" 4 --set layout.verifier_tp=[2,1,1] "${shuffle[@]}"
changes "drafters, drafts always" 3 "${ahead[@]}" --set speculation.policy=fixed "${shuffle[@]}"
changes "drafters, drafts where they pay, TP 2 and 1" 4 "${ahead[@]}" --set layout.verifier_tp=[2,1]
changes "messages delayed" 4 "${delays[@]}" "${ahead[@]}" --set layout.verifier_tp=[2,1] "${shuffle[@]}"
two=(--set speculation.best_of_n=true --set speculation.policy=fixed
  --set "speculation.drafters=[$model, {method: model, path: $root/configs/models/target}]")
changes "ranks that draft for one group" 2 "${two[@]}" --set layout.verifier_tp=1 "${shuffle[@]}"
changes "they, drafters for all, TP 2 and 1" 4 "${delays[@]}" "${two[@]}" "${shuffle[@]}" \
  --set layout.verifier_tp=[2,1] --set layout.drafters=1
# Even if speculation.window is set, a freed rank sends each token at once while one call drafts for all its requests. By
# this seed rank 1 drafts in the first two epochs after the layout's.
changes "freed ranks that draft, with a window" 3 "${two[@]}" --set layout.verifier_tp=1 --set speculation.window=3 \
  --set engine.max_batch=128 --set test.seed=7
if [ -n "$python" ]; then
  if drafted_at_once "$work/run"; then ok "they sent each token at once"; else fail "drafts of freed ranks"; fi
fi
before=("${two[@]}" "${shuffle[@]}" --set layout.verifier_tp=[2,1,1])
after=("${two[@]}" --set test.shuffle=[roles])
cut_and_resume KILL "ranks that draft for one group" 4 before 3 after
UCX_TLS=tcp,self changes "over TCP" 3 "${ahead[@]}" "${shuffle[@]}"

for how in USR1 KILL; do
  rm -rf "$work/cut"
  start 4 "$work/cut" "${ahead[@]}" --set layout.verifier_tp=[2,1] "${shuffle[@]}" \
    --set output.flush_seconds=0.1
  if wait_for_finished "$work/cut" 5 "$pid"; then
    if [ $how = USR1 ]; then kill -USR1 "$pid"; else pkill -KILL -P "$pid" || kill -KILL "$pid"; fi
  fi
  code=0
  wait "$pid" || code=$?
  if [ $how = USR1 ]; then same "a stop while roles change" "75|0" "$code"; fi
  sleep 1
  if rollout 3 "$work/cut" --set test.shuffle=[roles] --resume; then
    same "resumed after $how" "$reference" "$(digest "$work/cut")"
  else
    fail "resume after $how: $(tail -n 3 "$work/cut.log")"
  fi
done

python3 "$here/random_model.py" "$work/four" num_key_value_heads=4
for i in $(seq 0 15); do
  echo "{\"uid\": \"t$i\", \"prompt_tokens\": [$(seq -s, $((i + 1)) 3 $((i * 9 + 7)))]}"
done >"$work/tokens.jsonl"
four=(--set model.path="$work/four" --set prompts.path="$work/tokens.jsonl" --set prompts.samples=8
  --set sampling.ignore_eos=true --set sampling.max_tokens=90)
rm -rf "$work/reference"
rollout 1 "$work/reference" "${four[@]}" || { cat "$work/reference.log"; exit 1; }
reference=$(digest "$work/reference")
run "TP 4" 4 "${four[@]}" --set layout.verifier_tp=4
changes "groups of TP 4, 2 and 1" 7 "${four[@]}" --set layout.verifier_tp=[4,2,1] "${shuffle[@]}"
changes "groups of TP 4, 2 and 1, a drafter" 8 "${four[@]}" --set layout.verifier_tp=[4,2,1] "${shuffle[@]}" \
  --set layout.drafters=1 --set "speculation.drafters=[{method: suffix}, {method: model, path: $work/four}]"
finish
