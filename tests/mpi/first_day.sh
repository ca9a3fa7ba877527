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
  --set "reward.command=[python3, -m, score_worker, $root/configs/gsm8k_reward.py]"
  --set sampling.max_tokens=100 --set engine.max_batch=8)
declare -A prompt_of=([prompt]='"two and two"' [messages]='[{"role": "user", "content": "two and two"}]'
  [prompt_tokens]='[5, 6, 7]')
fields=$(sed -n 's/.*one JSON object a line, with //p' "$example" | grep -o '"[a-z_]*"' | tr -d '"')
same "the example names fields for prompts" "prompt messages prompt_tokens" "$(tr "\n" " " <<<"$fields" | sed "s| $||")"
for field in $fields; do
  echo "{\"$field\": ${prompt_of[$field]}}" >"$work/prompts.jsonl"
  if "${check[@]}" --set prompts.path="$work/prompts.jsonl" >"$work/log" 2>&1; then ok "the example's '$field' is read"
  else fail "the example's '$field' is not read:"; cat "$work/log"; fi
done

# adds_up WHAT FILE: in every line of progress all requests are somewhere.
adds_up() {
  if python3 - "$2" <<'PY'
import re, sys
lines = [l for l in re.split(r"[\r\n]", open(sys.argv[1], errors="replace").read()) if re.search(r"/\d+ finished", l)]
assert lines, "no line of progress"
for line in lines:
    counts = {what: int(n) for n, what in re.findall(r"(\d+) (not on disk yet|active|partial|waiting)", line)}
    finished, total = map(int, re.search(r"(\d+)/(\d+) finished", line).groups())
    assert finished + sum(counts.values()) == total and {"active", "waiting"} <= counts.keys(), line
PY
  then ok "$1"; else fail "$1"; cat "$2"; fi
}

# Under a launcher stderr is no terminal: lines, the first at once, and one where the run stopped.
long=(--set engine.max_batch=8 --set sampling.max_tokens=4000 --set sampling.ignore_eos=true --set prompts.samples=16)
log=$work/stopped.log
start 2 "$work/stopped" "${long[@]}" --set output.flush_seconds=5
until grep -qs ' [1-9][0-9]* active, ' "$log" || ! kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
kill -USR1 "$pid"
code=0; wait "$pid" || code=$?
same "stopped: exit code" 75 "$code"
says "progress: it begins with loading" '^loading weights: 0/512 finished, 0 active, 512 waiting, [0-9]+s elapsed$' "$log"
says "progress: a line after a second" '^.*/512 finished, .* [1-4]s elapsed$' "$log"
says "progress: the last line says what was handed in" '^stopping: .* 0 active, [1-9][0-9]* partial, ' "$log"
adds_up "progress: every line adds up, that of the stop too" "$log"
says "accounting: counts are whole" '^  steps( +[0-9]+){3}$' "$log"
if grep -q 'drafted' "$log"; then fail "accounting: a row of zeros"; else ok "accounting: no row of zeros"; fi
says "accounting: totals" '^total: [0-9]+ responses finished, [0-9]+ tokens in [0-9.]+ s: [0-9.]+ tokens/s, [0-9.]+ a rank$' "$log"
says "accounting: the largest loss" '^largest loss: ' "$log"
says "the plan explains verifiers" 'a verifier group is one rank, the verifier' "$log"
says "the plan says what bounds memory" 'memory per rank: [0-9.]+ GiB, a share of the [0-9.]+ GiB on node 0 \((free memory|memory left by the job.s limit)' "$log"
code=0; rollout 1 "$work/stopped" --resume "${long[@]}" --set limits.wall_clock=3 --set limits.margin=2 || code=$?
same "resumed and stopped again: exit code" 75 "$code"
says "a resumed run is start 2" 'start 2 of this run' "$log"
adds_up "progress of a resumed run: every line adds up" "$log"

# Most ranks have no role, which is most of what is lost.
log=$work/idle.log
rollout 4 "$work/idle" --set layout.verifier_groups=1 --set sampling.max_tokens=600 || fail "a run on one of four ranks"
says "the largest loss is named, with the setting that changes it" \
  '^largest loss: [0-9]+ % of the ranks. time went to spare ranks; .*layout.verifier_groups' "$log"

# A rank without a role, and tensor parallelism.
log=$work/spare.log
rollout 3 "$work/spare" --set layout.verifier_tp=2 --set sampling.max_tokens=60 || fail "a run with a spare rank"
says "the plan explains groups" 'a verifier group is 2 ranks that share the weights and generate' "$log"
says "the plan explains spare ranks" 'a spare rank has no role' "$log"
says "ranks by what they are" 'node 0 \(.*\): ranks 0-1 verifier group 0, rank 2 spare$' "$log"

# On a terminal a bar that fits it.
python3 - "$work/tty.log" "$paceline" rollout "$config" --output "$work/tty" "${backend[@]}" "${small[@]}" <<'PY' || fail "a run on a terminal"
import fcntl, os, pty, struct, sys, termios
pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(2, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    os.execv(sys.argv[2], sys.argv[2:])
with open(sys.argv[1], "wb") as log:
    try:
        while data := os.read(terminal, 65536):
            log.write(data)
    except OSError:  # the other end is closed
        pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
PY
tr '\r' '\n' <"$work/tty.log" | sed 's/\x1b\[K//g' >"$work/bars.log"
says "on a terminal: a bar" '^\[#+\.*\] [0-9]+/96 finished' "$work/bars.log"
adds_up "on a terminal: every line adds up" "$work/bars.log"
widest=$(grep '/96 finished' "$work/bars.log" | awk '{ print length }' | sort -n | tail -n 1)
if [ "${widest:-99}" -lt 80 ]; then ok "on a terminal of 80 columns: $widest"; else fail "on a terminal of 80 columns: $widest"; fi

# The plan of machines that are not here, on stdout.
plan() { "$paceline" check "$config" "${backend[@]}" --output "${into-$work/new}" "$@" >"$work/plan" 2>"$work/plan.err"; }
# plan_refused WHAT CODE PATTERN ARGS...
plan_refused() {
  local what=$1 expected=$2 pattern=$3 code=0
  shift 3
  plan "$@" || code=$?
  same "check: $what: exit code" "$expected" "$code"
  says "check: $what" "$pattern" "$work/plan.err"
}
plan --nodes 3 --ranks-per-node 4 --host-memory 64G --set layout.verifier_tp=2 --set layout.drafters=2 \
  --set 'speculation.drafters=[{method: suffix}]' || fail "check of three nodes"
same "check: nothing on stderr" "" "$(cat "$work/plan.err")"
same "check: a line a node" \
  "ranks 0-3 verifier groups 0-1;ranks 4-7 verifier groups 2-3;ranks 8-9 verifier group 4, ranks 10-11 drafters" \
  "$(sed -n 's/^  node [0-9] (planned): //p' "$work/plan" | paste -sd';')"
says "check: memory is shared by a node's ranks" 'memory per rank: 16.00 GiB, a share of the 64.00 GiB on node 0 \(as planned for\)' "$work/plan"
says "check: no time without a profile" 'time: not known without engine.profile' "$work/plan"
says "check: the output directory" "output $work/new: will be made" "$work/plan"
says "check: a chain of drafts has no paths" 'drafts by suffix: up to 8 tokens, where it pays' "$work/plan"
says "check: everything" '^everything is in order: 256 responses' "$work/plan"
if [ -e "$work/new" ]; then fail "check made the output directory"; else ok "check made nothing"; fi

SLURM_JOB_ID=1 SLURM_JOB_NUM_NODES=2 SLURM_TASKS_PER_NODE='8(x2)' SLURM_CPUS_PER_TASK=4 SLURM_MEM_PER_NODE=65536 \
  SLURM_JOB_END_TIME=$(($(date +%s) + 600)) plan || fail "check in a job of Slurm's"
says "check in a job: the job's nodes" '16 ranks, 4 threads each' "$work/plan"
says "check in a job: the job's memory" 'memory per rank: 8.00 GiB' "$work/plan"

SLURM_JOB_ID=1 SLURM_GPUS_ON_NODE=4 SLURM_TASKS_PER_NODE=4 plan --set engine.backend=auto || fail "check in a job with GPUs"
says "check in a job: GPUs of a kind that was never measured stay idle, as in the run" \
  'computes on the CPU and leaves .* idle.*to try it: engine.backend: cuda' "$work/plan"
says "check in a job: no limit is known" 'no wall-clock limit \(Slurm does not say how long this job may run\)$' "$work/plan"
mkdir "$work/bin"
printf '#!/bin/sh\necho UNLIMITED\n' >"$work/bin/squeue" && chmod +x "$work/bin/squeue"
PATH=$work/bin:$PATH SLURM_JOB_ID=1 plan || fail "check in a job without a limit"
says "check in a job: it has no limit" 'no wall-clock limit \(Slurm gives this job no limit\)$' "$work/plan"
printf '#!/bin/sh\necho 1-00:30:00\n' >"$work/bin/squeue"
PATH=$work/bin:$PATH SLURM_JOB_ID=1 plan || fail "check in a job with a limit"
says "check in a job: its limit" "before Slurm's time limit, which is 24h30m from now$" "$work/plan"

# What is said of GPUs plans GPUs, whatever the run's backend would be by itself.
plan --set engine.backend=auto --nodes 2 --ranks-per-node 8 --gpus 4 --gpu-memory 80G || fail "check of GPUs"
says "check: GPUs" '16 ranks, .* backend cuda' "$work/plan"
says "check: ranks that share GPUs" 'warning: 8 ranks share 4 GPUs on each node' "$work/plan"
says "check: half a GPU a rank" 'device memory of a rank, MiB: 37632 to plan with' "$work/plan"
says "check: what the run takes for them" 'planned for the GPUs of --gpus, but engine.backend: auto .*set engine.backend: cuda' "$work/plan"
plan --set engine.backend=cuda --ranks 8 --gpu-memory 80G --host-memory 1T || fail "check of a GPU a rank"
says "check: a GPU a rank" 'device memory of a rank, MiB: 76032 to plan with' "$work/plan"
says "check: and their host" 'KV pool: up to ' "$work/plan"
plan_refused "GPUs beside engine.backend: cpu" 64 'gpus: engine.backend is cpu, which leaves GPUs idle' \
  --set engine.backend=cpu --gpus 4 --gpu-memory 80G
plan_refused "memory of no GPUs" 64 'gpu-memory: expected --gpus of 1 or more' --gpus 0 --gpu-memory 80G
plan_refused "GPUs of too little memory" 64 'GiB more than the 0.02 GiB that the rank may use; take a higher layout.verifier_tp, or GPUs of more' \
  --set engine.backend=cuda --gpu-memory 30M
plan_refused "what was the memory of either" 64 'memory.*was replaced by --host-memory .of a node. and --gpu-memory .of each GPU.' --memory 80G
plan --ranks-per-node 4 --cores 32 || fail "check of a node's cores"
says "check: cores are a node's" '4 ranks, 8 threads each' "$work/plan"
plan --ranks-per-node 4 --cores 6 --set engine.threads=2 || fail "check of too few cores"
says "check: threads without cores" 'warning: 8 threads on 6 cores of a node' "$work/plan"
plan_refused "memory is too little" 64 'fewer ranks per node, nodes with more memory' --ranks-per-node 2 --host-memory 28M --set sampling.max_tokens=2000
plan_refused "memory is far too little" 64 'fewer ranks per node, nodes with more memory' --host-memory 1 --set 'speculation.drafters=[{method: ngram}]'
plan_refused "no size" 64 "expected a size such as 64GiB, found '8X'" --host-memory 8X

# A plan by config.json, before weights and tokenizer are there.
mkdir "$work/config-alone"
cp "$root/configs/models/target/config.json" "$work/config-alone"
alone=(--set model.path="$work/config-alone")
plan "${alone[@]}" --gpus 8 --gpu-memory 80G --ranks-per-node 8 --set engine.backend=cuda || fail "check by config.json: $(cat "$work/plan.err")"
says "check by config.json: what is absent" "not there yet: weights of $work/config-alone" "$work/plan"
says "check by config.json: the tokenizer too" "not there yet: tokenizer of $work/config-alone" "$work/plan"
says "check by config.json: prompts all the same" 'one token for every four bytes of text' "$work/plan"
says "check by config.json: the rest" '^all else is in order: 256 responses' "$work/plan"
cp "$root"/configs/models/target/tokenizer* "$work/config-alone"
plan "${alone[@]}" --gpus 8 --gpu-memory 80G --ranks-per-node 8 --set engine.backend=cuda || fail "check without weights"
with_tokenizer=$(grep -E 'KV blocks|tensor-parallel degree|weights ' "$work/plan")
cp "$root/configs/models/target/model.safetensors" "$work/config-alone"
plan "${alone[@]}" --gpus 8 --gpu-memory 80G --ranks-per-node 8 --set engine.backend=cuda || fail "check with weights"
same "check by config.json plans as with weights" "$(grep -E 'KV blocks|tensor-parallel degree|weights ' "$work/plan")" \
  "$(grep -v 'not there yet' <<<"$with_tokenizer")"
rm "$work/config-alone/model.safetensors"
plan_refused "a run without weights" 65 "config-alone: expected model.safetensors" "${alone[@]}"
plan_refused "a resume without weights, planned" 65 "resume: .*config-alone has none" --resume --ranks 2 "${alone[@]}"
into=$work/tty plan_refused "an output directory that holds a run" 64 "already holds a run"
into=$config/run plan_refused "an output directory that cannot be" 74 "Not a directory"
into=$work/tty plan_refused "a resume with another seed" 64 "cannot resume .*seed: 1, now 2" --resume "${small[@]}" --set sampling.seed=2
into=$work/tty plan --resume "${small[@]}" || fail "check of a resume"
says "check: a resume" 'holds a complete run' "$work/plan"

"$paceline" profile "$config" "${backend[@]}" --set engine.threads=1 --seconds 1 --output "$work/costs.yaml" 2>"$work/log" || fail "a profile"
plan --set engine.threads=1 --set engine.profile="$work/costs.yaml" --set limits.wall_clock=1s --set limits.margin=0 || fail "check with a profile"
says "check: a time with a profile" 'time: about [0-9msh]+ if responses have 512 tokens on average, [0-9msh]+ if they have 1024' "$work/plan"
says "check: a time that is too long" 'warning: the longer time exceeds the time limit' "$work/plan"

finish
