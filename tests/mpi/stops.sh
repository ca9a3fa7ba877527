#!/usr/bin/env bash
# stops.sh PACELINE: what ends a response, what cannot be sampled and what could have been, over ranks, tensor
# parallelism, speculation, chunks and resuming.
source "$(dirname "$0")/lib.sh"
python=$(command -v /usr/bin/python3 || command -v python3)
if ! "$python" -c 'import h5py, numpy' 2>/dev/null; then echo "SKIP: h5py or numpy is not there"; exit 0; fi
export PYTHONDONTWRITEBYTECODE=1
model=$root/configs/models/target
head -n 8 "$root/configs/prompts/quickstart.jsonl" >"$work/prompts.jsonl"
small=(--set prompts.path="$work/prompts.jsonl" --set prompts.samples=3 --set sampling.max_tokens=120
       --set engine.threads=1)
drafts=(--set "speculation.drafters=[{method: suffix}, {method: model, path: $root/configs/models/draft}]")

# values WHAT MODE [ARG...]: what stop_values.py says.
values() {
  local what=$1 found
  shift
  if found=$("$python" "$here/stop_values.py" "$@" 2>&1); then ok "$what: $found"; else fail "$what: $found"; fi
}
# says WHAT LOG PATTERN, silent WHAT LOG PATTERN
says() { if grep -qE -- "$3" "$2"; then ok "$1"; else fail "$1: no line is '$3':"; cat "$2"; fi; }
silent() { if grep -qE -- "$3" "$2"; then fail "$1: a line is '$3':"; cat "$2"; else ok "$1"; fi; }
# refused WHAT CODE PATTERN [ARG...]: on any number of ranks, at once.
refused() {
  local what=$1 expected=$2 pattern=$3 ranks code
  shift 3
  for ranks in 1 3; do
    code=0
    at_once rollout "$ranks" "$work/refused" "$@" || code=$?
    same "$what, $ranks ranks: exit code" "$expected" "$code"
    says "$what, $ranks ranks" "$work/refused.log" "$pattern"
  done
}

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
strings=(--set sampling.ignore_eos=true --set 'sampling.stop_strings=["<|im_end|>", "<|endoftext|>"]')
over_layouts "special tokens as stop strings" "${strings[@]}"
early=(--set sampling.min_tokens=30)
rollout 1 "$work/early" "${early[@]}" || { cat "$work/early.log"; exit 1; }
reference=$(digest "$work/early")
run "they cannot be sampled before min_tokens" 1 "${early[@]}" "${strings[@]}"

# One that contains a special token matches with it: responses are those without an end, cut there.
rollout 1 "$work/endless" --set sampling.ignore_eos=true || { cat "$work/endless.log"; exit 1; }
spelled=(--set sampling.ignore_eos=true --set 'sampling.stop_strings=["0<|im_end|>"]')
rollout 1 "$work/spelled" "${spelled[@]}" || { cat "$work/spelled.log"; exit 1; }
values "a stop string with a special token" cut "$model" "$work/endless" "$work/spelled" "0<|im_end|>"
reference=$(digest "$work/spelled")
over_layouts "a stop string with a special token" "${spelled[@]}"
says "the banner says what ends responses" "$work/spelled.log" '^  responses end with "0<\|im_end\|>" or 120 tokens$'
says "and with which tokens" "$work/own.log" '^  responses end with <\|endoftext\|> \(509\), <\|im_end\|> \(511\) or 120 tokens$'
same "run.json has the stop set" "[509, 511]" "$("$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["sampling"]["stops"])' "$work/own/run.json")"

# Rows of the vocabulary that no token has are not sampled: here each token's row is there twice.
padded=$work/padded
"$python" "$here/stop_values.py" pad "$model" "$padded" 2 >/dev/null
"$python" "$here/stop_values.py" pad "$root/configs/models/draft" "$work/padded-draft" 2 >/dev/null
drafts=(--set "speculation.drafters=[{method: suffix}, {method: model, path: $work/padded-draft}]")
for settings in sampling.temperature=1 "sampling.top_k=600 sampling.top_p=0.9" sampling.temperature=0 sampling.min_tokens=40; do
  read -ra words <<<"$settings"
  set=()
  for word in "${words[@]}"; do set+=(--set "$word"); done
  rm -rf "$work/plain" "$work/masked"
  rollout 1 "$work/plain" "${set[@]}" && rollout 1 "$work/masked" --set model.path="$padded" "${set[@]}" || fail "padded, $settings"
  values "padded, $settings" same "$work/plain" "$work/masked"
done
rollout 1 "$work/padded-run" --set model.path="$padded" || { cat "$work/padded-run.log"; exit 1; }
says "the banner says what is masked" "$work/padded-run.log" '512 tokens of the vocabulary cannot be sampled: 512-1023'
reference=$(digest "$work/padded-run")
over_layouts "padded" --set model.path="$padded"
"$here/launch.sh" 2 "$paceline" score "$config" "$work/padded-run" "${backend[@]}" "${small[@]}" --set model.path="$padded" \
  --set layout.verifier_tp=2 >"$work/score.log" 2>&1 || cat "$work/score.log"
says "score masks them too" "$work/score.log" "^all log-probabilities equal the run's in every bit"
rollout 1 "$work/kept-run" --set model.path="$padded" --set sampling.unused_ids=keep || fail "unused ids are kept"
if [ "$("$python" "$here/stop_values.py" has "$work/kept-run" 512 1023)" -gt 100 ]; then ok "with unused_ids: keep they are sampled"
else fail "with unused_ids: keep none is sampled"; fi
code=0; rollout 1 "$work/padded-run" --resume --set model.path="$padded" --set sampling.unused_ids=keep || code=$?
same "a run goes on with what it masked: exit code" 64 "$code"
says "a run goes on with what it masked" "$work/padded-run.log" 'tokens masked by sampling.unused_ids, banned_ids and allowed_ids: \[\[512,1023\]\], now \[\]'
sed 's/"vocab_size"/"image_token_id": 510, "vision_start_token_id": 508, "vocab_size"/' "$model/config.json" >"$work/config.json"
cp -r "$model" "$work/vision" && chmod -R u+w "$work/vision" && cp "$work/config.json" "$work/vision/config.json"
rollout 1 "$work/vision-run" --set model.path="$work/vision" --set sampling.banned_ids=[48,49] || cat "$work/vision-run.log"
says "placeholders and what is banned are masked" "$work/vision-run.log" '4 tokens of the vocabulary cannot be sampled: 48-49, 508, 510'
same "none of them is sampled" "0 0 0" "$(for ids in "48 49" "508 508" "510 510"; do "$python" "$here/stop_values.py" has "$work/vision-run" $ids; done | xargs)"
refused "a banned id that is none" 64 'sampling.banned_ids: 512 is not a token of this model \(0 to 511\)' --set sampling.banned_ids=[3,512]
refused "everything is banned" 64 "sampling.banned_ids: none of the model's 512 tokens is left" --set "sampling.banned_ids=[$(seq -s, 0 511)]"
refused "min_tokens where all else ends a response" 64 'sampling.min_tokens: found 2, but no token of this model may be sampled first: each ends a response' --set sampling.min_tokens=2 --set "sampling.stop_ids=[$(seq -s, 0 511)]"
rollout 1 "$work/no-end" --set sampling.banned_ids=[509,511] --set sampling.max_tokens=4 || fail "every end is banned"
says "every end is banned" "$work/no-end.log" 'warning: no token can end a response: sampling.banned_ids bans every token that ends responses'

# What ends no turn is told of, with the setting that mends it.
silent "nothing to warn of" "$work/own.log" 'warning: (turns|only sampling.max_tokens ends|the model.s end tokens)'
base=$work/base
cp -r "$model" "$base" && chmod -R u+w "$base"
echo '{"eos_token_id": 509}' >"$base/generation_config.json"
rollout 1 "$work/base-run" --set model.path="$base" || fail "a base model"
turns='warning: turns of the prompts end with <\|im_end\|>, but responses do not end there; set sampling.stop_ids: \[511\]'
says "end tokens without the template's" "$work/base-run.log" "$turns"
"$paceline" check "$config" "${backend[@]}" "${small[@]}" --output "$work/none" --set model.path="$base" >"$work/check.log" 2>&1 || fail "check"
says "check says so too" "$work/check.log" "$turns"
rollout 1 "$work/mended" --set model.path="$base" --set sampling.stop_ids=[511] || fail "mended"
silent "the setting mends it" "$work/mended.log" 'warning: turns'
same "and gives what the model's own end gives" "$(digest "$work/own")" "$(digest "$work/mended")"
echo '{"prompt": "two and two"}' >"$work/text.jsonl"
rollout 1 "$work/text-run" --set model.path="$base" --set prompts.path="$work/text.jsonl" --set sampling.max_tokens=4 || fail "text"
silent "text without turns is not warned of" "$work/text-run.log" 'warning: turns'
echo '{"eos_token_id": []}' >"$base/generation_config.json"
rollout 1 "$work/empty" --set model.path="$base" --set sampling.max_tokens=4 || fail "an empty list"
says "an empty list of ends" "$work/empty.log" 'warning: only sampling.max_tokens ends a response: .* names no end token \(eos_token_id\); set sampling.stop_ids: \[511\]'

# A step whose end tokens are others than those of the step before.
cp -r "$model" "$work/step" && chmod -R u+w "$work/step" && rm "$work/step/generation_config.json"
mkdir "$work/steps"
echo "{model: {weight_version: 1}, sampling: {max_tokens: 4}}" >"$work/steps/1.yaml"
echo "{model: {path: $work/step}, sampling: {max_tokens: 4}}" >"$work/steps/2.yaml"
touch "$work/steps/stop"
"$here/launch.sh" 2 "$paceline" rollout "$config" --watch "$work/steps" "${backend[@]}" "${small[@]}" >"$work/watch.log" 2>&1 || cat "$work/watch.log"
says "a step's end tokens are others" "$work/watch.log" "warning: the model's end tokens are \[511\]; in the previous step they were \[511, 509\]: .*/step has no generation_config.json; to stop at the earlier ones too, set sampling.stop_ids: \[511, 509\]"

# What each token could have been is recorded.
masks=(--set sampling.keep_masks=true --set sampling.top_k=20 --set sampling.top_p=0.9 --set sampling.temperature=0.9)
rollout 1 "$work/masks" "${masks[@]}" || { cat "$work/masks.log"; exit 1; }
rollout 1 "$work/maskless" "${masks[@]}" --set sampling.keep_masks=false || fail "without masks"
same "masks have no part in the digest" "$(digest "$work/maskless")" "$(digest "$work/masks")"
reference=$(digest "$work/masks")
drafts=(--set "speculation.drafters=[{method: suffix}, {method: model, path: $root/configs/models/draft}]")
# with_masks WHAT RANKS [ARG...]: the same masks, too.
with_masks() {
  run "$@" "${masks[@]}"
  values "$1: masks" equal "$work/masks" "$work/run"
}
with_masks "4 ranks" 4
with_masks "TP 2, batch 5" 2 --set layout.verifier_tp=2 --set engine.max_batch=5
with_masks "speculation" 2 "${drafts[@]}" --set speculation.policy=fixed --set speculation.paths=2
with_masks "drafter ranks" 3 "${drafts[@]}" --set layout.drafters=1
with_masks "chunks that move at random" 3 --set test.shuffle=[moves] --set schedule.chunk=8 --set engine.max_batch=4
cut_and_resume KILL "masks" 2 masks 1 masks
values "resumed: masks" equal "$work/masks" "$work/cut"
cut_and_resume USR1 "masks" 1 masks 2 masks
values "stopped and resumed: masks" equal "$work/masks" "$work/cut"
rollout 2 "$work/exact" "${masks[@]}" --set model.dtype=fp32 || fail "masks in fp32"
values "masks, by a plain decoder" kept "$work/exact" "$model"
rollout 1 "$work/padded-masks" "${masks[@]}" --set model.path="$padded" --set model.dtype=fp32 || fail "masks of a padded vocabulary"
values "masks of a padded vocabulary, by a plain decoder" kept "$work/padded-masks" "$padded"
refused "masks without a bound" 64 'sampling.top_k: expected 1 to 1024 where sampling.keep_masks is true.* found 0' --set sampling.keep_masks=true

# Lines without uids, some of which have a longest response and stops of their own.
"$python" - "$work/prompts.jsonl" "$work/plain.jsonl" "$work/own.jsonl" <<'PY'
import json, sys
own = [{}, {"max_tokens": 20}, {"max_tokens": 200}, {"stop_strings": ["zz", " "]}, {"stop_ids": [509, 16]},
       {"max_tokens": 90, "stop_ids": [], "stop_strings": ["<|im_end|>", "1"]}, {"max_tokens": None}, {"stop_strings": []}]
with open(sys.argv[1]) as given, open(sys.argv[2], "w") as plain, open(sys.argv[3], "w") as file:
    for line, fields in zip(given, own, strict=True):
        row = {name: value for name, value in json.loads(line).items() if name != "uid"}
        plain.write(json.dumps(row) + "\n")
        file.write(json.dumps(row | fields) + "\n")
PY
tac "$work/own.jsonl" >"$work/turned.jsonl"
own=(--set prompts.path="$work/own.jsonl" --set 'sampling.stop_strings=["q"]' --set sampling.min_tokens=8)
rollout 1 "$work/lines" "${own[@]}" || { cat "$work/lines.log"; exit 1; }
reference=$(digest "$work/lines")
over_layouts "lines of their own" "${own[@]}"
run "lines of their own: another order" 2 "${own[@]}" --set prompts.path="$work/turned.jsonl"
run "lines of their own: moves" 3 "${own[@]}" --set test.shuffle=[moves] --set schedule.chunk=16
run "lines of their own: a drafter rank" 2 "${own[@]}" "${drafts[@]}" --set layout.drafters=1
run "lines of their own: little KV" 2 "${own[@]}" --set engine.kv_memory=1MiB --set schedule.chunk=16
cut_and_resume KILL "lines of their own" 2 own 1 own
cp -r "$model" "$work/tokens" && chmod -R u+w "$work/tokens"
spelling=(--set prompts.path="$work/own.jsonl" --set model.tokenizer="$work/tokens")
rollout 1 "$work/spelling" "${spelling[@]}" || cat "$work/spelling.log"
echo >>"$work/tokens/tokenizer.json"
code=0; rollout 1 "$work/spelling" --resume "${spelling[@]}" || code=$?
same "lines' stop strings, another tokenizer: exit code" 64 "$code"
says "lines' stop strings, another tokenizer" "$work/spelling.log" model_fingerprint

# Each is the response to the same prompt without any end, up to where its own line ends it.
rollout 1 "$work/long" --set prompts.path="$work/plain.jsonl" --set sampling.ignore_eos=true \
  --set sampling.max_tokens=200 || { cat "$work/long.log"; exit 1; }
free=("${own[@]}" --set sampling.min_tokens=0)
rollout 1 "$work/free" "${free[@]}" || { cat "$work/free.log"; exit 1; }
if found=$("$python" "$here/own_values.py" "$root/configs/models/target" "$work/long" "$work/free" "$work/own.jsonl" 120 q 2>&1)
then ok "lines of their own: $found"; else fail "lines of their own: $found"; fi

# Its stop ids were banned before min_tokens, which score knows.
if "$here/launch.sh" 2 "$paceline" score "$config" "$work/lines" "${backend[@]}" --set engine.threads=1 \
     --set sampling.min_tokens=8 --set 'sampling.stop_strings=["q"]' --name own >"$work/score.log" 2>&1 &&
  grep -q "all log-probabilities equal the run's in every bit" "$work/score.log"
then ok "score knows lines' own stops"; else fail "score knows lines' own stops: $(tail -n 2 "$work/score.log")"; fi

# Penalties and biases, which lines may have of their own, and the most probable tokens.
"$python" - "$work/plain.jsonl" "$work/penalties.jsonl" <<'PY'
import json, sys
own = [{}, {"repetition_penalty": 1.5}, {"presence_penalty": -1, "logit_bias": {"20": 1.5}}, {"frequency_penalty": 0.8}]
with open(sys.argv[1]) as given, open(sys.argv[2], "w") as file:
    for p, line in enumerate(given):
        file.write(json.dumps(json.loads(line) | own[p % 4]) + "\n")
PY
changed=(--set prompts.path="$work/penalties.jsonl" --set sampling.repetition_penalty=1.2 --set sampling.presence_penalty=0.4
         --set sampling.frequency_penalty=0.2 --set 'sampling.logit_bias={30: -2, 16: 1}' --set sampling.logprobs=4)
rollout 1 "$work/changed" "${changed[@]}" || { cat "$work/changed.log"; exit 1; }
rollout 1 "$work/topless" "${changed[@]}" --set sampling.logprobs=0 || fail "without logprobs"
same "logprobs have no part in the digest" "$(digest "$work/topless")" "$(digest "$work/changed")"
reference=$(digest "$work/changed")
with_top() {
  run "$@" "${changed[@]}"
  values "$1: the most probable" same_top "$work/changed" "$work/run"
}
with_top "penalties: 4 ranks" 4
with_top "penalties: TP 2, batch 5" 2 --set layout.verifier_tp=2 --set engine.max_batch=5
with_top "penalties: trees" 2 "${drafts[@]}" --set speculation.policy=fixed --set speculation.paths=3
with_top "penalties: drafter ranks" 3 "${drafts[@]}" --set layout.drafters=1
with_top "penalties: chunks that move at random" 3 --set test.shuffle=[moves] --set schedule.chunk=8 --set engine.max_batch=4
cut_and_resume KILL "penalties" 2 changed 1 changed
values "penalties, resumed: the most probable" same_top "$work/changed" "$work/cut"
rollout 2 "$work/exact-changed" "${changed[@]}" --set model.dtype=fp32 || fail "penalties in fp32"
values "penalties, by the processors" penalised "$work/exact-changed" "$model"
"$here/launch.sh" 2 "$paceline" score "$config" "$work/exact-changed" "${backend[@]}" --set engine.threads=1 --name own \
  --set model.dtype=fp32 --set layout.verifier_tp=2 "${changed[@]}" >"$work/score.log" 2>&1 || cat "$work/score.log"
says "score has the same penalties" "$work/score.log" "^all log-probabilities equal the run's in every bit"
values "the most probable, by a plain decoder and by score" top "$work/exact-changed" "$model" own
only=(--set "sampling.allowed_ids=[16, 17, 18, 511]" --set sampling.max_tokens=20)
rollout 1 "$work/only" "${only[@]}" || fail "allowed ids"
says "the banner says what else is masked" "$work/only.log" 'cannot be sampled: 0-15, 19-510 .*sampling.allowed_ids'
same "no other is sampled" "0 0" "$(for ids in "0 15" "19 510"; do "$python" "$here/stop_values.py" has "$work/only" $ids; done | xargs)"

# Lines that say how their tokens are drawn have the responses of runs that draw all so.
"$python" - "$work/plain.jsonl" "$work/drawn.jsonl" <<'PY'
import json, sys
own = [{}, {"temperature": 0.5, "samples": 2}, {"top_k": 3, "top_p": 0.8, "seed": 7, "n": 5}, {"temperature": 0, "stop": "1"}]
with open(sys.argv[1]) as given, open(sys.argv[2], "w") as file:
    for p, line in enumerate(given):
        file.write(json.dumps(json.loads(line) | own[p % 4]) + "\n")
PY
lines=(--set prompts.path="$work/plain.jsonl")
rollout 1 "$work/drawn-0" "${lines[@]}" || fail "drawn as the run says"
rollout 1 "$work/drawn-1" "${lines[@]}" --set sampling.temperature=0.5 || fail "drawn at 0.5"
rollout 1 "$work/drawn-2" "${lines[@]}" --set prompts.samples=5 --set sampling.top_k=3 --set sampling.top_p=0.8 --set sampling.seed=7 || fail "drawn from 3"
rollout 1 "$work/drawn-3" "${lines[@]}" --set sampling.temperature=0 --set 'sampling.stop_strings=["1"]' || fail "the best"
drawn=(--set prompts.path="$work/drawn.jsonl")
rollout 1 "$work/drawn" "${drawn[@]}" || { cat "$work/drawn.log"; exit 1; }
values "lines' own draws" dealt "$work/drawn" "$work"/drawn-{0,1,2,3}
says "the banner names what lines have" "$work/drawn.log" 'lines of the prompts have their own n, samples, seed, stop, temperature, top_k, top_p'
reference=$(digest "$work/drawn")
over_layouts "lines' own draws" "${drawn[@]}"
run "lines' own draws: a drafter rank" 2 "${drawn[@]}" "${drafts[@]}" --set layout.drafters=1
if "$here/launch.sh" 2 "$paceline" score "$config" "$work/drawn" "${backend[@]}" --set engine.threads=1 \
     --name own >"$work/score.log" 2>&1 &&
  grep -q "all log-probabilities equal the run's in every bit" "$work/score.log"
then ok "score draws as lines say"; else fail "score draws as lines say: $(tail -n 2 "$work/score.log")"; fi

finish
