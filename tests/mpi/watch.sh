#!/usr/bin/env bash
# watch.sh PACELINE: a resident job meets requests one after another as runs of their own would, on several ranks: other
# prompts, seeds, weights; refuses what is wrong alone; goes on where it was stopped or killed; ends when it is told to.
source "$(dirname "$0")/lib.sh"

steps=$work/steps
mkdir "$steps"
small+=(--set engine.max_batch=8)
model="{method: model, path: $root/configs/models/draft}"
drafters=(--set "speculation.drafters=[{method: suffix}, $model]")

# request NAME [SEED [MAX_TOKENS [KEYS_OF_MODEL [MORE]]]]: puts it there whole, as a trainer does.
request() {
  printf 'sampling: {seed: %s, max_tokens: %s}\nmodel: {%sweight_version: %s}\n%s\n' \
    "${2:-1}" "${3:-60}" "${4-}" "${2:-1}" "${5-}" >"$steps/.$1"
  mv "$steps/.$1" "$steps/$1.yaml"
}
# resident RANKS [ARG...]: the job in the background, whose steps draft from what those before them said; sets pid.
resident() {
  local ranks=$1
  shift
  "$here/launch.sh" "$ranks" "$paceline" rollout "$config" --watch "$steps" "${backend[@]}" "${small[@]}" \
    "${drafters[@]}" --set speculation.history=auto "$@" >>"$work/log" 2>&1 &
  pid=$!
}
# comes NAME: waits for a step's output, or for why there is none.
comes() {
  for _ in $(seq 3000); do
    [ -e "$steps/$1" ] || [ -e "$steps/$1.error" ] && return 0
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  fail "$1 does not come: $(tail -n 3 "$work/log")"
  return 1
}
# alone SEED MAX_TOKENS [ARG...]: the digest of the same step as a run of its own.
alone() {
  rm -rf "$work/alone"
  rollout 1 "$work/alone" --set sampling.seed="$1" --set sampling.max_tokens="$2" --set model.weight_version="$1" \
    --set engine.max_batch=8 "${@:3}" || fail "alone: $(tail -n 2 "$work/alone.log")"
  digest "$work/alone"
}

resident 3
request step-1 1
request step-2 2 90
comes step-1 && same "the first step" "$(alone 1 60)" "$(digest "$steps/step-1")"
comes step-2 && same "the second, of another seed and length" "$(alone 2 90)" "$(digest "$steps/step-2")"

# starts NAME: of the step, as its log has them, and whether it says that the last one ended.
starts() { sed -n 's/^== \(start [0-9]*\|ended\).*/\1/p' "$steps/$1/paceline.log" | paste -sd, ; }
same "each step has a log of its own" "start 1,ended start 1,ended" "$(starts step-1) $(starts step-2)"
same "the second has drafts from the first" 1 "$(grep -c 'responses of 1 earlier run, to 32 of 32 prompts' "$steps/step-2/paceline.log")"
same "with the plan" 1 "$(grep -c '^layout$' "$steps/step-2/paceline.log")"
same "which the user is told once" 1 "$(grep -c '^layout$' "$work/log")"
same "nobody in it is advised to have what it is" "" "$(grep -e '--watch' "$work/log" || true)"

request step-3 3 60 "" "reward: {methd: match}"
comes step-3
same "a request with a mistake is refused" "unknown key 'methd'" "$(grep -o "unknown key 'methd'" "$steps/step-3.error")"
# What names no weights, prompts or noise would be met by the job's own: most likely it was not written yet.
refused() {  # NAME TEXT PATTERN
  printf '%s' "$2" >"$steps/.$1" && mv "$steps/.$1" "$steps/$1.yaml"
  comes "$1" || return 0
  if [ ! -e "$steps/$1" ] && grep -qE "$3" "$steps/$1.error"; then ok "refused: $(cut -c1-150 "$steps/$1.error")"
  else fail "$1: $(cat "$steps/$1.error" 2>/dev/null)"; fi
}
refused step-3-empty "" "step-3-empty.yaml: expected weights .*, found an empty request"
refused step-3-comment $'# model: {path: x}\n' "found an empty request"
refused step-3-tokens "sampling: {max_tokens: 60}" "expected weights .*, prompts .* or sampling .*, found none of them"
printf 'sampling: {seed: 21, max_tokens: 60}' >"$steps/.step-3-seed" && mv "$steps/.step-3-seed" "$steps/step-3-seed.yaml"
comes step-3-seed && same "another seed alone" "$(alone 21 60 --set model.weight_version=0)" "$(digest "$steps/step-3-seed")"
cp -r "$root/configs/models/target" "$work/damaged"
python3 - "$work/damaged/model.safetensors" <<'PY'
import sys
with open(sys.argv[1], "r+b") as file:
    file.seek(-200000, 2)
    file.write(b"\xff" * 200000)  # NaN in bf16
PY
request step-4 4 60 "path: $work/damaged, "
comes step-4
if grep -q "model.safetensors" "$steps/step-4.error"; then ok "so are weights that are no numbers"; else fail "weights that are no numbers: $(cat "$steps/step-4.error")"; fi
if [ ! -e "$steps/step-4.part" ]; then ok "nothing is left of it"; else fail "a refused step left its output"; fi
request step-5 4 60 "path: $root/configs/models/draft, "
comes step-5 && same "other weights, of another shape" "$(alone 4 60 --set model.path="$root/configs/models/draft")" "$(digest "$steps/step-5")"
# Weights alone, as a trainer writes them: what goes with them lies elsewhere, end tokens and all.
mkdir "$work/bare"
cp "$root/configs/models/target/"{config.json,model.safetensors} "$work/bare"
request step-5-bare 5 60 "path: $work/bare, tokenizer: $root/configs/models/target, "
comes step-5-bare && same "a tokenizer elsewhere" "$(alone 5 60)" "$(digest "$steps/step-5-bare")"
fingerprint() { grep -o '"model_fingerprint": "[0-9a-f]*"' "$1/run.json"; }
same "it is the same model" "$(fingerprint "$work/alone")" "$(fingerprint "$steps/step-5-bare")"

# Stopped and killed in the midst of a step.
request step-6 6 400
for _ in $(seq 300); do [ -e "$steps/step-6.part/shards" ] && break; sleep 0.05; done
kill -USR1 "$pid"
code=0
wait "$pid" || code=$?
same "a stop: exit code" 75 "$code"
resident 2
comes step-6 && same "a stop: another job goes on with the step" "$(alone 6 400)" "$(digest "$steps/step-6")"
same "its log has both starts" "start 1,ended,start 2,ended|start 1,ended" "$(starts step-6)"
request step-7 7 400
for _ in $(seq 300); do [ -e "$steps/step-7.part/shards" ] && break; sleep 0.05; done
sleep 0.5
pkill -KILL -f "rollout $config --watch $steps" || true
wait "$pid" || true
resident 2 --set schedule.chunk=16
comes step-7 && same "a kill: another job goes on with the step" "$(alone 7 400)" "$(digest "$steps/step-7")"
# As early, or as late, as the kill came.
same "its log lacks the end of the first" "start 1,start 2,ended|start 2,ended|start 1,ended" "$(starts step-7)"

# Weights that overflow, as those of a training that has diverged, end the job, but not the one behind it.
cp -r "$root/configs/models/target" "$work/diverged"
python3 - "$work/diverged/model.safetensors" <<'PY'
import json, struct, sys
with open(sys.argv[1], "r+b") as file:
    size = struct.unpack("<Q", file.read(8))[0]
    first, last = json.loads(file.read(size))["model.layers.0.input_layernorm.weight"]["data_offsets"]
    file.seek(8 + size + first)
    file.write(b"\x00\x7f" * ((last - first) // 2))
PY
request step-8 8 60 "path: $work/diverged, "
request step-9 9 60
comes step-8
if grep -q "overflows" "$steps/step-8.error"; then ok "weights that overflow are refused"; else fail "weights that overflow: $(cat "$steps/step-8.error")"; fi
for _ in $(seq 600); do { [ -e "$steps/step-9" ] || ! kill -0 "$pid" 2>/dev/null; } && break; sleep 0.1; done
if ! kill -0 "$pid" 2>/dev/null; then
  code=0; wait "$pid" || code=$?
  same "exit code" 65 "$code"
  resident 2
fi
comes step-9 && same "the next step comes" "$(alone 9 60)" "$(digest "$steps/step-9")"

# Where no response can be scored the step is refused, and its responses stay.
echo 'def compute_score(solution_str, ground_truth): return {ground_truth: 1}[solution_str]' >"$work/brittle.py"
request step-10 10 60 "" "reward: {method: command, command: [python3, -m, score_worker, $work/brittle.py]}"
comes step-10
if grep -q "96 of 96 responses have no reward" "$steps/step-10.error"; then ok "rewards that fail are told of"
else fail "rewards that fail: $(cat "$steps/step-10.error")"; fi
same "the responses stay" "$(alone 10 60)" "$(digest "$steps/step-10.part")"

# A draft model that is trained along: new weights at every step, known by one name, so that costs are measured once.
for age in 11 12; do
  cp -r "$root/configs/models/draft" "$work/draft-$age"
  printf '\0' | dd of="$work/draft-$age/model.safetensors" bs=1 seek=$((500000 + age)) conv=notrunc status=none
  request "step-$age" "$age" 60 "" "speculation: {drafters: [{method: suffix}, {method: model, path: $work/draft-$age, name: along}]}"
  comes "step-$age" && same "a draft model of step $age" "$(alone "$age" 60)" "$(digest "$steps/step-$age")"
done
same "its costs are measured once" "1 0" "$(grep -c 'costs of steps and drafts: ' "$steps/step-11/paceline.log") $(grep -c 'costs of steps and drafts: ' "$steps/step-12/paceline.log" || true)"

# A step's prompts under its own noise by other weights, those of today, before its own are there: hints, no tokens.
request step-13-before 13 60 "path: $root/configs/models/draft, "
request step-14 13 60
comes step-14 && same "a step that other weights have foreseen" "$(alone 13 60)" "$(digest "$steps/step-14")"
if [ "$(digest "$steps/step-13-before")" != "$(digest "$steps/step-14")" ]; then ok "they said something else"
else fail "other weights said the same"; fi

# Ranks that run dry begin the next step's responses: a single response keeps one rank busy, and the other has nothing
# to do from its first moment. How far it gets is a matter of time: a machine that is slow to begin tries again with longer steps.
head -n 1 "$root/configs/prompts/unseen.jsonl" >"$work/one.jsonl"
# One prompt is longer than the step before can compute.
{ head -n 7 "$root/configs/prompts/train.jsonl"
  echo "{\"uid\": \"long\", \"prompt\": [{\"role\": \"user\", \"content\": \"$(seq -s ' ' 1000 1400)\"}]}"; } >"$work/eight.jsonl"
one="prompts: {path: $work/one.jsonl, samples: 1}"
eight="prompts: {path: $work/eight.jsonl}"
# busy NAME SEED TOKENS [MORE]: a step of one response, so long, without drafts.
busy() {
  printf 'sampling: {seed: %s, max_tokens: %s, ignore_eos: true'"${4-}"'}\nmodel: {weight_version: %s}\n%s\n%s\n%s\n' "$2" "$3" "$2" "$one" \
    "speculation: {mode: plain, pregenerate: true}" "output: {flush_seconds: 0}" >"$steps/.$1"
  mv "$steps/.$1" "$steps/$1.yaml"
}
# drafts NAME SEED [ENDING [MORE]]: a step that drafts from earlier texts alone.
drafts() {
  printf 'sampling: {seed: %s, max_tokens: 60'"${4-}"'}\nmodel: {weight_version: %s}\n%s\n%s\n' "$2" "$2" "$eight" \
    "speculation: {drafters: [{method: suffix}], policy: fixed}" >"$steps/.$1"
  mv "$steps/.$1" "$steps/$1.${3-yaml}"
}
# figure NAME: tokens for the next step, and tokens from the newest earlier texts that were right.
figure() {
  "$paceline" report "$steps/$1" --json 2>/dev/null | python3 -c 'import json, sys
drafts = json.load(sys.stdin)["runs"][0]["drafts"]
told = [d for d in drafts["drafters"] if d["name"] == "history:1"]
print(drafts["pregenerated"], sum(p["accepted"] for d in told for p in d["positions"]))'
}
eight_alone() { alone "$1" 60 --set prompts.path="$work/eight.jsonl"; }
one_alone() { alone "$1" "$2" --set prompts.path="$work/one.jsonl" --set prompts.samples=1 --set sampling.ignore_eos=true; }
made=0
right=0
for tokens in 800 1600 3200; do
  seed=2$tokens
  drafts "step-$seed-b" "$seed" upcoming  # its weights are not there yet
  busy "step-$seed-a" "$seed" "$tokens"
  comes "step-$seed-a" || break
  mv "$steps/step-$seed-b.upcoming" "$steps/step-$seed-b.yaml"
  comes "step-$seed-b" || break
  made=$(figure "step-$seed-a") && made=${made% *}
  right=$(figure "step-$seed-b") && right=${right#* }
  [ "$right" != 0 ] && break
done
if [ "$made" -gt 0 ] && [ "$right" -gt 0 ]; then ok "$made tokens were pregenerated, and $right accepted"
else fail "pregenerated: $made, accepted: $right"; fi
same "the step that was at it" "$(one_alone "$seed" "$tokens")" "$(digest "$steps/step-$seed-a")"
same "the step that drafted from it" "$(eight_alone "$seed")" "$(digest "$steps/step-$seed-b")"
if [ ! -e "$steps/step-$seed-b.ahead" ]; then ok "the texts go with it"; else fail "the texts stay"; fi

# A step whose masks have no room for the next one's begins none of it.
drafts step-4000-b 41 upcoming ', top_k: 300, keep_masks: true'
busy step-4000-a 40 "$tokens" ', top_k: 1, keep_masks: true'
comes step-4000-a
mv "$steps/step-4000-b.upcoming" "$steps/step-4000-b.yaml"
comes step-4000-b && same "wider masks than the step before: nothing was begun" 0 "$(figure step-4000-a | cut -d' ' -f1)"
same "they are as ever" "$(alone 41 60 --set prompts.path="$work/eight.jsonl" --set sampling.top_k=300 --set sampling.keep_masks=true)" \
  "$(digest "$steps/step-4000-b")"

# Killed in the midst of it; texts of another step that are damaged.
drafts step-5000-b 51 upcoming
busy step-5000-a 50 3500
for _ in $(seq 2400); do [ "$(finished "$steps/step-5000-b.ahead" || true)" -gt 0 ] 2>/dev/null && break; sleep 0.05; done
pkill -KILL -f "rollout $config --watch $steps" || true
wait "$pid" || true
cp -r "$steps/step-5000-b.ahead" "$steps/step-6000.ahead"
python3 - "$steps"/step-6000.ahead/shards/trajectories-*.h5 <<'PY'
import sys
for name in sys.argv[1:]:
    with open(name, "r+b") as file:
        size = file.seek(0, 2)
        file.seek(size // 4)
        file.write(b"\xa5" * (size // 2))
PY
resident 2
mv "$steps/step-5000-b.upcoming" "$steps/step-5000-b.yaml"
comes step-5000-a && same "a kill while the next step is begun" "$(one_alone 50 3500)" "$(digest "$steps/step-5000-a")"
reference=$(eight_alone 51)
comes step-5000-b && same "and the next step" "$reference" "$(digest "$steps/step-5000-b")"
drafts step-6000 51
comes step-6000 && same "damaged texts" "$reference" "$(digest "$steps/step-6000")"
if grep -q "warning: speculation.history: .*step-6000.ahead" "$steps/step-6000/paceline.log"; then ok "they are warned of"
else fail "damaged texts: $(grep history "$steps/step-6000/paceline.log")"; fi

: >"$steps/stop"
code=0
wait "$pid" || code=$?
same "the folder is closed: exit code" 0 "$code"

code=0
"$here/launch.sh" 1 "$paceline" rollout "$config" --watch "$work/nowhere" >"$work/log" 2>&1 || code=$?; [ "$code" = 64 ] || cat "$work/log"
same "no such folder: exit code" 64 "$code"
finish
