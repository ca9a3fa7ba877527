#!/usr/bin/env bash
# shapes.sh PACELINE: models of head sizes and widths that few have give one digest over batch, ranks, tensor
# parallelism and speculation, and so do checkpoints of every kind: a head of its own beside tied embeddings, fp16, fp8,
# scaled rotary embeddings, a tower for
# pictures. What cannot be computed is refused by check as by rollout.
source "$(dirname "$0")/lib.sh"
for i in $(seq 0 7); do
  tokens=$(seq -s, $((i + 1)) 3 $((i * 11 + 7)))
  echo "{\"uid\": \"t$i\", \"prompt_tokens\": [$tokens]}"
done >"$work/tokens.jsonl"
small=(--set prompts.path="$work/tokens.jsonl" --set prompts.samples=2 --set sampling.ignore_eos=true
  --set sampling.max_tokens=24 --set engine.threads=1)

# model NAME [KEY=VALUE]...: a random checkpoint; prints its path.
model() { python3 "$here/random_model.py" "$work/$1" "${@:2}" && echo "$work/$1"; }
trees=(--set speculation.policy=fixed --set speculation.max_length=5 --set speculation.paths=3
  --set 'speculation.drafters=[{method: ngram, min_match: 1}, {method: suffix, min_probability: 0.02}]')

# one_digest WHAT DTYPES MODEL [SETTING]...: the digest of plain decoding on one rank, whatever the layout. A SETTING is
# "RANKS [ARG]...".
one_digest() {
  local what=$1 dtypes=$2 model=(--set model.path="$3") setting dtype
  shift 3
  for dtype in $dtypes; do
    rollout 1 "$work/reference" "${model[@]}" --set model.dtype=$dtype || { cat "$work/reference.log"; exit 1; }
    reference=$(digest "$work/reference")
    rm -rf "$work/reference"
    for setting in "$@"; do
      # shellcheck disable=SC2086
      run "$what, $dtype: ranks $setting" $setting "${model[@]}" --set model.dtype=$dtype
    done
    run "$what, $dtype: drafts" 1 "${model[@]}" --set model.dtype=$dtype "${trees[@]}"
  done
}
layouts=("1 --set engine.max_batch=3 --set engine.prefill_chunk=5" "2 --set engine.kv_block=48"
  "2 --set layout.verifier_tp=2 --set engine.max_batch=5")
one_digest "heads of 40" "bf16 fp32" "$(model heads-40 head_dim=40)" "${layouts[@]}"
for head in 80 96 256; do
  one_digest "heads of $head" bf16 "$(model "heads-$head" head_dim=$head)" "${layouts[@]}"
done
# Odd widths do not divide among ranks.
one_digest "odd widths" "bf16 fp32" "$(model odd hidden_size=65 intermediate_size=97)" "${layouts[@]:0:2}"
code=0; rollout 2 "$work/odd-tp" --set model.path="$work/odd" --set layout.verifier_tp=2 || code=$?
same "odd widths, TP 2: exit code" 64 "$code"

# Mixtures of experts: ranks have some of the experts each, whole.
for family in qwen2_moe qwen3_moe mixtral deepseek_v3; do
  one_digest "experts of $family" bf16 "$(model $family EXPERTS=$family num_key_value_heads=4)" "${layouts[@]}" \
    "4 --set layout.verifier_tp=4 --set schedule.chunk=7 --set engine.max_batch=4"
done
one_digest "experts in fp32" fp32 "$work/qwen3_moe" "${layouts[@]:1}"
run "experts that draft for experts" 3 --set model.path="$work/qwen3_moe" --set model.dtype=fp32 --set layout.drafters=1 \
  --set speculation.policy=fixed --set "speculation.drafters=[{method: model, path: $work/qwen3_moe}]"

# Latent vectors, which every rank of a group has whole, move between groups of any degree and lie in any tier.
latent=(--set model.path="$work/deepseek_v3" --set schedule.chunk=7 --set kv_pool.memory=1MiB --set kv_pool.disk="$work"
  --set test.shuffle=[moves])
rollout 1 "$work/reference" --set model.path="$work/deepseek_v3" || { cat "$work/reference.log"; exit 1; }
reference=$(digest "$work/reference")
rm -rf "$work/reference"
run "latent vectors between groups of TP 2 and 1" 3 "${latent[@]}" --set layout.verifier_tp=[2,1] --set schedule.move_kv=transfer
run "latent vectors between groups of TP 4 and 1" 5 "${latent[@]}" --set layout.verifier_tp=[4,1] --set schedule.move_kv=both "${trees[@]}"
its_like=(--set model.path="$work/deepseek_v3" --set speculation.policy=fixed
  --set "speculation.drafters=[{method: model, path: $work/deepseek_v3}]")
run "latent attention that drafts for its like" 3 "${its_like[@]}" --set layout.drafters=1
run "latent attention that drafts beside its like" 2 "${its_like[@]}"  # a rank of its own may draft past the run's end
same "it drafts what it says itself" "$(summed drafted)" "$(summed accepted)"
# The same model with a next-token layer behind it, which drafts for it: chains and trees, beside the model and ahead.
path=$(model next_token EXPERTS=deepseek_v3 num_key_value_heads=4 num_nextn_predict_layers=1)
mtp=(--set model.path="$path" --set speculation.policy=fixed --set speculation.max_length=4
  --set "speculation.drafters=[{method: mtp, noise: true}]")
run "a next-token layer's chains" 1 "${mtp[@]}" --set engine.max_batch=3
counted "accepted of a next-token layer's chains" accepted
run "its trees, TP 2, small chunks" 2 "${mtp[@]}" --set speculation.paths=3 --set layout.verifier_tp=2 \
  --set engine.prefill_chunk=5 --set schedule.chunk=7
run "its chains on a drafter rank for groups of TP 2 and 1, moves" 4 "${mtp[@]}" --set layout.drafters=1 \
  --set layout.verifier_tp=[2,1] --set test.shuffle=[moves]
one_digest "latent attention in fp32" fp32 "$work/deepseek_v3" "${layouts[2]}"
run "a next-token layer's trees in fp32" 1 "${mtp[@]}" --set speculation.paths=3 --set model.dtype=fp32

# One whose next-token layer knows its model's next token, but for rounding.
path=$(model markov EXPERTS=deepseek_v3 num_key_value_heads=4 num_nextn_predict_layers=1 MARKOV=1 max_position_embeddings=512)
mtp[1]=model.path=$path
long=(--set sampling.max_tokens=400)  # on a busy machine short responses are over before a drafter rank has drafted
rollout 1 "$work/reference" --set model.path="$path" "${long[@]}" || { cat "$work/reference.log"; exit 1; }
reference=$(digest "$work/reference")
rm -rf "$work/reference"
run "a next-token layer that knows its model" 1 "${mtp[@]}" "${long[@]}"
drafted=$(summed drafted) accepted=$(summed accepted)
case $drafted in
  skip) echo "SKIP: accepted of its drafts: h5py is not there" ;;
  *) if [ "$drafted" -gt 100 ] && [ $((accepted * 10)) -ge $((drafted * 9)) ]; then ok "accepted of $drafted: $accepted"
     else fail "accepted of $drafted: $accepted"; fi ;;
esac
run "one on a drafter rank" 2 "${mtp[@]}" "${long[@]}" --set layout.drafters=1
counted "accepted of it" accepted

# says WHAT COUNT TEXT LOG
says() { same "$1" "$2" "$(grep -c -F "$3" "$4" || true)"; }
# Checkpoints of transformers. What only their weights say of them check, the job and score tell.
parity=$root/tests/models/parity
own=(--set model.path="$parity/llama-own-head")
differs="warning: $parity/llama-own-head: lm_head.weight differs from the embeddings"
one_digest "a head beside tied embeddings" bf16 "$parity/llama-own-head" "${layouts[@]:1}"
says "the job says which head" 1 "$differs" "$work/run.log"
"$paceline" check "$config" "${own[@]}" "${backend[@]}" "${small[@]}" --output "$work/planned" >"$work/planned.log"
says "check says which head" 1 "$differs" "$work/planned.log"
"$here/launch.sh" 1 "$paceline" score "$config" "$work/run" "${own[@]}" "${backend[@]}" >"$work/score.log" 2>&1 || true
says "score says which head" 1 "$differs" "$work/score.log"
says "by which it computes too" 1 "all log-probabilities equal the run's in every bit" "$work/score.log"
run "a draft model with a head of its own" 2 "${own[@]}" --set speculation.policy=fixed \
  --set "speculation.drafters=[{method: model, path: $parity/llama-own-head}]"
same "it drafts what it says itself" "$(summed drafted)" "$(summed accepted)"

one_digest "fp16" "fp32 bf16" "$parity/llama-f16" "${layouts[@]:1}"
says "rounded weights are told of" 1 "weights are stored in fp16 and rounded to bf16" "$work/run.log"
run "fp16 without a dtype is bf16" 1 --set model.path="$parity/llama-f16"
"$paceline" check "$config" --set model.path="$parity/llama-f16" --set model.dtype=fp32 "${backend[@]}" "${small[@]}" \
  --output "$work/planned" >"$work/planned.log"
says "exact ones are not" 0 "stored in fp16" "$work/planned.log"
# fp8 is bf16 by its blocks' scales, wherever ranks cut them; the fewest have all their 128 rows or columns.
path=$(model fine hidden_size=192 head_dim=32 num_attention_heads=6 intermediate_size=320)
python3 "$here/quantised.py" "$path" "$work/fp8" "$work/dequantised"
fp8=(--set model.path="$work/fp8")
for dtype in fp32 bf16; do
  rollout 1 "$work/reference" --set model.path="$work/dequantised" --set model.dtype=$dtype || { cat "$work/reference.log"; exit 1; }
  reference=$(digest "$work/reference")
  rm -rf "$work/reference"
  run "fp8, $dtype" 1 "${fp8[@]}" --set model.dtype=$dtype
  run "fp8, $dtype: TP 2" 2 "${fp8[@]}" --set model.dtype=$dtype --set layout.verifier_tp=2
done
run "fp8 without a dtype is bf16" 2 "${fp8[@]}"
# So are next-token layers, of two of which the first drafts.
path=$(model two EXPERTS=deepseek_v3 hidden_size=192 num_nextn_predict_layers=2)
python3 "$here/quantised.py" "$path" "$work/fp8-two" "$work/two-dequantised"
mtp[1]=model.path=$work/two-dequantised
rollout 1 "$work/reference" --set model.path="$work/two-dequantised" || { cat "$work/reference.log"; exit 1; }
reference=$(digest "$work/reference")
rm -rf "$work/reference"
run "the first of two next-token layers" 1 "${mtp[@]}"
accepted=$(summed accepted)
counted "accepted of it" accepted
mtp[1]=model.path=$work/fp8-two
run "the first of two next-token layers in fp8" 1 "${mtp[@]}"
same "accepted of it" "$accepted" "$(summed accepted)"
one_digest "YaRN" bf16 "$parity/qwen2-yarn" "${layouts[2]}"
pictures=$root/tests/models/parity_pictures
one_digest "the text of Qwen2-VL" bf16 "$pictures/qwen2-vl" "${layouts[2]}"
one_digest "the text of Qwen2.5-VL" bf16 "$pictures/qwen2.5-vl-nested" "${layouts[2]}"
one_digest "dynamic scaling" bf16 "$parity/llama-dynamic" "${layouts[2]}"
says "its context is told of" 1 "the context is limited to the 214 tokens" "$work/run.log"

# refused WHAT CODES PATTERN RANKS [ARG...]: CODES of check and of rollout, and PATTERN, once, of every one that is
# not 0.
refused() {
  local what=$1 codes=$2 pattern=$3 ranks=$4 code command
  shift 4
  rm -rf "$work/bad"
  for command in check rollout; do
    code=0
    at_once "$here/launch.sh" "$ranks" "$paceline" $command "$config" --output "$work/bad" "${backend[@]}" "${small[@]}" "$@" \
      >"$work/bad.log" 2>&1 || code=$?
    same "$what: $command" "${codes% *}" "$code"
    if [ "$code" != 0 ]; then same "$what: $command says why" 1 "$(grep -cE "^paceline: .*$pattern" "$work/bad.log" || true)"; fi
    codes=${codes#* }
  done
}
for head in 100 320; do
  path=$(model "heads-$head" head_dim=$head)
  refused "heads of $head" "65 65" "heads-$head/config.json: head_dim.*multiple of 8 up to 256, found $head" 2 --set model.path="$path"
done
echo '{"prompt_tokens": [5, 302, 300, 303, 7]}' >"$work/picture.jsonl"
refused "a picture's place in a prompt" "65 65" "picture.jsonl:1:.*the prompt has 1 of token 300, which stands for pictures; expected 0" 2 \
  --set model.path="$pictures/qwen2-vl" --set prompts.path="$work/picture.jsonl"
path=$(model many EXPERTS=mixtral num_experts_per_tok=9)
refused "more experts a token than there are" "65 65" "many/config.json: num_experts_per_tok: .*from 1 to 8, found 9" 2 --set model.path="$path"
path=$(model three EXPERTS=mixtral num_key_value_heads=4 num_local_experts=6)
refused "experts that ranks cannot share" "64 64" "layout.verifier_tp: .*degree of 4 does not divide" 4 --set model.path="$path" --set layout.verifier_tp=4
python3 - "$work" <<'PY'
import json, pathlib, sys
work = pathlib.Path(sys.argv[1])
stored = (work / "mixtral/model.safetensors").read_bytes()
for name, old, new in (("missing", b"experts.3.w2", b"experts.9.w2"), ("shaped", b'"shape": [96, 64]', b'"shape": [64, 96]')):
    (work / name).mkdir()
    (work / name / "config.json").write_text((work / "mixtral/config.json").read_text())
    (work / name / "model.safetensors").write_bytes(stored.replace(old, new, 1))
quantised = json.loads((work / "mixtral/config.json").read_text()) | {"quantization_config": {"quant_method": "gptq"}}
(work / "quantised").mkdir()
(work / "quantised/config.json").write_text(json.dumps(quantised))
(work / "quantised/model.safetensors").write_bytes(stored)
stored, config = (work / "next_token/model.safetensors").read_bytes(), (work / "next_token/config.json").read_text()
layer, eh_proj = b"model.layers.2.", b'"model.layers.2.eh_proj.weight": {"dtype": "BF16", "shape": '
for name, old, new in (("no-eh_proj", layer + b"eh_proj", layer + b"eh_prej"), ("no-router", layer + b"mlp.gate.w", layer + b"mlp.gote.w"),
                       ("eh_proj-shaped", eh_proj + b"[64, 128]", eh_proj + b"[128, 64]")):
    assert stored.count(old) == 1, name
    (work / name).mkdir()
    (work / name / "config.json").write_text(config)
    (work / name / "model.safetensors").write_bytes(stored.replace(old, new))
(work / "no-layer").mkdir()
(work / "no-layer/config.json").write_text(config)
(work / "no-layer/model.safetensors").write_bytes((work / "deepseek_v3/model.safetensors").read_bytes())
PY
mtp=(--set "speculation.drafters=[{method: mtp}]")
refused "a next-token layer that config.json does not speak of" "65 65" "config.json: num_nextn_predict_layers: expected at least 1" 2 \
  --set model.path="$work/deepseek_v3" "${mtp[@]}"
refused "a dense model's next-token layer" "65 65" "config.json: num_nextn_predict_layers: expected at least 1" 1 "${mtp[@]}"
refused "a next-token layer that is not there" "65 65" "tensor 'model.layers.2.eh_proj.weight': missing; expected shape .64, 128." 2 \
  --set model.path="$work/no-layer" "${mtp[@]}"
refused "one without eh_proj" "65 65" "tensor 'model.layers.2.eh_proj.weight': missing" 2 --set model.path="$work/no-eh_proj" "${mtp[@]}"
refused "one without a router" "65 65" "tensor 'model.layers.2.mlp.gate.weight': missing" 1 --set model.path="$work/no-router" "${mtp[@]}"
refused "one with another eh_proj" "65 65" "tensor 'model.layers.2.eh_proj.weight': expected shape .64, 128." 1 \
  --set model.path="$work/eh_proj-shaped" "${mtp[@]}"
refused "a missing expert" "65 65" "tensor 'model.layers.0.block_sparse_moe.experts.3.w2.weight': missing" 2 --set model.path="$work/missing"
refused "an expert of another shape" "65 65" "tensor 'model.layers.0.block_sparse_moe.experts.0.w1.weight': expected shape" 2 --set model.path="$work/shaped"
refused "a quantised mixture" "65 65" "quantised/config.json: quantization_config.quant_method: expected fp8, found 'gptq'" 2 --set model.path="$work/quantised"
refused "a draft model with heads of 100" "65 65" "heads-100/config.json: head_dim" 1 --set model.path="$work/heads-40" \
  --set "speculation.drafters=[{method: model, path: $work/heads-100}]"
path=$(model theta rope_theta=1e-46)
refused "rope_theta of 0 in fp32" "65 65" "theta/config.json: rope_theta: .*found 1e-46" 1 --set model.path="$path"

# check does not read weights; rollout does, all of them.
path=$(model nan NAN=model.layers.1.mlp.up_proj.weight:6143)  # the last: of the second rank's share
where="nan/model.safetensors: tensor 'model.layers.1.mlp.up_proj.weight', row 95, column 63: .*found nan"
refused "a NaN weight" "0 65" "$where" 1 --set model.path="$path"
refused "a NaN weight on every rank" "0 65" "$where" 2 --set model.path="$path"
refused "a NaN weight on one rank of a group" "0 65" "$where" 2 --set model.path="$path" --set layout.verifier_tp=2
refused "a NaN weight of a draft model" "0 65" "$where" 2 --set model.path="$work/heads-40" \
  --set "speculation.drafters=[{method: model, path: $path}]"
path=$(model nan-router EXPERTS=qwen3_moe NAN=model.layers.0.mlp.gate.weight:77)
refused "a NaN router" "0 65" "tensor 'model.layers.0.mlp.gate.weight', row 1, column 13: .*found nan" 2 --set model.path="$path" --set layout.verifier_tp=2
python3 - "$work/fp8" <<'PY'
import json, pathlib, sys
fp8 = pathlib.Path(sys.argv[1])
config, stored = json.loads((fp8 / "config.json").read_text()), (fp8 / "model.safetensors").read_bytes()
for name, kind, tensors in (
        ("unscaled", {}, stored.replace(b"layers.1.mlp.up_proj.weight_scale_inv", b"layers.1.mlp.up_proj.weight_scale_env")),
        ("fp8-nan", {}, stored[:-1] + b"\x7f"), ("awq", {"quant_method": "awq"}, stored),
        ("other-blocks", {"weight_block_size": [64, 64]}, stored)):
    folder = fp8.parent / name
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(tensors)
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": config["quantization_config"] | kind}))
PY
refused "fp8 without scales" "65 65" "unscaled/model.safetensors: tensor 'model.layers.1.mlp.up_proj.weight': F8_E4M3 without scales" 2 \
  --set model.path="$work/unscaled"
where="fp8-nan/model.safetensors: tensor 'model.layers.1.mlp.down_proj.weight', row 191, column 319: .*found nan"
refused "a NaN in fp8" "0 65" "$where" 2 --set model.path="$work/fp8-nan"
refused "fp8 in other blocks" "65 65" "other-blocks/config.json: quantization_config.weight_block_size: expected .128, 128." 1 \
  --set model.path="$work/other-blocks"
refused "AWQ" "65 65" "awq/config.json: quantization_config.quant_method: expected fp8, found 'awq'" 1 --set model.path="$work/awq"
path=$(model nan-embedding NAN=model.embed_tokens.weight:70)
refused "a NaN embedding" "0 65" "tensor 'model.embed_tokens.weight', row 1, column 6: .*found nan" 2 --set model.path="$path"
finish
