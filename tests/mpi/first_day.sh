#!/usr/bin/env bash
# first_day.sh PACELINE: what a new user meets: the example, the plan, progress, the accounting.
source "$(dirname "$0")/lib.sh"

# says WHAT PATTERN FILE: a line of the file matches.
says() { if grep -qE -- "$2" "$3"; then ok "$1"; else fail "$1: no line is '$2':"; cat "$3"; fi; }

# The example for a cluster, with paths that exist: every key of it is known, and each field that it
# names for prompts is one that is read.
example=$root/configs/cluster-example.yaml
model=$root/configs/models/target
check=("$paceline" check "$example" --set model.path="$model" --output "$work/example" "${backend[@]}"
  --set "speculation.drafters=[{method: suffix}, {method: model, path: $root/configs/models/draft}]"
  --set sampling.max_tokens=100 --set engine.max_batch=8)
declare -A prompt_of=([prompt]='"two and two"' [messages]='[{"role": "user", "content": "two and two"}]'
  [prompt_tokens]='[5, 6, 7]')
fields=$(sed -n 's/.*one JSON object a line, with //p' "$example" | grep -o '"[a-z_]*"' | tr -d '"')
same "the example names fields for prompts" "prompt messages prompt_tokens" "$(echo $fields)"
for field in $fields; do
  echo "{\"$field\": ${prompt_of[$field]}}" >"$work/prompts.jsonl"
  if "${check[@]}" --set prompts.path="$work/prompts.jsonl" >"$work/log" 2>&1; then ok "the example's '$field' is read"
  else fail "the example's '$field' is not read:"; cat "$work/log"; fi
done

finish
