#!/usr/bin/env bash
# moving.sh PACELINE: one digest whatever moves: requests between groups, by transfer, by computing again
# and by both, at random and to balance, under delayed messages and over TCP; groups that join into larger ones;
# drafter ranks of any number and window, whose waste keeps to what the window allows, and that draft for outcomes; stops and kills with all of it.
source "$(dirname "$0")/lib.sh"

rollout 1 "$work/reference" || { cat "$work/reference.log"; exit 1; }
reference=$(digest "$work/reference")

python=$(command -v /usr/bin/python3 || command -v python3)
summary_sum() {  # FIELD DIR: over all ranks; "skip" without h5py
  "$python" - "$2/telemetry.h5" "$1" 2>/dev/null <<'PY' || echo skip
import sys, h5py
with h5py.File(sys.argv[1]) as f:
    print(sum(int(v) for v in f["summary/" + sys.argv[2]][:]))
PY
}

summary_count() {  # FIELD VALUE DIR: ranks that have it; "skip" without h5py
  "$python" - "$3/telemetry.h5" "$1" "$2" 2>/dev/null <<'PY' || echo skip
import sys, h5py
with h5py.File(sys.argv[1]) as f:
    print(int((f["summary/" + sys.argv[2]][:] == int(sys.argv[3])).sum()))
PY
}

shuffle=(--set test.shuffle=[moves])
for way in cost transfer recompute both; do
  run "moves at random by $way" 3 "${shuffle[@]}" --set schedule.move_kv=$way
done

# By cost: a profile with a fast link, and the same with one so slow that nothing is worth sending.
one=(--set engine.threads=1)
if "$here/launch.sh" 2 "$paceline" profile "$config" "${backend[@]}" "${one[@]}" --seconds 1 --output "$work/fast.yaml" >"$work/profile.log" 2>&1 &&
  grep -q '^  bandwidth: ' "$work/fast.yaml"; then
  ok "a profile with transfers"
else
  fail "a profile with transfers: $(tail -n 3 "$work/profile.log")"
fi
sed -i 's/^  bandwidth: .*/  bandwidth: 1e12/; s/^  latency: .*/  latency: 0/' "$work/fast.yaml"
sed 's/^  bandwidth: .*/  bandwidth: 1/' "$work/fast.yaml" >"$work/slow.yaml"
for link in fast slow; do
  run "moves by the costs of a $link link" 2 "${shuffle[@]}" --set engine.profile="$work/$link.yaml"
  if grep -q "costs from $work/$link.yaml" "$work/run.log"; then ok "costs by the profile"; else fail "costs by the profile"; fi
  sent=$(summary_sum positions_transferred "$work/run")
  case $link:$sent in
    *:skip) echo "SKIP: positions sent are not checked: h5py is not there" ;;
    fast:0 | slow:[1-9]*) fail "$sent positions were sent over a $link link" ;;
    *) ok "$sent positions were sent over a $link link" ;;
  esac
done
# Groups join for the last requests: by costs of groups of two that decode four times as fast, and compute KV anew in no
# time, as the requests of two groups that have no third one to go to must be.
awk '/^[a-z]/ { by = /^decode:/ ? 4 : /^prefill:/ ? 1e6 : 1 }
  by > 1 && match($0, /, [^]]+/) { $0 = substr($0, 1, RSTART + 1) substr($0, RSTART + 2, RLENGTH - 2) / by "]" }
  { sub(/^  tp: 1$/, "  tp: 2"); print }' "$work/fast.yaml" >"$work/two.yaml"
grow=(--set engine.profile="$work/fast.yaml" --set engine.tail_profile="$work/two.yaml")
for ranks in 2 4; do
  run "groups of $ranks ranks join" $ranks "${grow[@]}" --set engine.max_batch=64
  if grep -q "groups join into groups of 2 at the end of the run" "$work/run.log"; then ok "the banner says so"; else fail "the banner: $(head -n 20 "$work/run.log")"; fi
  same "ranks that came to a group of two" "$ranks|skip" "$(summary_count tp 2 "$work/run")"
done
run "none joins where none may" 2 "${grow[@]}" --set layout.tail_tp=1
same "ranks that came to a group of two" "0|skip" "$(summary_count tp 2 "$work/run")"
run "groups join, drafts coupled, moves at random" 4 "${grow[@]}" "${shuffle[@]}" --set 'speculation.drafters=[{method: suffix}]'
for how in USR1 KILL; do cut_and_resume $how "groups join" 4 grow 2 shuffle; done

run "moves of TP groups" 4 "${shuffle[@]}" --set layout.verifier_tp=2 --set schedule.move_kv=both
run "moves, KV a block at a time, little memory" 2 "${shuffle[@]}" --set schedule.chunk=grow --set engine.kv_memory=2MiB
run "KV a block at a time, little memory" 1 --set schedule.chunk=grow --set engine.kv_block=16 --set engine.kv_memory=2MiB --set engine.max_batch=32
run "no rebalancing" 2 --set schedule.rebalance=false
run "moves, drafts coupled" 2 "${shuffle[@]}" --set 'speculation.drafters=[{method: suffix}]' --set speculation.policy=fixed

model="{method: model, path: $root/configs/models/draft}"
ahead=(--set speculation.policy=fixed --set speculation.max_length=8)
most_wasted() {  # DIR: by one refutation on any drafter rank
  "$python" - "$1/telemetry.h5" <<'PY'
import sys, h5py
with h5py.File(sys.argv[1]) as f:
    print(max(int(v) for v in f["summary/most_wasted"][:]))
PY
}
for window in 1 3 8; do
  run "1 verifier, 1 drafter, window $window" 2 --set layout.drafters=1 "${ahead[@]}" \
    --set speculation.window=$window --set "speculation.drafters=[$model]"
  if ! "$python" -c 'import h5py' 2>/dev/null; then
    echo "SKIP: waste is not checked: h5py is not there"
  else
    wasted=$(most_wasted "$work/run")
    if [ "$wasted" -ge 1 ] && [ "$wasted" -le $((2 * window - 1)) ]; then
      ok "at most $wasted tokens wasted at once"
    else
      fail "wasted $wasted tokens at once in a window of $window"
    fi
  fi
done
run "2 verifiers, 1 drafter, outcomes at random" 3 --set layout.drafters=1 "${ahead[@]}" --set "speculation.drafters=[$model]" \
  --set test.shuffle=[moves,outcomes]
counted "refutations with a draft there" foreseen
run "2 verifiers, 2 drafters, two methods" 4 --set layout.drafters=2 "${ahead[@]}" --set speculation.window=2 \
  --set "speculation.drafters=[{method: suffix}, $model]"
run "TP 2 and a drafter" 3 --set layout.drafters=1 --set layout.verifier_tp=2 "${ahead[@]}" --set "speculation.drafters=[$model]"
run "goodput with a drafter rank" 2 --set layout.drafters=1 --set "speculation.drafters=[{method: ngram}, $model]"

all=(--set layout.drafters=1 "${ahead[@]}" --set "speculation.drafters=[{method: ngram}, $model]" --set test.shuffle=[moves,outcomes])
for seed in 1 2 3; do
  run "everything, messages delayed under seed $seed" 3 "${all[@]}" "${delays[@]}" --set test.seed=$seed \
    --set speculation.window=$((seed * 2))
done
UCX_TLS=tcp,self run "everything over TCP" 3 "${all[@]}"

# A stop and a kill, then the rest on another layout.
for how in USR1 KILL; do
  cut_and_resume $how "drafters and moves" 3 all 2 shuffle
done
finish
