#!/usr/bin/env bash
# score.sh PACELINE: log-probabilities of a run's responses. Under the run's own weights they are its own to the bit, over
# ranks, tensor parallelism, batch, prefill chunk and KV; under others they are what a plain decoder says.
source "$(dirname "$0")/lib.sh"
model=$root/configs/models/target
python=$(command -v /usr/bin/python3 || command -v python3)
if ! "$python" -c 'import h5py, numpy' 2>/dev/null; then
  echo "SKIP: no column but logprob is compared, and no decoder: h5py or numpy is not there"
  python=
fi
export PYTHONDONTWRITEBYTECODE=1
small=(--set prompts.samples=2 --set sampling.max_tokens=96 --set engine.threads=1)

# score RANKS RUN NAME [ARG...]: returns its exit code; what it says is in score.log.
score() {
  local ranks=$1 run=$2 name=$3
  shift 3
  "$here/launch.sh" "$ranks" "$paceline" score "$config" "$run" --name "$name" "${backend[@]}" "${small[@]}" "$@" \
    >"$work/score.log" 2>&1
}
# says WHAT PATTERN: the last score's log has it, once.
says() { same "$1" 1 "$(grep -cE -- "$2" "$work/score.log" || true)"; }
# values WHAT MODE RUN NAME [ARG...]: what score_values.py says of them.
values() {
  local what=$1 found
  shift
  [ -n "$python" ] || return 0
  if found=$("$python" "$here/score_values.py" "$@" 2>&1); then ok "$what: $found"; else fail "$what: $found"; fi
}
# own WHAT RANKS RUN [ARG...]: scores under the run's own weights and settings.
own() {
  local what=$1 ranks=$2 run=$3
  shift 3
  if score "$ranks" "$run" own "$@"; then
    says "$what" "^all log-probabilities equal the run's in every bit"
    values "$what" same "$run" own
  else
    fail "$what: exit code $?: $(tail -n 3 "$work/score.log")"
  fi
}

rollout 2 "$work/plain" || { cat "$work/plain.log"; exit 1; }
reference=$(digest "$work/plain")
own "one rank" 1 "$work/plain"
same "nothing is told of" 0 "$(grep -c "not as in the run" "$work/score.log" || true)"
own "2 ranks" 2 "$work/plain"
own "4 ranks" 4 "$work/plain"
own "TP 2 on 2 ranks" 2 "$work/plain" --set layout.verifier_tp=2
own "TP 2 on 4 ranks" 4 "$work/plain" --set layout.verifier_tp=2
own "groups of TP 2 and of one rank" 3 "$work/plain" --set layout.verifier_tp=[2,1]
own "2 threads" 1 "$work/plain" --set engine.threads=2
own "batch 1" 1 "$work/plain" --set engine.max_batch=1
own "batch 7, TP 2" 2 "$work/plain" --set engine.max_batch=7 --set layout.verifier_tp=2
own "prefill chunk 1" 1 "$work/plain" --set engine.prefill_chunk=1
own "prefill chunk 16" 2 "$work/plain" --set engine.prefill_chunk=16
own "prefill chunk 256" 1 "$work/plain" --set engine.prefill_chunk=256
own "prefill chunk 2048" 1 "$work/plain" --set engine.prefill_chunk=2048
own "KV blocks of 128" 1 "$work/plain" --set engine.kv_block=128
own "little KV memory" 2 "$work/plain" --set engine.kv_memory=4MiB
own "speculation, chunks and rewards count for nothing" 2 "$work/plain" --set layout.drafters=1 \
  --set "speculation.drafters=[{method: model, path: $work/nowhere}]" --set schedule.chunk=64 \
  --set reward.method=command --set 'reward.command=[no-such-program]'
same "the run stays as it was" "$reference" "$(digest "$work/plain")"

# What decides how tokens are sampled decides their probabilities.
filters=(--set sampling.temperature=0.8 --set sampling.top_k=20 --set sampling.top_p=0.9 --set sampling.min_p=0.02
         --set sampling.min_tokens=30)
rollout 2 "$work/filtered" "${filters[@]}" || { cat "$work/filtered.log"; exit 1; }
own "filters and banned stop ids" 1 "$work/filtered" "${filters[@]}"
own "filters and banned stop ids, TP 2" 2 "$work/filtered" "${filters[@]}" --set layout.verifier_tp=2
score 1 "$work/filtered" other "${filters[@]}" --set sampling.temperature=0.5
says "another temperature is told of" "not as in the run: sampling.temperature: 0.8, now 0.5"
says "another temperature differs" "^of [0-9]+ tokens, logprob differs from the run.s in [1-9][0-9]* and sampling_logprob in [1-9]"
score 1 "$work/plain" other --set sampling.top_k=5
says "other filters change the distribution sampled from alone" "^of [0-9]+ tokens, logprob differs from the run.s in 0 and sampling_logprob in [1-9]"
for settings in "sampling.temperature=0" "model.dtype=fp32"; do
  rollout 1 "$work/run" --set "$settings" || { cat "$work/run.log"; exit 1; }
  own "$settings" 2 "$work/run" --set "$settings"
  rm -rf "$work/run"
done

# Other weights: one tensor is negated. In fp32 a decoder in float64 says nearly the same.
if [ -n "$python" ]; then
  cp -r "$model" "$work/changed"
  chmod -R u+w "$work/changed"
  "$python" "$here/score_values.py" negate "$work/changed" model.layers.3.mlp.down_proj.weight
  changed=(--set model.path="$work/changed" --set model.dtype=fp32)
  score 1 "$work/plain" changed "${changed[@]}" || fail "other weights: $(tail -n 3 "$work/score.log")"
  says "other weights differ" "^of [0-9]+ tokens, logprob differs from the run.s in [1-9][0-9]* and sampling_logprob in [1-9]"
  values "other weights, by a decoder" decoder "$work/plain" changed "$work/changed"
  score 2 "$work/plain" again "${changed[@]}" --set layout.verifier_tp=2 --set engine.prefill_chunk=16
  values "other weights, TP 2, chunk 16" equal "$work/plain" changed again
  score 2 "$work/filtered" changed "${filters[@]}" "${changed[@]}"
  values "other weights and a temperature, by a decoder" decoder "$work/filtered" changed "$work/changed"
  # Where nothing else is said the model's directory names the scores, and they replace earlier ones.
  "$here/launch.sh" 1 "$paceline" score "$config" "$work/plain" "${backend[@]}" "${small[@]}" >"$work/score.log" 2>&1
  values "the model's name" same "$work/plain" target
  score 1 "$work/plain" target "${changed[@]}"
  values "what was there is replaced" equal "$work/plain" changed target
fi

# Experts, of the prompts of parity fixtures, in which transformers says which it chose.
if [ -n "$python" ]; then
  for fixture in qwen3-moe qwen2-moe mixtral-fp32; do
    of=$root/tests/models/parity/$fixture
    "$python" - "$of" >"$work/$fixture.jsonl" <<'PY'
import json, sys
for i, prompt in enumerate(json.load(open(sys.argv[1] + "/reference.json"))["prompts"]):
    print(json.dumps({"uid": f"p{i}", "prompt_tokens": prompt["tokens"]}))
PY
    mixture=(--set model.path="$of" --set model.dtype=fp32 --set prompts.path="$work/$fixture.jsonl"
      --set sampling.ignore_eos=true --set sampling.max_tokens=24)
    rollout 2 "$work/$fixture" "${mixture[@]}" || fail "$fixture: $(tail -n 3 "$work/$fixture.log")"
    own "$fixture" 1 "$work/$fixture" "${mixture[@]}" --keep-routing
    values "$fixture: experts" experts "$work/$fixture" own "$of"
    score 2 "$work/$fixture" parts "${mixture[@]}" --keep-routing --set layout.verifier_tp=2 --set engine.prefill_chunk=16
    values "$fixture: experts by two ranks" routing "$work/$fixture" own parts
    # Those that rollouts record are the same, whatever happens to a request on its way.
    reference=$(digest "$work/$fixture")
    kept() {  # WHAT RANKS [ARG...]
      local what=$1 ranks=$2
      shift 2
      rm -rf "$work/kept"
      rollout "$ranks" "$work/kept" "${mixture[@]}" --set sampling.keep_routing=true "$@" || fail "$what: $(tail -n 3 "$work/kept.log")"
      are_kept "$what" "$work/kept"
    }
    are_kept() {  # WHAT DIR
      same "$1: digest" "$reference" "$(digest "$2")"
      cp "$work/$fixture/scores-own.h5" "$2"
      values "$1: experts" kept "$2" own
    }
    kept "$fixture, plainly" 1
    kept "$fixture, chunks and moves of other degrees" 3 --set layout.verifier_tp=[2,1] --set schedule.chunk=8 \
      --set test.shuffle=[moves] --set schedule.move_kv=both --set engine.max_batch=4
    own "$fixture, experts replayed" 2 "$work/kept" "${mixture[@]}" --replay-routing --set layout.verifier_tp=2 --set engine.prefill_chunk=16
    [ "$fixture" = qwen3-moe ] || continue
    cp -r "$of" "$work/other"
    chmod -R u+w "$work/other"
    "$python" "$here/score_values.py" negate "$work/other" model.layers.2.mlp.gate.weight
    other=("${mixture[@]}" --set model.path="$work/other" --keep-routing)
    score 1 "$work/kept" chosen "${other[@]}"
    score 1 "$work/kept" replayed "${other[@]}" --replay-routing
    values "$fixture: experts replayed under other weights" replayed "$work/kept" replayed chosen
    kept "$fixture, trees of drafts" 1 --set 'speculation.drafters=[{method: suffix}, {method: ngram}]' \
      --set speculation.policy=fixed --set speculation.max_length=6 --set speculation.paths=3
    kept "$fixture, chunks that wait in a pool" 2 --set schedule.chunk=8 --set schedule.policy=no_context \
      --set schedule.move_kv=transfer --set kv_pool.memory=1MiB --set engine.max_batch=2
    slowly=("${mixture[@]}" --set sampling.keep_routing=true --set engine.max_batch=1 "${delays[@]}")
    after=("${mixture[@]}" --set sampling.keep_routing=true --set layout.verifier_tp=2)
    for signal in KILL USR1; do
      cut_and_resume $signal "experts kept" 1 slowly 2 after
      are_kept "$fixture, resumed after $signal" "$work/cut"
    done
  done
fi

# Pictures: those of the run, read again from the files that its prompts name, or from the prompts themselves.
vision=$root/tests/models/parity_pictures/qwen2.5-vl
cp "$vision"/picture-*.png "$work"
for i in $(seq 0 8); do
  first=picture-$((i % 3)).png second=$(base64 -w0 "$vision/picture-$(((i + 1) % 3)).png")
  begin="$(seq -s, 3 $((9 + i / 6)))" end="$(seq -s, 60 $((70 + i % 5)))"
  case $((i % 3)) in
    0) echo "{\"uid\": \"v$i\", \"prompt_tokens\": [$begin,$end]}" ;;
    1) echo "{\"uid\": \"v$i\", \"prompt_tokens\": [$begin,302,300,303,$end], \"images\": [\"$first\"]}" ;;
    *) echo "{\"uid\": \"v$i\", \"prompt_tokens\": [$begin,302,300,303,5,302,300,303,$end], \"images\": [\"$first\", {\"bytes\": \"$second\"}]}" ;;
  esac
done >"$work/pictures.jsonl"
shown=(--set model.path="$vision" --set prompts.path="$work/pictures.jsonl" --set prompts.samples=3 --set sampling.max_tokens=60
  --set sampling.ignore_eos=true)
rollout 2 "$work/shown" "${shown[@]}" || { cat "$work/shown.log"; exit 1; }
own "pictures" 1 "$work/shown" "${shown[@]}"
own "pictures, TP 2, prefill chunk 5" 2 "$work/shown" "${shown[@]}" --set layout.verifier_tp=2 --set engine.prefill_chunk=5
own "pictures, groups of TP 2 and of one rank, batch 2, KV blocks of 16" 3 "$work/shown" "${shown[@]}" \
  --set layout.verifier_tp=[2,1] --set engine.max_batch=2 --set engine.kv_block=16
own "pictures, prompts' file is not needed" 1 "$work/shown" "${shown[@]}" --set prompts.path="$work/nowhere.jsonl"

# refuses WHAT CODE PATTERN RUN [ARG...]: scoring must end with CODE and say PATTERN, once, and write nothing.
refuses() {
  local what=$1 code=$2 pattern=$3 run=$4 found=0
  shift 4
  at_once score 2 "$run" bad "$@" || found=$?
  same "$what: exit code" "$code" "$found"
  says "$what" "^paceline: .*($pattern)"
  if [ -e "$run/scores-bad.h5" ] || [ -e "$run/.scores-bad.h5.tmp" ]; then fail "$what: a file is there"; fi
}
mkdir "$work/unfinished"
cp "$work/plain/run.json" "$work/unfinished"
refuses "no run" 64 "nowhere: not a finished run: it has no trajectories.h5" "$work/nowhere"
refuses "a run that is not finished" 64 "unfinished: not a finished run" "$work/unfinished"
refuses "unknown key" 64 "temprature.*temperature" "$work/plain" --set sampling.temprature=1
refuses "missing model" 65 "nowhere" "$work/plain" --set model.path="$work/nowhere"
refuses "another vocabulary" 65 "plain/trajectories.h5: the run's vocabulary has 512 tokens; the vocabulary of .*llama3 has 320" \
  "$work/plain" --set model.path="$root/tests/models/parity/llama3"
refuses "KV memory without room for a response" 64 "engine.kv_memory: .*cannot hold one request" "$work/plain" \
  --set engine.kv_memory=1MiB --set engine.kv_block=512
cp -r "$model" "$work/short"
chmod -R u+w "$work/short"
sed -i 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 64/' "$work/short/config.json"
refuses "a context that is too short" 65 "the response to prompt [0-9]+, sample [0-9]+ ends after [0-9]+ tokens.* a context of 64" \
  "$work/plain" --set model.path="$work/short"
cp -r "$model" "$work/lacking"
chmod -R u+w "$work/lacking"
LC_ALL=C sed -i 's/model.layers.3.mlp.down_proj.weight/model.layers.3.mlp.down_prof.weight/' "$work/lacking/model.safetensors"
refuses "weights that lack a tensor" 65 "layers.3.mlp.down_proj.weight" "$work/plain" --set model.path="$work/lacking"
cp -r "$work/plain" "$work/damaged"
truncate -s 1000 "$work/damaged/trajectories.h5"
refuses "a damaged run" 74 "damaged/trajectories.h5" "$work/damaged"
if rollout 1 "$work/dense" --set sampling.keep_routing=true; then fail "experts of a dense rollout"; fi
if grep -q '^paceline: sampling.keep_routing: expected a mixture of experts' "$work/dense.log"; then ok "experts of a dense rollout"; else fail "experts of a dense rollout"; fi
refuses "experts replayed in a dense model" 64 "--replay-routing: expected a mixture of experts" "$work/plain" --replay-routing
if [ -n "$python" ]; then
  refuses "experts that were not recorded" 64 "--replay-routing: the run recorded no experts" "$work/$fixture" "${mixture[@]}" --replay-routing
  refuses "experts of another mixture" 64 "--replay-routing: the model uses 2 of [0-9]+ experts for each token, but the run recorded 6 of" \
    "$work/kept" "${mixture[@]}" --set model.path="$root/tests/models/parity/mixtral" --replay-routing
fi
cp -r "$vision" "$work/blind"
rm "$work/blind/preprocessor_config.json"
refuses "a model that reads no pictures" 65 "shown/trajectories.h5: prompt v1: it has pictures, but pictures cannot be read: .*blind/preprocessor_config.json" \
  "$work/shown" "${shown[@]}" --set model.path="$work/blind"
sed 's/"max_pixels": [0-9]*/"max_pixels": 512/' "$vision/preprocessor_config.json" >"$work/blind/preprocessor_config.json"
refuses "pictures of other sizes" 65 "picture 1 of prompt [0-9]+: expected [0-9]+ x [0-9]+ patches, as when the run read its prompts, found" "$work/shown" "${shown[@]}" --set model.path="$work/blind"
cp "$work/picture-0.png" "$work/picture-1.png"
refuses "a picture that changed" 65 "shown/trajectories.h5: prompt [0-9]+: picture 1: .*picture-1.png: the file is another one" "$work/shown" "${shown[@]}"
rm "$work/picture-1.png"
refuses "a picture that is gone" 65 "prompt [0-9]+: picture 1: .*picture-1.png: .*No such file" "$work/shown" "${shown[@]}"
refuses "experts of a dense model" 64 "--keep-routing: expected a mixture of experts" "$work/plain" --keep-routing
code=0; score 1 "$work/plain" "../bad" || code=$?
same "a name that is none: exit code" 64 "$code"
says "a name that is none" "^paceline: --name: expected .*found '\.\./bad'"

# A stop and a kill leave nothing that a reader could take for scores. Steps of one row, so that there is time.
interrupted() {  # WHAT EXIT-CODES SIGNAL
  local what=$1 expected=$2 signal=$3 code=0 pid
  "$here/launch.sh" 2 "$paceline" score "$config" "$work/plain" --name cut "${backend[@]}" "${small[@]}" \
    --set engine.prefill_chunk=1 >"$work/score.log" 2>&1 &
  pid=$!
  until grep -q "KV blocks" "$work/score.log" || ! kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
  pkill "-$signal" -P "$pid" -x paceline || true
  wait "$pid" || code=$?
  same "$what: exit code" "$expected" "$code"
  if [ "$code" != 0 ] && [ -e "$work/plain/scores-cut.h5" ]; then fail "$what: a file is there"; fi
  rm -f "$work/plain/scores-cut.h5"
}
interrupted "a stop" "75|0" USR1
if grep -q "no scores are written" "$work/score.log"; then says "a stop says so" "^paceline: stopped before the end, so no scores are written"; fi
interrupted "a kill" "137|0" KILL
own "scored after all" 2 "$work/plain"
finish
