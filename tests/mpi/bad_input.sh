#!/usr/bin/env bash
# bad_input.sh PACELINE: each kind of bad input gives one clear message and the documented exit code.
source "$(dirname "$0")/lib.sh"
model=$root/configs/models/target

# refuses WHAT CODE PATTERN RANKS [ARG...]: a rollout that must end with CODE and say PATTERN, once.
refuses() {
  local what=$1 code=$2 pattern=$3 ranks=$4 found=0
  shift 4
  rm -rf "$work/bad"
  at_once rollout "$ranks" "$work/bad" "$@" || found=$?
  same "$what: exit code" "$code" "$found"
  local times
  times=$(grep -cE "^paceline: .*($pattern)" "$work/bad.log" || true)
  if [ "$times" = 1 ]; then
    ok "$what: $(grep -E "^paceline: .*($pattern)" "$work/bad.log" | cut -c1-150)"
  else
    fail "$what: said $times times '$pattern':"; cat "$work/bad.log"
  fi
}

# broken_model NAME: a copy of the model to break; prints its path.
broken_model() { cp -r "$model" "$work/$1"; echo "$work/$1"; }
prompt_file() { printf '%s\n' "${@:2}" >"$work/$1.jsonl"; echo "$work/$1.jsonl"; }

refuses "unknown key" 64 "temprature.*temperature" 2 --set sampling.temprature=1
refuses "unknown section" 64 "smpling.*sampling" 1 --set smpling.temperature=1
refuses "wrong type" 64 "max_tokens.*(integer|number)" 1 --set sampling.max_tokens=many
refuses "out of range" 64 "top_p" 1 --set sampling.top_p=1.5

all=[$(seq -s, 0 511)]
refuses "no token that goes on" 64 "sampling.min_tokens: found 2, but no token .* ends a response .* Expected 0" 2 \
  --set sampling.stop_ids="$all" --set sampling.min_tokens=2

refuses "unknown drafter" 64 "drafters.*sufix.*suffix" 1 --set 'speculation.drafters=[{method: sufix}]'
refuses "key of another drafter" 64 "drafters.*depth" 1 --set 'speculation.drafters=[{method: ngram, depth: 4}]'
refuses "missing draft model" 65 "nowhere" 2 --set "speculation.drafters=[{method: model, path: $work/nowhere}]"
refuses "draft model of another vocabulary" 64 "vocabulary of .*llama3.* has 320 tokens, the model's has 512" 2 \
  --set "speculation.drafters=[{method: model, path: $root/tests/models/parity/llama3}]"
echo "decode: {points: []}" >"$work/profile.yaml"
refuses "profile that is none" 64 "profile.yaml:1:18: decode.points: expected a list of .rows, seconds." 2 \
  --set engine.profile="$work/profile.yaml"
refuses "missing profile" 64 "nowhere.yaml: cannot read the cost profile" 1 --set engine.profile="$work/nowhere.yaml"
cp -r "$root/configs/models/draft" "$work/other-tokens"
python3 - "$work/other-tokens/tokenizer.json" <<'PY'
import json, sys
t = json.load(open(sys.argv[1]))
vocab = t["model"]["vocab"]
a, b = [k for k, v in sorted(vocab.items(), key=lambda kv: kv[1]) if v in (70, 71)]
vocab[a], vocab[b] = vocab[b], vocab[a]
json.dump(t, open(sys.argv[1], "w"))
PY
refuses "draft model whose tokens mean something else" 64 "token 70 is .* in .*, but .* in the model" 1 \
  --set "speculation.drafters=[{method: model, path: $work/other-tokens}]"

refuses "a KV pool's disk that is not there" 64 "kv_pool.disk: .*$work/nowhere: cannot create the KV pool's file in this directory" 2 \
  --set kv_pool.disk="$work/nowhere"
refuses "a KV pool's disk without memory" 64 "kv_pool.disk: .*kv_pool.memory" 1 --set kv_pool.disk="$work" \
  --set kv_pool.memory=none

refuses "a policy that is not there" 64 "speculation.policy: .*nightjer.*'nightjar'" 1 --set speculation.policy=nightjer
refuses "an order that is not there" 64 "schedule.policy: .*contxt.*'context'" 1 --set schedule.policy=contxt
refuses "a size of no disk" 64 "kv_pool.disk_size: expected kv_pool.disk" 1 --set kv_pool.disk_size=1GiB
refuses "an order without its lengths" 64 "schedule.policy: oracle needs schedule.lengths" 1 --set schedule.policy=oracle
refuses "lengths of no run" 64 "$work/nowhere: not a finished run" 2 --set schedule.policy=oracle \
  --set schedule.lengths="$work/nowhere"
if [ -e "$work/bad" ]; then fail "lengths of no run: a directory was made"; else ok "lengths of no run: no directory was made"; fi
refuses "KV memory without room for a request" 64 "engine.kv_memory: .*cannot hold one request" 2 \
  --set engine.kv_memory=1MiB --set sampling.max_tokens=1024
refuses "KV memory that no machine has" 64 "engine.kv_memory: 102400.00 GiB are asked for, and a rank has" 2 \
  --set engine.kv_memory=100T
refuses "drafts past all memory" 64 "max_length.* rows per step.*GiB per rank" 1 --set engine.max_batch=4096 \
  --set speculation.max_length=1024 --set speculation.paths=1024 --set 'speculation.drafters=[{method: ngram}]'

refuses "missing model directory" 65 "nowhere" 2 --set model.path="$work/nowhere"
dir=$(broken_model no-weights); rm "$dir/model.safetensors"
refuses "missing model file" 65 "model.safetensors" 2 --set model.path="$dir"

# Breaks the file's header: $1 a folder, $2 Python statements over `header` (a dict), `data`, `length`.
break_safetensors() {
  python3 - "$1/model.safetensors" "$2" <<'PY'
import json, struct, sys
path, change = sys.argv[1:]
raw = open(path, "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
header, data, length = json.loads(raw[8:8 + n]), raw[8 + n:], None
names = sorted(k for k in header if k != "__metadata__")
exec(change)
text = json.dumps(header).encode()
open(path, "wb").write(struct.pack("<Q", len(text) if length is None else length) + text + data)
PY
}
corrupt() {  # WHAT PATTERN CHANGE
  local dir
  dir=$(broken_model "${1// /-}")
  break_safetensors "$dir" "$3"
  refuses "safetensors: $1" 65 "model.safetensors.*($2)" 1 --set model.path="$dir"
}
dir=$(broken_model cut); truncate -s 100000 "$dir/model.safetensors"
refuses "safetensors: truncated" 65 "model.safetensors" 2 --set model.path="$dir"
dir=$(broken_model empty); : >"$dir/model.safetensors"
refuses "safetensors: empty" 65 "model.safetensors" 1 --set model.path="$dir"
corrupt "header length past the file" "header" "length = 1 << 60"
corrupt "header length zero" "header" "length = 0"
corrupt "offsets out of range" "offset|bytes" "header[names[-1]]['data_offsets'][1] += 1 << 40"
corrupt "overlapping tensors" "overlap|bytes|offset" "header[names[1]]['data_offsets'] = header[names[0]]['data_offsets']; header[names[1]]['shape'] = header[names[0]]['shape']"
corrupt "huge shape" "shape|large|overflow|bytes" "header[names[0]]['shape'] = [1 << 40, 1 << 40]"
corrupt "unknown dtype" "F12" "header[names[0]]['dtype'] = 'F12'"
corrupt "wrong shape" "model.norm.weight.*expected.*256" \
  "header['model.norm.weight']['shape'] = [128, 2]"
corrupt "missing tensor" "model.layers.0.mlp.up_proj.weight" \
  "header['other'] = header.pop('model.layers.0.mlp.up_proj.weight')"

dir=$(broken_model arch); sed -i 's/Qwen2ForCausalLM/Qwen9ForCausalLM/; s/"qwen2"/"qwen9"/' "$dir/config.json"
refuses "unsupported architecture" 65 "config.json.*[Qq]wen9" 1 --set model.path="$dir"
cp -r "$root/tests/models/parity/qwen2-sharded" "$work/tok"; cp "$model/tokenizer.json" "$work/tok"
refuses "tokenizer that does not match" 65 "tokenizer.*highest id is 508 .*333" 2 --set model.path="$work/tok"
dir=$(broken_model tok2); python3 - "$dir/tokenizer.json" <<'PY'
import json, sys
t = json.load(open(sys.argv[1]))
t["added_tokens"].append(dict(t["added_tokens"][0], id=70000, content="<|extra|>"))
json.dump(t, open(sys.argv[1], "w"))
PY
refuses "tokenizer larger than the model" 65 "tokenizer.*7000[01]" 2 --set model.path="$dir"
dir=$(broken_model tok3); echo '{' >"$dir/tokenizer.json"
refuses "malformed tokenizer.json" 65 "tokenizer.json" 1 --set model.path="$dir"

# Token ids need no text. A tokenizer that is not read is a warning then, said once, and changes nothing; whatever needs
# text is refused with the reason.
file=$(prompt_file of-ids '{"uid": "a", "prompt_tokens": [1, 2, 3]}' '{"uid": "b", "prompt_tokens": [4, 5]}')
ids=(--set prompts.path="$file" --set prompts.samples=2 --set sampling.max_tokens=20)
rollout 1 "$work/of-ids" "${ids[@]}" || fail "token ids: $(tail -n 1 "$work/of-ids.log")"
reference=$(digest "$work/of-ids")
unread="^warning: the tokenizer cannot be read: "
no_text="Responses have token ids but no text, and may contain ids without a token"
# unreadable WHAT PATTERN DIR: a model whose tokenizer is not read for that reason.
unreadable() {
  run "$1" 2 "${ids[@]}" --set model.path="$3"
  same "$1: a warning" 1 "$(grep -cE "$unread.*$2.*$no_text" "$work/run.log" || true)"
  refuses "$1: prompts of text" 65 "prompts/quickstart.jsonl:1:.*text needs a tokenizer.*$2" 2 --set model.path="$3"
}
unreadable "a malformed tokenizer.json" "tok3/tokenizer.json: byte .*malformed JSON" "$dir"
refuses "a malformed tokenizer.json: stop strings" 65 "sampling.stop_strings: the text of tokens.*tok3/tokenizer.json" 2 \
  --set model.path="$dir" "${ids[@]}" --set 'sampling.stop_strings=["x"]'
refuses "a malformed tokenizer.json: rewards" 65 "reward.method: the text of tokens.*tok3/tokenizer.json" 1 \
  --set model.path="$dir" "${ids[@]}" --set reward.method=match
"$paceline" show "$work/run" 0 >"$work/shown" 2>"$work/shown.log" || true
same "a malformed tokenizer.json: shown as ids" 1 "$(grep -c "^1 2 3$" "$work/shown")"
dir=$(broken_model tok4); sed -i 's/"type": *"BPE"/"type":"Unigram"/' "$dir/tokenizer.json"
unreadable "an unsupported tokenizer.json" 'tok4/tokenizer.json: /model/type: found "Unigram"; supported' "$dir"
dir=$(broken_model tok5); mv "$dir/tokenizer.json" "$dir/tokenizer.model"
unreadable "a SentencePiece model" "tokenizer.model alone is not read. Make tokenizer.json of it: python3 -c" "$dir"
dir=$(broken_model tok6); echo '{"split_special_tokens": true}' >"$dir/tokenizer_config.json"
unreadable "an unsupported tokenizer_config.json" "tok6/tokenizer_config.json: /split_special_tokens: found true" "$dir"
dir=$(broken_model tok7); echo '{"pad_token": ' >"$dir/tokenizer_config.json"
unreadable "a malformed tokenizer_config.json" "tok7/tokenizer_config.json: byte .*malformed JSON" "$dir"
refuses "no tokenizer elsewhere" 65 "model.tokenizer: $work/nowhere/tokenizer.json: No such file" 2 --set model.tokenizer="$work/nowhere"

refuses "missing prompt file" 65 "nowhere.jsonl" 2 --set prompts.path="$work/nowhere.jsonl"
file=$(prompt_file malformed '{"prompt": "ok"}' '{"prompt": "cut')
refuses "malformed JSONL line" 65 "malformed.jsonl:2" 2 --set prompts.path="$file"
file=$(prompt_file hollow '{"prompt": "ok"}' '{"prompt": ""}')
refuses "empty prompt" 65 "hollow.jsonl:2.*empty" 2 --set prompts.path="$file"
long=$(seq -s' ' 1 4000)
file=$(prompt_file long "{\"prompt\": \"$long\"}" '{"prompt": "short"}')
refuses "prompt past the context" 65 "long.jsonl:1.*tokens" 2 --set prompts.path="$file"
file=$(prompt_file ids '{"prompt_tokens": [1, 2, 70000]}')
refuses "token id outside the vocabulary" 65 "ids.jsonl:1.*70000" 1 --set prompts.path="$file"
file=$(prompt_file twice '{"uid": "a", "prompt": "x"}' '{"uid": "a", "prompt": "y"}')
refuses "repeated uid" 65 "twice.jsonl:2.*uid" 1 --set prompts.path="$file"

# Paths that cannot be followed, and what is no file. Root may search every folder, so that is not tried as root.
long_name=$work/$(printf 'x%.0s' {1..300})
ln -s loop "$work/loop"
mkfifo "$work/pipe"
for path in "$work/loop" "$long_name"; do
  reason=$([ "$path" = "$work/loop" ] && echo "levels of symbolic links" || echo "name too long")
  refuses "prompts: $reason" 74 "$reason" 2 --set prompts.path="$path"
  refuses "model: $reason" 74 "$reason" 1 --set model.path="$path"
  code=0; at_once "$here/launch.sh" 2 "$paceline" rollout "$config" --output "$path/out" >"$work/bad.log" 2>&1 || code=$?
  same "output: $reason: exit code" 74 "$code"
  if [ "$(grep -c "^paceline: .*$reason" "$work/bad.log")" = 1 ]; then ok "output: $reason"
  else fail "output: $reason"; cat "$work/bad.log"; fi
  code=0; "$paceline" digest "$path" 2>"$work/bad.log" || code=$?
  same "digest: $reason" 74 "$code"
done
for file in tokenizer.json model.safetensors generation_config.json tokenizer_config.json chat_template.jinja; do
  dir=$(broken_model "link-$file"); ln -sf "$work/loop" "$dir/$file"
  refuses "$file: a loop of links" 74 "$file: .*levels of symbolic links" 1 --set model.path="$dir"
done
if [ "$(id -u)" != 0 ]; then
  mkdir -p "$work/locked"; cp "$root/configs/prompts/quickstart.jsonl" "$work/locked"; chmod 000 "$work/locked"
  refuses "prompts: a folder that may not be searched" 74 "[Pp]ermission" 1 --set prompts.path="$work/locked/quickstart.jsonl"
  chmod 700 "$work/locked"
fi
for path in /dev/zero "$work/pipe" "$work"; do
  refuses "prompts: $path" 65 "$path: not a regular file" 2 --set prompts.path="$path"
done
dir=$(broken_model piped); rm "$dir/tokenizer.json"; mkfifo "$dir/tokenizer.json"
refuses "tokenizer.json: a pipe" 65 "tokenizer.json: not a regular file" 1 --set model.path="$dir"

refuses "TP that does not divide" 64 "verifier_tp.*3" 3 --set layout.verifier_tp=3
refuses "TP past the kv heads" 64 "verifier_tp.*4" 4 --set layout.verifier_tp=4
refuses "more roles than ranks" 64 "need 4 ranks.*has 2" 2 --set layout.verifier_tp=2 --set layout.verifier_groups=2
refuses "KV memory for no request" 64 "kv_memory.*cannot hold one request" 1 --set engine.kv_memory=1MiB --set sampling.max_tokens=2000
refuses "an ISA this machine lacks" 64 "isa.*(sve|expected)" 1 --set engine.isa=sve

# An over-long prompt can be skipped or truncated instead.
for policy in skip truncate; do
  rm -rf "$work/bad"
  file=$work/long.jsonl
  if rollout 1 "$work/bad" --set prompts.path="$file" --set prompts.overlong=$policy &&
     grep -q "warning: 1 over-long" "$work/bad.log"; then ok "over-long prompt: $policy"
  else fail "over-long prompt: $policy"; cat "$work/bad.log"; fi
done

touch "$work/file"
code=0; rollout 2 "$work/file/run" 2>/dev/null || code=$?  # its log cannot be there either
code=0; "$here/launch.sh" 2 "$paceline" rollout "$config" --output "$work/file/run" >"$work/bad.log" 2>&1 || code=$?
same "unwritable output: exit code" 74 "$code"
if grep -q "^paceline: .*$work/file" "$work/bad.log"; then ok "unwritable output: names it"; else fail "unwritable output"; cat "$work/bad.log"; fi

rollout 1 "$work/taken" || fail "a plain run"
before=$(digest "$work/taken")
code=0; rollout 2 "$work/taken" --set sampling.seed=3 || code=$?
same "directory with another run: exit code" 64 "$code"
if grep -qE "^paceline: .*(holds a run).*--resume" "$work/taken.log"; then ok "directory with another run: advice"
else fail "directory with another run"; cat "$work/taken.log"; fi
same "directory with another run: untouched" "$before" "$(digest "$work/taken")"

# What is written replaces no file of the run, no configuration and nothing but files.
refuses_output() {  # WHAT CODE PATTERN ARG...
  local code=0
  "$paceline" "${@:4}" >"$work/bad.log" 2>&1 || code=$?
  same "$1: exit code" "$2" "$code"
  if grep -qE "^paceline: .*($3)" "$work/bad.log"; then ok "$1: $(tail -n 1 "$work/bad.log")"; else fail "$1"; cat "$work/bad.log"; fi
}
cp "$config" "$work/own.yaml"
refuses_output "a report over the run" 64 "telemetry.h5 belongs to the run itself" report "$work/taken" --html "$work/taken/telemetry.h5"
refuses_output "a report over its trace" 64 "both are" report "$work/taken" --html "$work/r" --trace "$work/r"
refuses_output "a report into a device" 74 "no regular file" report "$work/taken" --html /dev/zero
refuses_output "a profile over the configuration" 64 "is the configuration" profile "$work/own.yaml" --output "$work/own.yaml"
refuses_output "a profile into no folder" 74 "nowhere/p.yaml: cannot write the cost profile" profile "$config" --output "$work/nowhere/p.yaml"
for command in digest show report; do
  code=0; "$paceline" "$command" "$work/taken" 2>"$work/bad.log" >/dev/full || code=$?
  same "$command to a full disk: exit code" 74 "$code"
done
code=0; "$paceline" --help-config 2>"$work/bad.log" >/dev/full || code=$?  # more than a buffer holds
same "a long text to a full disk: exit code" 74 "$code"
code=0; "$paceline" check "$root/configs/quickstart.yaml" --nodes 200 --ranks-per-node 8 --host-memory 64G --output "$work/none" \
  2>"$work/bad.log" >/dev/full || code=$?
same "a long plan to a full disk: exit code" 74 "$code"
same "a long plan to a full disk: said once" 1 "$(grep -c '' "$work/bad.log")"

# A finished run that a disk has damaged is not called whole.
cp -r "$work/taken" "$work/damaged"
python3 - "$work/damaged/trajectories.h5" <<'PY'
import os, sys
with open(sys.argv[1], "r+b") as file:
    file.seek(os.path.getsize(sys.argv[1]) // 3)
    here = file.tell()
    bits = bytes(byte ^ 1 for byte in file.read(64))
    file.seek(here)
    file.write(bits)
PY
code=0; "$paceline" digest "$work/damaged" 2>"$work/bad.log" >/dev/null || code=$?
same "a damaged run has no digest" 74 "$code"
rollout 2 "$work/damaged" --resume || fail "a damaged run: $(tail -n 3 "$work/damaged.log")"
if grep -qE "^warning: .* is damaged.*: [1-9][0-9]* of [0-9]* responses are whole and kept, the others are generated again" "$work/damaged.log"
then ok "a damaged run: $(grep -o '[0-9]* of [0-9]* responses are whole' "$work/damaged.log")"; else fail "a damaged run"; cat "$work/damaged.log"; fi
same "a damaged run: generated again" "$before" "$(digest "$work/damaged")"
head -c "$(stat -c %s "$work/damaged/telemetry.h5")" /dev/zero >"$work/zeros"
cp "$work/zeros" "$work/damaged/telemetry.h5"
code=0; "$paceline" report "$work/damaged" 2>"$work/bad.log" >/dev/null || code=$?
same "damaged telemetry has no report" 74 "$code"
rollout 2 "$work/damaged" --resume || fail "damaged telemetry: $(tail -n 3 "$work/damaged.log")"
if grep -q "^warning: .*telemetry.h5.damaged now" "$work/damaged.log"; then ok "damaged telemetry is told of"; else fail "damaged telemetry"; cat "$work/damaged.log"; fi
code=0; "$paceline" report "$work/damaged" >"$work/bad.log" 2>&1 || code=$?
same "and put aside" 0 "$code"

ln -s "$work/nowhere" "$work/dangling"
code=0; rollout 1 "$work/dangling" || code=$?
same "a link to nothing as output: exit code" 74 "$code"
if grep -q "^paceline: cannot create $work/dangling: .* is a symbolic link to $work/nowhere, which is not there" "$work/dangling.log"
then ok "a link to nothing as output"; else fail "a link to nothing as output"; cat "$work/dangling.log"; fi

# Disk full in the middle of a run: what was finished stays readable, and the run goes on elsewhere.
mkdir "$work/small"
if mount -t tmpfs -o size=1m tmpfs "$work/small" 2>/dev/null; then
  trap 'umount "$work/small" 2>/dev/null || true; rm -rf "$work"' EXIT
  code=0
  "$here/launch.sh" 2 "$paceline" rollout "$config" --output "$work/small/run" --set engine.threads=1 \
    --set output.flush_seconds=0.1 --set prompts.samples=16 --set sampling.max_tokens=300 >"$work/bad.log" 2>&1 || code=$?
  same "disk full: exit code" 74 "$code"
  if grep -qiE "^paceline: .*$work/small/run.*(space|full)" "$work/bad.log"; then ok "disk full: names file and cause"
  else fail "disk full"; cat "$work/bad.log"; fi
  cp -r "$work/small/run" "$work/rescued"
  kept=$(finished "$work/rescued")
  if [ "${kept:-0}" -gt 0 ]; then ok "disk full: $kept finished responses are readable"; else fail "disk full: nothing is readable"; fi
  code=0; rollout 2 "$work/rescued" --resume --set prompts.samples=16 --set sampling.max_tokens=300 || code=$?
  same "disk full: resumed elsewhere" 0 "$code"
  umount "$work/small"
else
  echo "SKIP: disk full: a small file system cannot be mounted without root"
fi

# The command line itself.
code=0; "$paceline" rollout 2>"$work/bad.log" || code=$?
same "no configuration: exit code" 64 "$code"
code=0; "$paceline" rolout "$config" 2>"$work/bad.log" >&2 || code=$?
same "unknown command: exit code" 64 "$code"
same "unknown command: advice" "paceline: unexpected argument 'rolout' (the nearest is rollout); see paceline --help" "$(cat "$work/bad.log")"
code=0; "$here/launch.sh" 3 "$paceline" rollout "$config" --ouput x 2>"$work/bad.log" >&2 || code=$?
same "unknown option: exit code" 64 "$code"
same "unknown option: said once" "paceline rollout: unexpected argument '--ouput' (the nearest is --output); see paceline rollout --help" \
  "$(grep ^paceline "$work/bad.log")"
code=0; "$paceline" check "$config" --output "" 2>"$work/bad.log" >&2 || code=$?
same "an output of no name: $(cat "$work/bad.log"): exit code" 64 "$code"
code=0; "$paceline" profile "$config" --output "$work/p.yaml" --seconds nan 2>"$work/bad.log" >&2 || code=$?
same "no number of seconds: $(cat "$work/bad.log"): exit code" 64 "$code"
code=0; "$paceline" rollout "$work/nowhere.yaml" 2>"$work/bad.log" || code=$?
same "missing configuration: exit code" 64 "$code"
code=0; "$paceline" rollout "$work" 2>"$work/bad.log" || code=$?
same "a configuration that cannot be read: exit code" 74 "$code"
code=0; "$paceline" digest "$work/nowhere" 2>"$work/bad.log" || code=$?
same "digest of nothing: $(cat "$work/bad.log"): exit code" 64 "$code"

# The codes that the help lists are those of README.md, in the same words.
"$paceline" --help | sed -n 's/^ \+\([0-9]\+\)  \(.*\)/\1 \2/p' >"$work/help"
sed -n 's/^| \([0-9]\+\) | \(.*\) |$/\1 \2/p' "$root/README.md" | tr -d '`' >"$work/readme"
if [ "$(wc -l <"$work/help")" = 6 ] && diff "$work/help" "$work/readme"; then ok "exit codes: help and README agree"
else fail "exit codes: help and README differ"; fi
finish
