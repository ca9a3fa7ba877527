#!/usr/bin/env bash
# misbehaving.sh PACELINE: ranks that do what none should. A drafter rank that stalls, floods or sends garbage changes
# no bit, and the log says which rank did what.
source "$(dirname "$0")/lib.sh"
more=(--set prompts.samples=12)

rollout 1 "$work/reference" "${more[@]}" || { cat "$work/reference.log"; exit 1; }
reference=$(digest "$work/reference")

# told WHAT PATTERN: the log of the last run says so, on one line of each verifier at most.
told() {
  local lines
  lines=$(grep -cE "^warning: rank [0-9]+: drafter rank [0-9]+ ($2)" "$work/run.log" || true)
  if [ "$lines" -ge 1 ] && [ "$lines" -le 2 ]; then
    ok "$1 is told: $(grep -E "drafter rank [0-9]+ ($2)" "$work/run.log" | head -1)"
  else
    fail "$1 is told on $lines lines:"; tail -n 30 "$work/run.log"
  fi
}
drafter=(--set layout.drafters=1 --set speculation.policy=fixed --set speculation.max_length=4
         --set "speculation.drafters=[{method: ngram}, {method: model, path: $root/configs/models/draft}]")
PACELINE_TEST_DRAFTER=stall:1 run "a drafter that stalls" 2 "${more[@]}" "${drafter[@]}"
told "a stall" "has said nothing for"
told "a stall in all" "in all: .*silence"
PACELINE_TEST_DRAFTER=flood:2 run "a drafter that floods" 3 "${more[@]}" "${drafter[@]}"
told "a flood" "floods"
told "a flood in all" "in all: .*floods"
PACELINE_TEST_DRAFTER=garbage:3 run "a drafter that sends garbage" 3 "${more[@]}" "${drafter[@]}"
told "garbage" "sends .*; that is dropped"
told "garbage in all" "in all: .*without sense"
if grep -q "^warning: a drafter rank sends the coordinator what makes no sense" "$work/run.log"; then
  ok "garbage to the coordinator is told"
else
  fail "garbage to the coordinator is not told"
fi
finish
