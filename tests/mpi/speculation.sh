#!/usr/bin/env bash
# speculation.sh PACELINE [DRAWS [SEED]]: one digest, that of plain decoding on one rank, over drafters alone and in
# pairs, lengths, chains and trees, batches, tensor parallelism, temperatures and filters, policies, and resumes
# that change speculation midway; then over DRAWS random combinations of all of these, others every time without SEED.
source "$(dirname "$0")/lib.sh"
draws=${2-12}
seed=${3-$RANDOM}

# 100 requests each, but for those that are greedy, where siblings say the same.
head -n 25 "$root/configs/prompts/unseen.jsonl" >"$work/prompts.jsonl"
small=(--set prompts.path="$work/prompts.jsonl" --set prompts.samples=4 --set sampling.max_tokens=64 --set engine.threads=1)

declare -A drafter=(
  [model]="{method: model, path: $root/configs/models/draft}"
  [ngram]="{method: ngram, min_match: 1, max_match: 4}"
  [suffix]="{method: suffix, min_probability: 0.02}"
)
declare -A sampling=(
  [plain]=""
  [greedy]="--set sampling.temperature=0 --set prompts.samples=2"
  [cool]="--set sampling.temperature=0.7 --set sampling.top_k=20"
  [filtered]="--set sampling.top_p=0.9 --set sampling.min_p=0.01 --set sampling.min_tokens=30"
  [few]="--set prompts.samples=3"
  [hot]="--set sampling.temperature=1.3 --set sampling.top_k=50 --set sampling.top_p=0.95"
)

# The digest of plain decoding with a sampling setting, computed once.
declare -A references
reference() {
  if [ -z "${references[$1]-}" ]; then
    rm -rf "$work/plain-$1"
    # shellcheck disable=SC2086
    rollout 1 "$work/plain-$1" ${sampling[$1]} || { cat "$work/plain-$1.log"; exit 1; }
    references[$1]=$(digest "$work/plain-$1")
  fi
}

drafters() {  # NAME[+NAME...] -> the setting
  local list="" name
  for name in ${1//+/ }; do list+="${list:+, }${drafter[$name]}"; done
  echo "speculation.drafters=[$list]"
}

check() {  # SAMPLING RANKS DRAFTERS [ARG...]
  local key=$1 ranks=$2 names=$3 dir=$work/run
  shift 3
  local settings="$*"
  reference "$key"
  rm -rf "$dir"
  # shellcheck disable=SC2086
  if rollout "$ranks" "$dir" ${sampling[$key]} --set "$(drafters "$names")" "$@"; then
    same "$names, $key, $ranks ranks: ${settings//--set /}" "${references[$key]}" "$(digest "$dir")"
  else
    fail "$names, $key, $ranks ranks: ${settings//--set /}: exit code $?: $(grep -m 1 "^paceline: " "$dir.log" || tail -n 3 "$dir.log")"
  fi
}
s() { printf ' --set speculation.%s' "$@"; }  # short for settings of the section
fixed="policy=fixed"

# Every drafter alone over the lengths; the other dimensions go round with them.
for name in model ngram suffix; do
  check plain 1 $name $(s $fixed max_length=1) --set engine.max_batch=64
  check cool 2 $name $(s $fixed max_length=2 paths=2) --set engine.max_batch=7
  check greedy 1 $name $(s $fixed max_length=4) --set engine.max_batch=1
  check filtered 2 $name $(s $fixed max_length=8 paths=4) --set layout.verifier_tp=2
  check hot 2 $name $(s $fixed max_length=16 paths=2) --set engine.kv_block=32 --set engine.prefill_chunk=17
done
# In pairs and all at once.
for names in model+ngram model+suffix ngram+suffix; do
  check plain 2 $names $(s $fixed max_length=4 paths=4) --set engine.max_batch=7
  check filtered 2 $names $(s $fixed max_length=8) --set layout.verifier_tp=2 --set engine.max_batch=64
  check plain 1 $names --set engine.max_batch=64  # goodput: on where it pays, off elsewhere
done
check plain 4 model+ngram+suffix $(s $fixed paths=2) --set layout.verifier_tp=2 --set engine.max_batch=7
check hot 2 model+suffix+ngram $(s max_length=16 paths=4)
check plain 1 model+suffix $(s $fixed) --set engine.kv_memory=4MiB
for policy in nightjar dsd banditspec tetris; do
  check plain 1 model+suffix $(s policy=$policy)
done
check few 1 model $(s $fixed max_length=2 paths=40)  # more than a draft model ranks

# Drafted tokens are verified and accepted: these runs speculate.
if command -v h5dump >/dev/null; then
  accepted=$(h5dump -y -w 1 -d /acceptance/accepted "$work/run/telemetry.h5" | awk '/^ +[0-9]+,?$/ {sum += $1} END {print sum + 0}')
  if [ "$accepted" -gt 1000 ]; then ok "$accepted draft tokens were accepted"; else fail "$accepted draft tokens were accepted"; fi
else
  echo "SKIP: accepted draft tokens are not counted: h5dump is not there"
fi

# Costs from a file that was measured on the same layout; on another it is told of and not used.
profile=$work/profile.yaml
if "$here/launch.sh" 2 "$paceline" profile "$config" "${backend[@]}" "${small[@]}" --set "$(drafters model+suffix)" \
  --set layout.verifier_tp=2 --seconds 1 --output "$profile" >"$work/profile.log" 2>&1; then
  check plain 2 model+suffix --set layout.verifier_tp=2 --set engine.profile="$profile"
  if grep -q "costs from $profile" "$work/run.log"; then ok "costs by a profile"; else fail "costs by a profile"; fi
  check plain 1 model+suffix --set engine.profile="$profile"
  if grep -q "tensor-parallel degree: 2; this run has 1" "$work/run.log"; then ok "a profile that does not hold"; else fail "a profile that does not hold"; fi
else
  fail "profile: exit code $?: $(tail -n 3 "$work/profile.log")"
fi

# Stopped midway and gone on with other speculation, or with none.
resume() {  # WHAT FIRST-ARGS -- SECOND-ARGS
  local what=$1 dir=$work/resumed first=() pid code=0
  shift
  while [ "$1" != -- ]; do first+=("$1"); shift; done
  shift
  rm -rf "$dir"
  reference plain
  start 2 "$dir" --set engine.max_batch=2 "${first[@]}"
  if wait_for_finished "$dir" 5 "$pid"; then kill -USR1 "$pid" || true; fi
  wait "$pid" || code=$?
  if [ $code != 75 ]; then fail "$what: exit code $code instead of 75"; return; fi
  if rollout 1 "$dir" --resume "$@"; then
    same "$what" "${references[plain]}" "$(digest "$dir")"
  else
    fail "$what: resuming: exit code $?: $(tail -n 3 "$dir.log")"
  fi
}
both=(--set "$(drafters model+suffix)" --set speculation.policy=fixed --set speculation.paths=2)
resume "speculation off after a stop" "${both[@]}" --
resume "speculation on after a stop" -- "${both[@]}"
resume "other drafters after a stop" "${both[@]}" -- --set "$(drafters ngram)" --set speculation.max_length=3

# Random combinations on the embedded model. Drawn in this shell: a subshell would have a seed of its own.
echo "seed $seed"
RANDOM=$seed
draw() {  # VARIABLE OPTION...
  local -n drawn=$1
  shift
  local options=("$@")
  drawn=${options[RANDOM % $#]}
}
for _ in $(seq 1 "$draws"); do
  draw ranks 1 2 4
  draw tp 1 2
  [ "$ranks" != 1 ] || tp=1
  draw key plain greedy cool filtered hot
  draw names model ngram suffix model+ngram model+suffix suffix+ngram model+ngram+suffix
  draw policy fixed fixed goodput nightjar dsd banditspec tetris
  draw length 1 2 3 4 8 16
  draw paths 1 1 2 3 4
  draw batch 1 3 7 20 64
  draw block 16 32 48 128
  draw chunk 5 64 256 2048
  draw shuffle true false
  draw threads 1 2
  check "$key" "$ranks" "$names" $(s policy="$policy" max_length="$length" paths="$paths") \
    --set layout.verifier_tp="$tp" --set engine.max_batch="$batch" --set engine.kv_block="$block" \
    --set engine.prefill_chunk="$chunk" --set prompts.shuffle="$shuffle" --set engine.threads="$threads"
done

# A model of another architecture that drafts for itself, in fp32 and four ways tensor-parallel.
fixture=$root/tests/models/parity/llama3
for i in $(seq 0 19); do
  echo "{\"uid\": \"t$i\", \"prompt_tokens\": [$(seq -s, $((i + 1)) 3 $((i * 11 + 7)))]}"
done >"$work/tokens.jsonl"
small=(--set model.path="$fixture" --set prompts.path="$work/tokens.jsonl" --set prompts.samples=10
  --set sampling.ignore_eos=true --set sampling.max_tokens=60 --set engine.threads=1 --set model.dtype=fp32)
drafter[model]="{method: model, path: $fixture}"
references=()
check plain 4 model $(s $fixed paths=2) --set layout.verifier_tp=4
check plain 1 model+suffix $(s $fixed max_length=16) --set engine.max_batch=7
small=("${small[@]/fp32/bf16}")
references=()
check cool 2 model+ngram $(s $fixed max_length=3 paths=3) --set layout.verifier_tp=2
finish
