#!/usr/bin/env bash
# weights.sh PACELINE: ranks of a node have one copy of the weights, or each its own where that cannot be; one digest.
source "$(dirname "$0")/lib.sh"

python=$(command -v /usr/bin/python3 || command -v python3)
if ! "$python" -c 'import h5py' 2>/dev/null; then
  echo "SKIP: what telemetry says of weights is not checked: h5py is not there"
  python=
fi

# total DIR: bytes of packed weights of all ranks together.
total() { "$python" -c 'import h5py, sys; print(h5py.File(sys.argv[1])["summary/weight_bytes"][:].sum())' "$1/telemetry.h5"; }
# loading DIR: seconds that changes of roles took to load weights, all together; how many there were.
loading() {
  "$python" -c 'import h5py, sys
roles = h5py.File(sys.argv[1])["roles"]
changes = roles["epoch"][:] > 0
print(roles["loading"][:][changes].sum(), changes.sum())' "$1/telemetry.h5"
}
# says WHAT TEXT: the last run's log has it, once.
says() { same "$1" 1 "$(grep -c -F "$2" "$work/run.log" || true)"; }
# total_is WHAT BYTES SLACK: of the last run, up to what does not divide by its ranks.
total_is() {
  [ -n "$python" ] || return 0
  local found
  found=$(total "$work/run")
  if [ "$found" -le "$2" ] && [ "$found" -ge $(($2 - $3)) ]; then ok "$1"; else fail "$1: $found bytes, not $2"; fi
}

rollout 1 "$work/reference" || { cat "$work/reference.log"; exit 1; }
reference=$(digest "$work/reference")
whole=$([ -n "$python" ] && total "$work/reference" || echo 0)
model="{method: model, path: $root/configs/models/draft}"

run "one rank" 1
total_is "one rank has one copy" "$whole" 0
run "four ranks" 4
says "the layout says so" " in one copy for 4 ranks; longest sequence"
total_is "four ranks have one copy" "$whole" 4
run "groups of TP 2" 4 --set layout.verifier_tp=2
total_is "two groups of TP 2 have one copy" "$whole" 4
run "a model that drafts" 3 --set "speculation.drafters=[$model]"
says "of drafts too" " in one copy for 3 ranks, KV up to"
head="{method: eagle3, path: $root/configs/models/eagle3}"
if [ -d "$root/configs/models/eagle3" ]; then
  run "a head" 1 --set "speculation.drafters=[$head]"
  with_head=$([ -n "$python" ] && total "$work/run" || echo 0)
  if [ "$with_head" -gt "$whole" ] || [ -z "$python" ]; then ok "it counts"; else fail "no weights of a head"; fi
  run "three heads" 3 --set "speculation.drafters=[$head]"
  says "of heads too" " in one copy for 3 ranks, KV up to"
  total_is "three groups have one copy with its head" "$with_head" 6
  run "heads on drafter ranks" 4 --set "speculation.drafters=[$head]" --set layout.drafters=2
  says "drafter ranks have one copy" "in one copy for 2 ranks, KV up to"
  total_is "groups have one copy, drafter ranks another" "$with_head" 6
fi

# What it may become, a rank has from the start.
run "roles that change" 4 --set layout.drafters=1 --set "speculation.drafters=[{method: ngram}, $model]" \
  --set layout.verifier_tp=[2,1] --set test.shuffle=[roles] --set test.seed=3
if [ -n "$python" ]; then
  read -r seconds changes < <(loading "$work/run")
  same "they load nothing" 0.0 "$seconds"
  if [ "$changes" -gt 0 ]; then ok "they changed"; else fail "they did not change"; fi
fi

# What is planned counts a copy once for the ranks of a node.
"$paceline" check "$config" --nodes 2 --ranks-per-node 4 "${backend[@]}" --output "$work/planned" >"$work/run.log"
says "what is planned for says so" " in one copy for 4 ranks; longest sequence"

# A limit on the size of files holds for memory in common: 16 MiB are less than these weights, and enough for the rest.
python3 "$here/random_model.py" "$work/wide" hidden_size=512 intermediate_size=2048 num_hidden_layers=3
for i in $(seq 0 15); do echo "{\"uid\": \"t$i\", \"prompt_tokens\": [$(seq -s, $((i + 1)) 3 $((i * 9 + 7)))]}"; done >"$work/tokens.jsonl"
wide=(--set model.path="$work/wide" --set prompts.path="$work/tokens.jsonl" --set sampling.max_tokens=20)
rm -rf "$work/reference"
rollout 1 "$work/reference" "${wide[@]}" || { cat "$work/reference.log"; exit 1; }
reference=$(digest "$work/reference")
whole=$([ -n "$python" ] && total "$work/reference" || echo 0)
run "a wide model" 4 "${wide[@]}"
total_is "of which four ranks have one copy" "$whole" 4
same "without a warning" 0 "$(grep -c "keeps its own copy of the weights" "$work/run.log" || true)"
code=0
rm -rf "$work/run"
(ulimit -f 16384 && rollout 4 "$work/run" "${wide[@]}") || code=$?
same "without memory in common" 0 "$code"
same "it is the same" "$reference" "$(digest "$work/run")"
says "a warning says so" "warning: every rank keeps its own copy of the weights"
total_is "four ranks have four copies" $((4 * whole)) 0
finish
