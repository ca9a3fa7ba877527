#!/usr/bin/env bash
# misbehaving.sh PACELINE: ranks that do what none should. A drafter rank that stalls, floods or sends garbage changes
# no bit, and the log says which rank did what. A run that a stopped rank holds up is ended.
source "$(dirname "$0")/lib.sh"
more=(--set prompts.samples=12)

rollout 1 "$work/reference" "${more[@]}" || { cat "$work/reference.log"; exit 1; }
reference=$(digest "$work/reference")

# told WHAT PATTERN: the log of the last run says so, on one line of each verifier at most.
told() {
  local lines
  lines=$(grep -cE "^warning: rank [0-9]+: drafter rank [0-9]+($2)" "$work/run.log" || true)
  if [ "$lines" -ge 1 ] && [ "$lines" -le 2 ]; then
    ok "$1 is told: $(grep -E "drafter rank [0-9]+($2)" "$work/run.log" | head -1)"
  else
    fail "$1 is told on $lines lines:"; tail -n 30 "$work/run.log"
  fi
}
drafter=(--set layout.drafters=1 --set speculation.policy=fixed --set speculation.max_length=4
         --set "speculation.drafters=[{method: ngram}, {method: model, path: $root/configs/models/draft}]")
run "a drafter that stalls" 2 "${more[@]}" "${drafter[@]}" --set "test.faults={drafters: stall}"
told "a stall" " has said nothing for"
told "a stall in all" ", totals: .*silence"
run "a drafter that floods" 3 "${more[@]}" "${drafter[@]}" --set "test.faults={drafters: flood}" --set test.seed=2
told "a flood" " floods"
told "a flood in all" ", totals: .*floods"
run "a drafter that sends garbage" 3 "${more[@]}" "${drafter[@]}" --set "test.faults={drafters: garbage}" --set test.seed=3
told "garbage" " sends .*; they are dropped"
told "garbage in all" ", totals: .*without sense"
if grep -q "^warning: a drafter rank sends the coordinator invalid messages" "$work/run.log"; then
  ok "garbage to the coordinator is told"
else
  fail "garbage to the coordinator is not told"
fi

# A rank that is stopped for good: a verifier in mid-run, a member of a TP group, which holds its leader in a
# collective, and a drafter rank, without which a run cannot end. What is finished is kept.
hangs() {  # WHAT VICTIM RANKS PATTERN [ARG...]
  local what=$1 victim=$2 ranks=$3 pattern=$4 code=0 kept before
  shift 4
  rm -rf "$work/run"
  start "$ranks" "$work/run" "${more[@]}" --set limits.stall=5 --set output.flush_seconds=0.1 "$@"
  if ! wait_for_finished "$work/run" 10 "$pid"; then fail "$what: ended too soon"; cat "$work/run.log"; return; fi
  before=$(finished "$work/run")
  kill -STOP "$(pgrep -P "$pid" -x paceline | sort -n | sed -n "$((victim + 1))p")"
  within_a_minute "$pid" || code=$?
  same "$what: exit code" 70 "$code"
  # Not always named alone: a rank that is stopped while it writes into a queue in shared memory holds up what others
  # have put behind it.
  if grep -qE "^paceline: rank 0: no progress for .*; waiting for (.*, )?$pattern" "$work/run.log"; then
    ok "$what: $(grep "^paceline: " "$work/run.log" | cut -c1-200)"
  else
    fail "$what: not told:"; tail -n 5 "$work/run.log"
  fi
  kept=$(finished "$work/run")
  if [ "${kept:-0}" -ge "${before:-10}" ]; then ok "$what: $kept are kept"; else fail "$what: ${kept:-0} are kept of $before"; fi
  rollout 2 "$work/run" "${more[@]}" --resume || fail "$what: resume failed: $(tail -n 3 "$work/run.log")"
  same "$what: digest" "$reference" "$(digest "$work/run")"
}
# A rank that is killed while blocks of KV come and go.
rm -rf "$work/run"
moving=(--set test.shuffle=[moves] --set schedule.move_kv=transfer --set output.flush_seconds=0.1)
start 3 "$work/run" "${more[@]}" "${moving[@]}"
wait_for_finished "$work/run" 10 "$pid" || fail "a killed rank: ended too soon"
kill -KILL "$(pgrep -P "$pid" -x paceline | sort -n | sed -n 2p)"
code=0
within_a_minute "$pid" || code=$?
same "a killed rank ends the job" "70|137" "$code"
rollout 2 "$work/run" "${more[@]}" --resume || fail "a killed rank: resume failed: $(tail -n 3 "$work/run.log")"
same "a killed rank: digest" "$reference" "$(digest "$work/run")"

hangs "a stopped verifier" 1 2 "rank 1 \(verifier; last message [0-9hms]+ ago\)"
hangs "a stopped member" 1 2 "rank 0 \(verifier of ranks 0 to 1; last message [0-9hms]+ ago\)" --set layout.verifier_tp=2
hangs "a stopped drafter" 1 2 "rank 1 \(drafter; no message yet\)" "${drafter[@]}"
finish
