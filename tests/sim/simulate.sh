#!/usr/bin/env bash
# simulate.sh PACELINE: paceline simulate gives one digest however the work is done and whatever goes wrong, the same
# bytes of telemetry from the same seed, which the reader reads, and one clear message for bad input.
source "$(dirname "$0")/../mpi/lib.sh"
sim=$(dirname "$(realpath "$0")")
python=$(for p in python3 /usr/bin/python3; do $p -c "import h5py, numpy" 2>/dev/null && { echo $p; break; }; done || true)

# Four KV heads: groups of TP 1, 2 and 4.
mkdir "$work/model"
sed 's/"num_key_value_heads": 2/"num_key_value_heads": 4/' "$root/configs/models/target/config.json" >"$work/model/config.json"
draft=$root/configs/models/draft
head=$root/configs/models/eagle3
# costs_of MODEL [BACKEND]: those of the embedded pair, as if they had been measured with a model of that shape.
costs_of() {
  sed "s#model:DIR#model:$draft#; s#eagle3:DIR#eagle3:$head#; s#^  model: .*#  model: \"$1\"#; s#^  backend: .*#  backend: \"${2-cpu}\"#" \
    "$sim/costs.yaml"
}
costs_of "qwen2 6 layers, 256 wide, 4 + 4 heads of 64, 640 inner, 512 tokens, bf16" >"$work/costs.yaml"
printf '%s\n' field,tokens,weight input_tokens,{15,16,17,90},1 output_tokens,{1,8,40},2 output_tokens,{150,200},1 \
  >"$work/lengths.csv"
settings=(--set model.path="$work/model" --set engine.profile="$work/costs.yaml" --set prompts.samples=4
  --set sampling.max_tokens=200 --set simulation.workload.prompts=8 --set simulation.workload.lengths="$work/lengths.csv"
  --set test.check_kv=true --set output.flush_seconds=0.01)
all="speculation.drafters=[{method: model, path: $draft}, {method: suffix}, {method: ngram}]"

# simulate [ARG...]: into $output; returns its exit code. What it says is in $work/out and $work/err.
output=$work/run
simulate() { "$paceline" simulate "$config" "${settings[@]}" --output "$output" "$@" >"$work/out" 2>"$work/err"; }
simulated_digest() { awk 'END { print $NF }' "$work/out"; }
simulated_moves() { awk 'END { print $(NF - 2) }' "$work/out"; }
simulated_races() { awk 'END { print $(NF - 1) }' "$work/out"; }

simulate --set simulation.ranks_per_node=1 || { cat "$work/err"; exit 1; }
reference=$(simulated_digest)

# agrees WHAT [ARG...]: a simulation whose digest is to be $reference.
agrees() {
  local what=$1 code=0
  shift
  simulate "$@" || code=$?
  if [ "$code" = 0 ]; then same "$what" "$reference" "$(simulated_digest)"; else fail "$what: exit code $code: $(tail -n 1 "$work/err")"; fi
}
# some WHAT COUNT: what was to be tried was.
some() { if [ "$2" -gt 0 ]; then ok "$1: $2"; else fail "$1: none"; fi; }

agrees "plain decoding on 8 ranks"
agrees "on 3 nodes" --set simulation.nodes=3
agrees "TP 4" --set layout.verifier_tp=4
agrees "groups of degrees 4, 2, 1 and 1" --set layout.verifier_tp=[4,2,1,1]
agrees "batches of 3, prefill by 20, KV blocks of 32" --set engine.max_batch=3 --set engine.prefill_chunk=20 \
  --set engine.kv_block=32
agrees "prompts in another order" --set prompts.shuffle=true
for policy in fixed goodput nightjar dsd banditspec tetris; do
  for mode in coupled decoupled; do
    ranks=$([ $mode = decoupled ] && echo 2 || echo 0)
    agrees "$mode, lengths by $policy" --set "$all" --set speculation.mode=$mode --set layout.drafters="$ranks" \
      --set speculation.policy=$policy
  done
done
agrees "as is planned" --set "$all" --set layout.verifier_groups=4
# Drafts that earlier steps' texts help: the same responses, sooner.
last_seconds() { awk 'END { print $1 }' "$work/out"; }
alone=(--set "speculation.drafters=[{method: suffix}]" --set speculation.mode=coupled --set speculation.policy=fixed)
agrees "suffix trees of this step" "${alone[@]}"
first=$(last_seconds)
agrees "and of earlier ones" "${alone[@]}" --set simulation.workload.history=0.8
if awk -v a="$(last_seconds)" -v b="$first" 'BEGIN { exit !(a < 0.9 * b) }'; then ok "and sooner"
else fail "earlier steps' texts: $(last_seconds) s, without $first"; fi
agrees "best-of-N" --set "$all" --set speculation.mode=coupled --set speculation.best_of_n=true --set engine.max_batch=4
some "races" "$(simulated_races)"
agrees "races at random" --set "$all" --set layout.drafters=1 --set test.shuffle=[races]
some "races" "$(simulated_races)"
# Groups join for the last requests, by costs of groups of two in which nothing takes long.
sed -E 's/(- \[[0-9]+, [0-9.]+)(e-[0-9]+)?\]/\1e-9]/; s/^  tp: 1$/  tp: 2/' "$work/costs.yaml" >"$work/two.yaml"
agrees "groups join" --set engine.tail_profile="$work/two.yaml"
some "changes of roles" "$(sed -n 's/.*, \([0-9]*\) changes\{0,1\} of roles.*/\1/p' "$work/err")"
outcome_seconds() {
  "$python" -c 'import sys, h5py; print(str(h5py.File(sys.argv[1])["summary/outcome_seconds"][:].sum() > 0).lower())' "$output/telemetry.h5"
}
for outcomes in true false; do
  agrees "drafts for outcomes: $outcomes" --set "speculation.drafters=[{method: model, path: $draft}]" --set speculation.mode=decoupled --set layout.drafters=4 --set speculation.outcomes=$outcomes
  [ -z "$python" ] || same "ranks drafted for outcomes alone" "$outcomes" "$(outcome_seconds)"
done
# A head drafts by trees that a run recorded.
tree=(--set speculation.max_length=8 --set speculation.paths=10)
"$paceline" rollout "$config" --output "$work/recorded" --set prompts.samples=1 --set sampling.max_tokens=160 "${tree[@]}" \
  --set "speculation.drafters=[{method: eagle3, path: $head, record_stops: 8}]" --set speculation.policy=fixed \
  >/dev/null 2>"$work/err" || fail "recording: $(tail -n 1 "$work/err")"
trees=(--set simulation.workload.stop_points="$work/recorded")
for policy in fixed goodput nightjar; do
  for stop in "" ", stop: $root/configs/models/radar"; do
    agrees "a head${stop:+ that RADAR stops}, lengths by $policy" "${tree[@]}" "${trees[@]}" --set speculation.mode=coupled \
      --set "speculation.drafters=[{method: suffix}, {method: eagle3, path: $head$stop}]" --set speculation.policy=$policy
  done
done
agrees "a head beside drafter ranks" "${tree[@]}" "${trees[@]}" --set speculation.mode=decoupled --set layout.drafters=2 \
  --set "speculation.drafters=[{method: model, path: $draft}, {method: eagle3, path: $head}]"
agrees "a head on drafter ranks" "${tree[@]}" "${trees[@]}" --set speculation.mode=decoupled --set layout.drafters=2 \
  --set "speculation.drafters=[{method: suffix}, {method: eagle3, path: $head}]"
for servers in 0 1 3 auto; do
  agrees "draft servers: $servers" --set "${all/suffix/suffix, servers: $servers}" --set simulation.nodes=2 \
    --set speculation.mode=coupled --set test.shuffle=[moves] --set engine.max_batch=4
done
for kv in cost transfer recompute both; do
  agrees "moves at random, KV by $kv" --set test.shuffle=[moves] --set schedule.move_kv=$kv \
    --set layout.verifier_tp=[4,2,1,1] --set schedule.chunk=30
  some "moves" "$(simulated_moves)"
done
experts=$root/configs/simulated/models/Moonlight-16B-A3B
costs_of "deepseek_v3 27 layers, 2048 wide, 16 + 16 heads of 128, 11264 inner, 163840 tokens, latent attention of 512 + 64, \
values of 128, 6 of 64 experts of 1408 beside a shared one of 2816, not in layers 0, bf16" >"$work/experts.yaml"
experts=(--set model.path="$experts" --set engine.profile="$work/experts.yaml")
agrees "experts and latent attention" "${experts[@]}" --set test.shuffle=[moves] --set schedule.chunk=30
some "moves" "$(simulated_moves)"
# 420 positions, of which one request takes 290 at most.
tight=("${experts[@]}" --set simulation.ranks_per_node=2 --set engine.kv_memory=13MB --set test.check_kv=false)
for policy in context no_context oracle fcfs group; do
  agrees "little KV, by $policy" "${tight[@]}" --set schedule.policy=$policy --set schedule.chunk=30
  agrees "little KV bit by bit, by $policy" "${tight[@]}" --set schedule.policy=$policy --set schedule.chunk=grow
done
agrees "roles at random" --set "$all" --set layout.drafters=2 --set layout.verifier_tp=[2,2,1,1] \
  --set test.shuffle=[roles]
some "changes of roles" "$(sed -n 's/.* attempts*, \([0-9]*\) changes* of roles.*/\1/p' "$work/err")"

faults="delayed: 0.3, delay: 0.01, duplicated: 0.3, lost_blocks: 0.3, slow_ranks: 0.3, stalled_drafters: 1, stall: 0.1"
messy=(--set "$all" --set layout.drafters=2 --set layout.verifier_tp=[2,2,1,1] --set test.shuffle=[moves]
  --set speculation.best_of_n=true --set "test.faults={$faults}")
killed=(--set "test.faults={$faults, kill: 0.02}")

# Conversations: their turns wait for tools, whoever has them, and come back after a kill in a wait as well.
single=$reference
talks=(--set environment.method=command --set environment.command=[./none] --set environment.max_turns=5
  --set "simulation.workload.turns={median: 3, p99: 8, seconds: 0.02, seconds_p99: 0.5, tokens: 9, tokens_p99: 60}")
simulate "${talks[@]}" --set simulation.ranks_per_node=1 || fail "conversations: $(tail -n 1 "$work/err")"
reference=$(simulated_digest)
if [ "$reference" != "$single" ]; then ok "conversations are others"; else fail "conversations are as single turns"; fi
agrees "conversations on 8 ranks" "${talks[@]}"
agrees "conversations in chunks with drafts" "${talks[@]}" --set "$all" --set schedule.chunk=16 --set engine.max_batch=3 \
  --set speculation.mode=coupled
agrees "conversations of TP 2 with faults, and a kill" "${talks[@]}" --set layout.verifier_tp=2 "${killed[@]}"
agrees "conversations with a limit that no turn reaches" "${talks[@]}" --set environment.max_tokens_turn=1000 --set layout.verifier_tp=4
seconds=$(awk 'END { print $1 }' "$work/out")
kills=$(awk -v end="$seconds" 'BEGIN { for (i = 0; i < 12; ++i) printf "%s{kill: %.6f}", i ? "," : "", end * (0.01 + i / 12) }')
code=0
"$paceline" simulate "$config" "${settings[@]}" "${talks[@]}" --sweep "test.faults=$kills" >"$work/out" 2>"$work/err" || code=$?
same "conversations killed and resumed: exit code" 0 "$code"
same "conversations killed and resumed: digests" "$reference" "$(awk 'NR > 1 { print $NF }' "$work/out" | sort -u)"
for limit in environment.max_tokens_turn=20 environment.max_turns=1; do
  simulate "${talks[@]}" --set simulation.ranks_per_node=1 --set "$limit" || fail "$limit: $(tail -n 1 "$work/err")"
  reference=$(simulated_digest)
  agrees "conversations with $limit on 8 ranks" "${talks[@]}" --set "$limit" --set "$all" --set speculation.mode=decoupled \
    --set layout.drafters=2
done
reference=$single
agrees "whatever goes wrong" "${messy[@]}"

# Killed at the start, in the middle, and when all is finished but not all is said.
seconds=$(awk 'END { print $1 }' "$work/out")
kills=$(awk -v end="$seconds" -v faults="$faults" 'BEGIN { for (i = 0; i < 40; ++i) printf "%s{%s, kill: %.6f}", i ? "," : "", faults, end * (0.0001 + i * 1.05 / 40) }')
code=0
"$paceline" simulate "$config" "${settings[@]}" "${messy[@]}" --sweep "test.faults=$kills" \
  >"$work/out" 2>"$work/err" || code=$?
same "killed and resumed: exit code" 0 "$code"
same "killed and resumed: digests" "$reference" "$(awk 'NR > 1 { print $NF }' "$work/out" | sort -u)"
same "killed and resumed: rows" 40 "$(awk 'END { print NR - 1 }' "$work/out")"
some "jobs that were resumed" "$(grep -c ' 2 attempts' "$work/err")"

# The same seed, the same bytes.
simulate "${messy[@]}" "${killed[@]}"
cp "$work/run/telemetry.h5" "$work/telemetry.h5"
cp "$work/out" "$work/table"
repeats() {
  local what=$1
  shift
  "$@" "$paceline" simulate "$config" "${settings[@]}" "${messy[@]}" "${killed[@]}" \
    --output "$work/run" >"$work/out" 2>"$work/err" || fail "$what: exit code $?"
  if cmp "$work/telemetry.h5" "$work/run/telemetry.h5"; then ok "$what: the same telemetry"; else fail "$what: other telemetry"; fi
  same "$what: the same table" "$(cat "$work/table")" "$(cat "$work/out")"
}
repeats "again" env
repeats "on one core" taskset -c 0
repeats "with other threads" env OMP_NUM_THREADS=7 OPENBLAS_NUM_THREADS=5 MALLOC_ARENA_MAX=1
repeats "on a processor without wide vectors, for the C library" env GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F
repeats "in another zone and language" env TZ=Asia/Tokyo LC_ALL=C

# What it says on every machine. A change of what is simulated changes it: then the new one goes here.
every=e4dff64c11f9762e
said=$("$(command -v /usr/bin/python3 || command -v python3)" "$sim/telemetry_hash.py" "$work/telemetry.h5" 2>/dev/null || echo skip)
if [ "$said" = skip ]; then echo "skip no h5py: telemetry is not compared with other machines'"; else same "the same telemetry as on other machines" $every "$said"; fi
simulate "${messy[@]}" "${killed[@]}" --set sampling.seed=4
if [ "$(simulated_digest)" != "$reference" ]; then ok "another seed is other work"; else fail "another seed is the same work"; fi
if cmp -s "$work/telemetry.h5" "$work/run/telemetry.h5"; then fail "another seed: the same telemetry"; else ok "another seed: other telemetry"; fi
same "nothing is left beside the telemetry" "telemetry.h5" "$(ls -A "$work/run")"

# What a run's telemetry says, a simulation's does.
responses=$("$paceline" report "$work/run" 2>&1 | sed -n 's/^ *\([0-9]*\) responses finished.*/\1/p')
same "a report of it" 32 "$responses"
if [ -z "$python" ]; then
  echo "SKIP: telemetry is not read: no Python with h5py and numpy"
elif PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/io/python $python - "$work/run" <<'PY'
import sys
from paceline_reader import acceptance, attempts, kv_scale, races, rank_seconds, timeline, writes
run = sys.argv[1]
spans = timeline(run)
assert len(set(spans["rank"])) == 8, "not all ranks did something"
assert min(spans["duration"]) >= 0 and max(spans["duration"]) < 60, "durations that are none"
ranks = rank_seconds(run)
assert all(host.startswith("node-") for host in ranks["host"]), "ranks on no node"
assert not ranks["loading"].any() and not ranks["flush"].any() and not len(writes(run)["start"]), "real seconds"
assert not attempts(run)["started"].any() and (attempts(run)["ended"] > 0).all(), "attempts at another time"
assert len(acceptance(run, by=("drafter",))["rate"]) > 1, "no acceptance of drafters"
assert len(races(run)["rank"]) > 0, "no races"
assert len(kv_scale(run)) > 0, "no moves of KV"
PY
then ok "the reader reads it"; else fail "the reader does not read it"; fi

# Memory of a draft model becomes KV's and its own again, by the policy and at random.
# Blocks of 16: what little KV there is has to come in enough of them.
elastic=(--set engine.kv_block=16 --set "speculation.drafters=[{method: model, path: $draft}]" --set simulation.workload.acceptance=[0.05])
# lent WHAT LEAST: in the last simulation it did, at least so often.
lent() {
  [ -n "$python" ] || return 0
  if PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/io/python $python - "$work/run" "$2" <<'PY'
import sys
from paceline_reader import draft_memory
changes = draft_memory(sys.argv[1])
kinds = list(changes["kind"])
for kind in ("expanded", "contracted", "resumed"):
    assert kinds.count(kind) >= int(sys.argv[2]), f"{kind} {kinds.count(kind)} times"
assert changes["moved"].sum() > 0, "no block was in the way"
PY
  then ok "$1"; else fail "$1"; fi
}
agrees "draft models' memory, by the policy" "${elastic[@]}" --set speculation.elastic_memory=true \
  --set simulation.ranks_per_node=1 --set engine.kv_memory=3.2MB --set schedule.chunk=25
lent "it went to KV and came back" 1
agrees "draft models' memory, at random" "${elastic[@]}" --set test.shuffle=[memory,moves] \
  --set layout.verifier_tp=[2,1,1] --set simulation.ranks_per_node=4 --set engine.kv_memory=5MB
lent "it went to KV and came back" 10

# refuses WHAT CODE PATTERN [ARG...]: a simulation that must end with CODE and say PATTERN, once.
refuses() {
  local what=$1 code=$2 pattern=$3 found=0
  shift 3
  simulate "$@" || found=$?
  same "$what: exit code" "$code" "$found"
  same "$what: said once" 1 "$(grep -cE "^paceline: .*($pattern)" "$work/err" || true)"
}
refuses "no costs" 64 "no costs are known.*engine.profile" --set engine.profile=auto
refuses "no such profile" 64 "nowhere.yaml: cannot read the cost profile" --set engine.profile="$work/nowhere.yaml"
refuses "a drafter that the profile does not know" 64 "has no costs of the drafter model:$work/model" \
  --set "speculation.drafters=[{method: model, path: $work/model}]"
refuses "a head without trees" 64 "simulation.workload.stop_points: expected a run that recorded" \
  --set "speculation.drafters=[{method: eagle3, path: $head}]"
refuses "a run that recorded no trees" 64 "stop_points: $work/run recorded no draft trees" \
  --set "speculation.drafters=[{method: eagle3, path: $head}]" --set simulation.workload.stop_points="$work/run"
refuses "acceptance of another number of drafters" 64 "acceptance: expected 3 numbers, .* found 2" \
  --set "$all" --set simulation.workload.acceptance=[0.5,0.6]
refuses "acceptance out of range" 64 "acceptance" --set "$all" --set simulation.workload.acceptance=[0.5,0.6,1.5]
refuses "a share of more than all" 64 "simulation.workload.history" --set simulation.workload.history=1.5
refuses "more draft servers than ranks" 64 "servers a rank \\(8\\), found 9" --set "${all/suffix/suffix, servers: 9}"
refuses "unknown key" 64 "simulation.node.*nodes" --set simulation.node=3
refuses "unknown fault" 64 "test.faults: .*'kil'; did you mean 'kill'" --set "test.faults={kil: 3}"
refuses "no nodes" 64 "simulation.nodes" --set simulation.nodes=0
refuses "a share above 1" 64 "test.faults.delayed" --set "test.faults={delayed: 1.1}"
refuses "more groups than ranks" 64 "layout: 5 verifier groups of degree 2" --set layout.verifier_tp=2 --set layout.verifier_groups=5
refuses "no such lengths" 65 "nowhere.csv" --set simulation.workload.lengths="$work/nowhere.csv"
refuses "a folder without a run" 64 "not a finished run" --set simulation.workload.lengths="$work"
refuses "no such model" 65 "nowhere" --set model.path="$work/nowhere"
refuses "a sweep whose last value is none" 64 "speculation.window.*.x." --sweep speculation.window=2,x
refuses "a sweep of nothing" 64 "sweep simulation.nodes=: expected" --sweep simulation.nodes=
refuses "a sweep without values" 64 "sweep simulation.nodes: expected" --sweep simulation.nodes
refuses "a sweep of an unknown key" 64 "simulation.node.*nodes" --sweep simulation.node=1,2
refuses "latent attention of several ranks" 64 "layout.verifier_tp" "${experts[@]}" --set layout.verifier_tp=2
refuses "ranks of several GPUs without their costs" 64 "simulation.gpus_per_rank: expected 1, .* found 2" \
  --set simulation.gpus_per_rank=2
refuses "an instance without its costs" 64 "simulation.instance: expected 1, .* found 2" --set simulation.instance=2
refuses "a key of earlier versions" 64 "simulation.seed=2: .*; it is sampling.seed" --set simulation.seed=2
refuses "p99 below the median" 64 "p99: expected at least the median of 500" \
  --set "simulation.workload.lengths={median: 500, p99: 400}"

# What cannot be, and what was measured with something else.
refuses "a model that was not measured" 64 "costs.yaml does not apply to this simulation: it was measured with the model: qwen2 6 layers, .*; this \
simulation has qwen2 64 layers, 5120 wide, 40 \+ 8 heads of 128, 27648 inner, 152064 tokens, bf16. Measure the simulated configuration" \
  --set model.path="$root/configs/simulated/models/Qwen2.5-32B"
refuses "another instruction set than was measured" 64 "instruction set: avx512_bf16; this simulation has avx2" --set engine.isa=avx2
refuses "other threads than were measured" 64 "threads: 1; this simulation has 4" --set engine.threads=4
refuses "another backend than was measured" 64 "backend: cpu; this simulation has cuda" --set engine.backend=cuda
refuses "memory of GPUs that there are not" 64 "simulation.gpu_memory: expected auto, because .* has costs of a CPU" \
  --set simulation.gpu_memory=80G
costs_of "qwen2 64 layers, 5120 wide, 40 + 8 heads of 128, 27648 inner, 152064 tokens, bf16" cuda >"$work/gpu.yaml"
large=(--set model.path="$root/configs/simulated/models/Qwen2.5-32B" --set engine.profile="$work/gpu.yaml" --set simulation.ranks_per_node=2
  --set test.check_kv=false)
agrees "a model of 61 GiB on GPUs of 80" "${large[@]}"
if grep -q "device memory of a rank, MiB: 76032 to plan with; weights 624[0-9]*, embeddings" "$work/err"; then
  ok "and its plan says what it takes"
else
  fail "the plan is: $(cat "$work/err")"
fi
refuses "weights that do not fit a GPU" 64 "at degree 1 a rank's weights take 61.03 GiB .* GiB more than the 36.75 GiB that the rank may use; \
take a higher layout.verifier_tp, or GPUs of more memory \(simulation.gpu_memory\)" "${large[@]}" \
  --set simulation.gpu_memory=40G
refuses "KV that does not fit beside them" 64 "engine.kv_memory: 341.00 GiB are asked for, and a rank has 1.\... beside the weights, 32.\... \
too few; lower it, or take a higher layout.verifier_tp" "${large[@]}" --set engine.kv_memory=341G
agrees "the same on GPUs of more memory" "${large[@]}" --set engine.kv_memory=341G --set simulation.gpu_memory=500G
simulate --set layout.verifier_tp=2 || fail "a degree that was not measured: $(tail -n 1 "$work/err")"
if grep -q "warning: costs of tensor-parallel degree 1 stand for those of 2" "$work/err"; then
  ok "costs of another degree are said to be"
else
  fail "costs of another degree: $(cat "$work/err")"
fi

# Prompts as the configuration has them, unless a key says otherwise.
printf '{"prompt": "%s"}\n' "The quick brown fox" "jumps" "over the lazy dog" >"$work/three.jsonl"
three=(--set prompts.path="$work/three.jsonl" --set simulation.workload.lengths={})
# work WHAT TEXT [ARG...]: of the simulation its plan says TEXT.
work() {
  local what=$1 text=$2
  shift 2
  simulate "$@" || { fail "$what: $(tail -n 1 "$work/err")"; return; }
  if grep -qF -- "$text" "$work/err"; then ok "$what"; else fail "$what: '$text' is not in: $(cat "$work/err")"; fi
}
work "as many prompts as the file has" "12 responses to 3 prompts" "${three[@]}" --set simulation.workload.prompts=auto
file_digest=$(simulated_digest)
work "a number that is said" "20 responses to 5 prompts" "${three[@]}" --set simulation.workload.prompts=5
work "as many, of lengths that were counted" "12 responses to 3 prompts" --set prompts.path="$work/three.jsonl" \
  --set simulation.workload.prompts=auto
work "as many, of one length" "12 responses to 3 prompts" "${three[@]}" --set simulation.workload.prompts=auto \
  --set simulation.workload.prompt_tokens=7
if [ "$file_digest" != "$(simulated_digest)" ]; then ok "lengths are those of the file"; else fail "lengths are not those of the file"; fi
work "without a tokenizer lengths are estimated" "one token for every four bytes of text, because there is no tokenizer of $work/model" \
  "${three[@]}" --set simulation.workload.prompts=auto
refuses "prompts that are not there" 65 "nowhere.jsonl" --set prompts.path="$work/nowhere.jsonl" --set simulation.workload.prompts=auto
refuses "prompts that are too long" 65 "limit is 3" "${three[@]}" --set simulation.workload.prompts=auto --set prompts.max_prompt_tokens=3

# A sweep writes where it is told to.
output=$work/swept simulate --sweep layout.verifier_tp=1,2 || fail "a sweep with --output: $(tail -n 1 "$work/err")"
same "a sweep writes each value's telemetry" "01-layout.verifier_tp=1 02-layout.verifier_tp=2" "$(ls "$work/swept" | xargs)"
same "which a report compares" 2 "$("$paceline" report "$work"/swept/* 2>&1 | grep -c '^  */.*verifier_tp=[12] .*[0-9]')"

refuses "a context without room for a prompt" 64 "sampling.max_tokens: 200 leaves no room .* 200 tokens" \
  --set simulation.context=200
refuses "no room for a prompt" 64 "sampling.max_tokens: 100000 leaves no room" --set sampling.max_tokens=100000
output=/dev/null/here refuses "an output that cannot be made" 74 "cannot be made"
mkdir "$work/a-run"
echo '{}' >"$work/a-run/run.json"
output=$work/a-run refuses "a run's directory" 64 "a-run: holds a run"
same "a run's directory is left as it is" "run.json" "$(ls -A "$work/a-run")"
mkdir -p "$work/others/shards"
touch "$work/others/shards/data.bin"
output=$work/others simulate || fail "a folder with others' files: $(tail -n 1 "$work/err")"
same "others' files stay" "data.bin" "$(ls -A "$work/others/shards")"
# Experts divided among ranks that step together.
instance=(--set model.path="$root/configs/simulated/models/Qwen3-30B-A3B" --set simulation.gpu_tables="$root/configs/simulated/h100"
  --set simulation.ranks_per_node=4 --set simulation.instance=2)
agrees "instances of two" "${instance[@]}"
agrees "prompts dealt to instances" "${instance[@]}" --set schedule.policy=group
agrees "groups of several degrees by tables" "${instance[@]}" --set simulation.instance=1 --set layout.verifier_tp=[2,1,1]
same "of each its own costs" 0 "$(grep -c 'stand for those of' "$work/err" || true)"
refuses "instances that ranks do not make up" 64 "simulation.instance: expected a divisor of 4 ranks, found 3" "${instance[@]}" --set simulation.instance=3
refuses "an instance of a dense model" 64 "simulation.instance: .* has no costs of the model on 2 GPUs: the model has no experts to share" \
  "${instance[@]}" --set model.path="$root/configs/simulated/models/Qwen2.5-7B"
refuses "an instance of groups" 64 "layout.verifier_tp, .*: expected 1, .* found groups of 2 GPUs \(if .* simulation.instance\)" "${instance[@]}" --set layout.verifier_tp=2
refuses "an instance of which a rank idles" 64 "simulation.instance: expected 1 where ranks draft or idle" "${instance[@]}" --set layout.verifier_groups=3
refuses "latent attention on ranks of several GPUs" 64 "simulation.gpus_per_rank: expected 1, .*latent.* found 2" "${instance[@]}" \
  --set model.path="$root/configs/simulated/models/Moonlight-16B-A3B" --set simulation.instance=1 --set simulation.gpus_per_rank=2
refuses "an instance with a drafter rank" 64 "simulation.instance: expected 1 where ranks draft" "${instance[@]}" \
  --set "speculation.drafters=[{method: suffix}]" --set speculation.mode=decoupled --set layout.drafters=1

# A simulation of minutes. Of a process that has to be killed timeout says 137.
code=0
timeout -k 5 0.5 "$paceline" simulate "$root/configs/simulated/seer-kimi-k2.yaml" >"$work/out" 2>&1 || code=$?
same "SIGTERM ends it: exit code" 124 "$code"

finish
