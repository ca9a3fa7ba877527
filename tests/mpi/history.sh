#!/usr/bin/env bash
# history.sh PACELINE: one digest whatever earlier steps said that drafts begin with, on one rank and several, with
# drafter ranks, after a kill; and where there is something wrong with it, which is told. (watch.sh has resident jobs.)
source "$(dirname "$0")/lib.sh"

suffix=(--set 'speculation.drafters=[{method: suffix}]' --set speculation.policy=fixed)
rollout 1 "$work/reference" || { cat "$work/reference.log"; exit 1; }
reference=$(digest "$work/reference")
mkdir "$work/runs"
# The earlier steps: one under the same noise, as if weights had not changed, and one under another.
rollout 2 "$work/runs/step-9" "${suffix[@]}" --set sampling.seed=9
rollout 2 "$work/runs/step-10" "${suffix[@]}"

# says TEXT: a line of the last run's.
says() { if grep -qF "$1" "$work/run.log"; then ok "$1"; else fail "$1: $(grep history "$work/run.log")"; fi; }

history=("${suffix[@]}" --set speculation.history="$work/runs")
run "one rank" 1 "${history[@]}"
says "suffix trees begin with responses of 2 earlier runs, to 32 of 32 prompts"
report=$("$paceline" report "$work/run" 2>/dev/null)
if grep -q 'history:1 .*history:2 ' <<<"$report"; then ok "the report counts them by age"; else fail "the report: $report"; fi
run "a server on the other rank" 2 "${history[@]}"
report=$("$paceline" report "$work/run" 2>/dev/null)
if grep -q 'history:1 ' <<<"$report"; then ok "and its texts are drafted from"; else fail "the report: $report"; fi
run "moves on two" 2 "${history[@]}" --set test.shuffle=[moves] --set speculation.policy=goodput --set schedule.chunk=32
model="{method: model, path: $root/configs/models/draft}"
run "drafter ranks, two servers, delays" 3 "${history[@]}" "${delays[@]}" --set layout.drafters=1 \
  --set "speculation.drafters=[{method: suffix, servers: 2}, $model]" --set test.shuffle=[moves,roles]
cut_and_resume KILL history 2 history 1 history

# Acceptance is kept apart where there were such responses, not where they were merely looked for.
"$here/launch.sh" 1 "$paceline" profile "$config" --output "$work/costs.yaml" --seconds 0.5 "${backend[@]}" "${small[@]}" "${suffix[@]}" >"$work/profile.log" 2>&1 ||
  fail "profile: $(tail -n 3 "$work/profile.log")"
mkdir "$work/empty"
for folder in empty runs; do
  rollout 1 "$work/kept-$folder" "${suffix[@]}" --set speculation.history="$work/$folder" --set engine.profile="$work/costs.yaml" ||
    fail "with a profile: $(tail -n 3 "$work/kept-$folder.log")"
  same "what is kept after $folder" "$([[ $folder == empty ]] || echo suffix+history)" "$(grep -o 'suffix+history' "$work/costs.drafts.yaml" | head -n 1)"
done

# Nothing that is wrong with it fails a run.
bad() { run "$1" 1 "${suffix[@]}" --set speculation.history="$2"; }  # WHAT PATH
bad "not there" "$work/nowhere"
says "warning: speculation.history: $work/nowhere: there is no such file or directory"
head -n 8 "$root/configs/prompts/train.jsonl" >"$work/other.jsonl"
rollout 1 "$work/other" "${suffix[@]}" --set prompts.path="$work/other.jsonl" --set sampling.max_tokens=8
bad "of other prompts" "$work/other"
says "warning: speculation.history: $work/other: it has no responses to any prompt of this run"
cp -r "$work/runs/step-10" "$work/damaged"
dd if=/dev/zero of="$work/damaged/trajectories.h5" bs=1k seek=20 count=30 conv=notrunc status=none
bad "damaged" "$work/damaged"
says "$work/damaged/trajectories.h5"
truncate -s 5000 "$work/damaged/trajectories.h5"
bad "cut short" "$work/damaged"
says "$work/damaged/trajectories.h5"
finish
