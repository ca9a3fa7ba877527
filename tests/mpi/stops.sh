#!/usr/bin/env bash
# stops.sh PACELINE: what ends a response, over ranks, tensor parallelism, speculation and resuming.
source "$(dirname "$0")/lib.sh"
python=$(command -v /usr/bin/python3 || command -v python3)
head -n 8 "$root/configs/prompts/quickstart.jsonl" >"$work/prompts.jsonl"
small=(--set prompts.path="$work/prompts.jsonl" --set prompts.samples=3 --set sampling.max_tokens=120
       --set engine.threads=1)
drafts=(--set "speculation.drafters=[{method: suffix}, {method: model, path: $root/configs/models/draft}]")

# over_layouts WHAT [ARG...]: each has the digest $reference.
over_layouts() {
  local what=$1
  shift
  run "$what: 4 ranks" 4 "$@"
  run "$what: TP 2, batch 5" 2 --set layout.verifier_tp=2 --set engine.max_batch=5 "$@"
  run "$what: speculation" 2 "${drafts[@]}" --set speculation.policy=fixed "$@"
  run "$what: chunks" 2 --set schedule.chunk=8 --set engine.max_batch=4 "$@"
  local cut=("$@")
  cut_and_resume USR1 "$what" 1 cut 2 cut
}

# A stop string that is a special token is the token: the model's own end, by another name.
rollout 1 "$work/own" || { cat "$work/own.log"; exit 1; }
reference=$(digest "$work/own")
over_layouts "a special token as a stop string" --set sampling.ignore_eos=true --set 'sampling.stop_strings=["<|im_end|>"]'
early=(--set sampling.min_tokens=30)
rollout 1 "$work/early" "${early[@]}" || { cat "$work/early.log"; exit 1; }
reference=$(digest "$work/early")
run "it cannot be sampled before min_tokens" 1 "${early[@]}" --set sampling.ignore_eos=true \
  --set 'sampling.stop_strings=["<|im_end|>"]'

# One that contains a special token matches with it: responses are those without an end, cut there.
rollout 1 "$work/endless" --set sampling.ignore_eos=true || { cat "$work/endless.log"; exit 1; }
spelled=(--set sampling.ignore_eos=true --set 'sampling.stop_strings=["0<|im_end|>"]')
rollout 1 "$work/spelled" "${spelled[@]}" || { cat "$work/spelled.log"; exit 1; }
if found=$("$python" "$here/stop_values.py" "$root/configs/models/target" "$work/endless" "$work/spelled" "0<|im_end|>" 2>&1)
then ok "a stop string with a special token: $found"; else fail "a stop string with a special token: $found"; fi
reference=$(digest "$work/spelled")
over_layouts "a stop string with a special token" "${spelled[@]}"

finish
