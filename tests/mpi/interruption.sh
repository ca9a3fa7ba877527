#!/usr/bin/env bash
# interruption.sh PACELINE: stopping cleanly, being killed, and going on change nothing and lose nothing.
source "$(dirname "$0")/lib.sh"
small=(--set prompts.samples=12 --set sampling.max_tokens=300 --set engine.threads=1 --set engine.max_batch=8
       --set output.flush_seconds=0.1)
total=384

rollout 1 "$work/reference" || { cat "$work/reference.log"; exit 1; }
reference=$(digest "$work/reference")

stop_and_go_on() {  # WHAT COUNT SIGNAL RANKS RANKS-AFTER [ARG-AFTER...]
  local what=$1 count=$2 signal=$3 ranks=$4 after=$5 dir=$work/stop code
  shift 5
  rm -rf "$dir"
  start "$ranks" "$dir"
  if ! wait_for_finished "$dir" "$count" "$pid"; then fail "$what: ended before $count were finished"; return; fi
  kill "-$signal" "$pid" || true  # if it has just ended, its exit code tells
  code=0; wait "$pid" || code=$?
  same "$what: exit code" 75 "$code"
  rollout "$after" "$dir" --resume "$@" || fail "$what: resume failed: $(tail -n 3 "$dir.log")"
  same "$what: digest" "$reference" "$(digest "$dir")"
}
stop_and_go_on "USR1 at the start" 1 USR1 2 2
stop_and_go_on "USR1 in the middle, other layout after" 150 USR1 2 4 --set layout.verifier_tp=2
# A signal to one rank alone, which is no leader of its group, is passed on.
rm -rf "$work/member"
start 2 "$work/member" --set layout.verifier_tp=2
if wait_for_finished "$work/member" 20 "$pid"; then
  for member in $(pgrep -P "$pid" -x paceline); do
    if grep -qzx "OMPI_COMM_WORLD_RANK=1" "/proc/$member/environ"; then kill -USR1 "$member"; fi
  done
else
  fail "USR1 to a member: ended before 20 were finished"
fi
code=0; wait "$pid" || code=$?
same "USR1 to a member: exit code" 75 "$code"
rollout 2 "$work/member" --resume || fail "USR1 to a member: resume failed: $(tail -n 3 "$work/member.log")"
same "USR1 to a member: digest" "$reference" "$(digest "$work/member")"

stop_and_go_on "USR1 near the end, other batch and speculation after" 250 USR1 4 1 --set engine.max_batch=64 \
  --set 'speculation.drafters=[{method: suffix}, {method: ngram}]' --set speculation.max_length=4

# The wall-clock limit stops it too; several attempts in a row still add up. The first is too short for any machine,
# and each takes half as long again as the one before, so that a slow machine gets there as well.
rm -rf "$work/limit"
attempts=0
code=75
milliseconds=100
resume=()
while [ "$code" = 75 ] && [ "$attempts" -lt 16 ]; do
  code=0
  rollout 2 "$work/limit" --set limits.wall_clock=60 --set limits.margin=$((60000 - milliseconds))e-3 "${resume[@]}" || code=$?
  resume=(--resume)
  attempts=$((attempts + 1))
  milliseconds=$((milliseconds * 3 / 2))
done
same "wall-clock limit: last exit code" 0 "$code"
if [ "$attempts" -gt 1 ]; then ok "wall-clock limit: $attempts attempts"; else fail "wall-clock limit: never stopped"; fi
same "wall-clock limit: digest" "$reference" "$(digest "$work/limit")"

kill_and_go_on() {  # WHAT COUNT RANKS VICTIM
  local what=$1 count=$2 ranks=$3 victim=$4 dir=$work/kill before kept code
  rm -rf "$dir"
  start "$ranks" "$dir"
  if ! wait_for_finished "$dir" "$count" "$pid"; then fail "$what: ended before $count were finished"; return; fi
  before=$(finished "$dir")
  # The victim by its rank: mpirun starts its ranks in order.
  kill -9 "$(pgrep -P "$pid" -x paceline | sort -n | sed -n "$((victim + 1))p")" || true
  code=0; wait "$pid" || code=$?
  if [ "$code" != 0 ] && [ "$code" != 75 ]; then ok "$what: exit code $code"; else fail "$what: exit code $code"; fi
  kept=$(finished "$dir")
  if [ "${kept:-0}" -ge "$before" ]; then ok "$what: kept $kept, $before were flushed"
  else fail "$what: $before were flushed, ${kept:-0} are left"; fi
  rollout "$ranks" "$dir" --resume || fail "$what: resume failed: $(tail -n 3 "$dir.log")"
  same "$what: digest" "$reference" "$(digest "$dir")"
}
kill_and_go_on "kill -9 of rank 0 early" 5 2 0
kill_and_go_on "kill -9 of rank 1 in the middle" 150 2 1
kill_and_go_on "kill -9 of rank 2 late" 250 4 2

# Going on with a complete run says so and changes nothing.
code=0; rollout 2 "$work/limit" --resume || code=$?
same "resume of a complete run: exit code" 0 "$code"
same "resume of a complete run: digest" "$reference" "$(digest "$work/limit")"

# Killed between its final files, a run lacks telemetry: going on makes it and tidies up.
rm "$work/limit/telemetry.h5"
mkdir "$work/limit/shards"
touch "$work/limit/.telemetry.h5.tmp" "$work/limit/shards/.trajectories-0-0.h5.tmp"
code=0; rollout 2 "$work/limit" --resume || code=$?
same "resume between the final files: exit code" 0 "$code"
same "resume between the final files: what is there" "paceline.log run.json telemetry.h5 trajectories.h5" "$(cd "$work/limit" && echo $(LC_ALL=C ls -A))"

# Going on with other weights, prompts or sampling is refused, naming the difference.
rm -rf "$work/other"
start 1 "$work/other"
wait_for_finished "$work/other" 5 "$pid" && kill -USR1 "$pid"
code=0; wait "$pid" || code=$?
code=0; rollout 1 "$work/other" --resume --set sampling.seed=9 || code=$?
same "resume with another seed: exit code" 64 "$code"
if grep -q "seed" "$work/other.log"; then ok "it names the seed"; else fail "it does not name the seed: $(tail -n 2 "$work/other.log")"; fi
echo "of $total responses each"
finish
