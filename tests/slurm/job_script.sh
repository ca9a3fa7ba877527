#!/usr/bin/env bash
# job_script.sh PACELINE: what a site and a user may ask of the job script: a setup file as modules and conda are, a
# wrapper, job arrays, GPUs that do not match the ranks, either launcher. Plays Slurm's part itself: none is needed.
set -euo pipefail
paceline=$(realpath "$1")
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ "$(id -u)" = 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
export SLURM_JOB_ID=1 SLURM_NTASKS=2 SLURM_TASKS_PER_NODE=2 SLURM_JOB_NODELIST=here SLURM_CPUS_PER_TASK=1
export PACELINE_EXE=$paceline PACELINE_LAUNCH_ARGS=--oversubscribe
failures=0
ok() { echo "ok   $*"; }
fail() { echo "FAIL $*"; cat "$work/log"; failures=$((failures + 1)); }

# job CODE WHAT ARGS...: the script ends with CODE.
job() {
  local code=0 expected=$1 what=$2
  shift 2
  bash "$root/jobscripts/rollout.sbatch" "$@" >"$work/log" 2>&1 || code=$?
  if [ "$code" = "$expected" ]; then ok "$what: exit code $code"; else fail "$what: exit code $code, not $expected"; fi
}
says() { if grep -qE -- "$2" "$work/log"; then ok "$1"; else fail "$1: no line is '$2'"; fi; }
short=(--set sampling.max_tokens=10 --set prompts.samples=1 --set engine.backend=cpu)
config=$root/configs/quickstart.yaml

# Tells what a rank gets, and runs it.
cat >"$work/wrapper" <<'WRAPPER'
#!/usr/bin/env bash
echo "wrapped with $1, GPU ${CUDA_VISIBLE_DEVICES-none}" >&2
shift
exec "$@"
WRAPPER
chmod +x "$work/wrapper"

# A setup file that would not get far under set -eu.
cat >"$work/setup" <<'SETUP'
[ -n "$CONDA_SHLVL_THAT_NOBODY_SET" ] && echo "a shell in a shell"
false
echo "setup was given $# arguments"
export PACELINE_WRAPPER="$WORK/wrapper image.sif"
SETUP
WORK=$work PACELINE_SETUP=$work/setup job 0 "a setup file and a wrapper" "$config" "$work/run" "${short[@]}"
says "the setup is not given the script's arguments" '^setup was given 0 arguments$'
says "each rank is wrapped" '^wrapped with image.sif, GPU none$'
[ -e "$work/run/trajectories.h5" ] || fail "the run has no result"
PACELINE_SETUP=$work/nowhere job 64 "a setup file that is not there" "$config" "$work/none"

# GPUs.
export PACELINE_WRAPPER="$work/wrapper image.sif"
CUDA_VISIBLE_DEVICES=4,7 job 0 "as many GPUs as ranks" "$config" "$work/gpus" "${short[@]}"
says "a rank has the first" 'GPU 4$'
says "a rank has the second" 'GPU 7$'
CUDA_VISIBLE_DEVICES=4 job 64 "fewer GPUs than ranks" "$config" "$work/fewer" "${short[@]}"
[ "$(grep -c 'more ranks than GPUs on .* --ntasks-per-node=1' "$work/log")" = 1 ] || fail "one clear message"
CUDA_VISIBLE_DEVICES=4 PACELINE_SHARE_GPUS=yes job 0 "fewer GPUs than ranks, shared" "$config" "$work/shared" "${short[@]}"
CUDA_VISIBLE_DEVICES=0,1,2,3 SLURM_GPUS_ON_NODE=4 job 0 "more GPUs than ranks" "$config" "$work/more" "${short[@]}"
says "idle GPUs are told of" 'warning: 4 GPUs a node for 2 ranks'
unset PACELINE_WRAPPER

# Job arrays.
export SLURM_ARRAY_TASK_ID=3
job 64 "tasks of an array in one directory" "$config" "$work/array"
says "it says what to do" 'put %a'
job 0 "a task of an array" "$config" "$work/array-%a" "${short[@]}" --set sampling.seed=%a
[ -e "$work/array-3/trajectories.h5" ] || fail "the task has a directory of its own"
unset SLURM_ARRAY_TASK_ID

# What comes before a rollout, and after it.
job 0 "a profile" profile "$config" "$work/costs/costs.yaml" --seconds 1 --set engine.backend=cpu
grep -q '^decode:' "$work/costs/costs.yaml" || fail "the profile is not there"
job 0 "a rollout by it" "$config" "$work/priced" "${short[@]}" --set engine.profile="$work/costs/costs.yaml"
says "whose costs hold for ranks of the same job" "costs from $work/costs/costs.yaml"
job 0 "scores" score "$config" "$work/run" --name again --set engine.backend=cpu
[ -e "$work/run/scores-again.h5" ] || fail "the scores are not there"
job 64 "scores of no run" score "$config" "$work/no-run"
[ ! -e "$work/no-run" ] || fail "a run's directory was made"
job 64 "a profile without a file" profile "$config"
says "and says what is wanted" 'rollout.sbatch profile CONFIG COSTS.yaml'
SLURM_ARRAY_TASK_ID=7 job 64 "tasks of an array under one name" score "$config" "$work/run" --name same
SLURM_ARRAY_TASK_ID=7 job 0 "a task of an array that scores" score "$config" "$work/run" --name task-%a --set engine.backend=cpu
[ -e "$work/run/scores-task-7.h5" ] || fail "the task has scores of its own"

# A launcher that stays when its ranks are gone, as Open MPI's does at times after the kill of a rank.
mkdir "$work/hanging"
mkfifo "$work/never"
cat >"$work/hanging/mpirun" <<LAUNCHER
#!/usr/bin/env bash
sleep 7
exec 3<>"$work/never"
echo "no rank is left"
read -r -u 3
LAUNCHER
chmod +x "$work/hanging/mpirun"
PACELINE_LINGER=1 PATH=$work/hanging:$PATH job 137 "a launcher that hangs" "$config" "$work/hangs"
says "it is ended once its ranks are" '^no rank is left$'
says "and that is said" 'mpirun hangs'

# A job that stays: no output directory of its own.
mkdir "$work/steps"
: >"$work/steps/stop"
printf 'model: {weight_version: 2}\n' >"$work/steps/step-1.yaml"
job 0 "a resident job" "$config" --watch "$work/steps" "${short[@]}"
[ -e "$work/steps/step-1/trajectories.h5" ] || fail "the step has no result"
job 64 "a folder of requests that is not there" "$config" --watch "$work/nowhere" "${short[@]}"

# Each Open MPI is told in its own words that Slurm counts hardware threads.
mkdir "$work/versions"
printf '#!/usr/bin/env bash\n[ "$1" = --version ] && echo "mpirun (Open MPI) $VERSION"\necho "mpirun $*"\n' >"$work/versions/mpirun"
chmod +x "$work/versions/mpirun"
launch_args=$PACELINE_LAUNCH_ARGS
unset PACELINE_LAUNCH_ARGS
VERSION=4.1.4 SLURM_CPUS_PER_TASK=3 PATH=$work/versions:$PATH job 0 "Open MPI 4" "$config" "$work/four"
says "its options" '^mpirun --map-by slot:PE=3 --use-hwthread-cpus --bind-to hwthread -n 2 '
VERSION=5.0.11 SLURM_CPUS_PER_TASK=3 PATH=$work/versions:$PATH job 0 "Open MPI 5" "$config" "$work/five"
says "its options" '^mpirun --map-by slot:PE=3:HWTCPUS --bind-to hwthread -n 2 '
PACELINE_LAUNCH_ARGS=$launch_args

# Where there is no mpirun, srun.
mkdir "$work/bin"
for program in bash date rm mkdir cat hostname; do ln -s "$(command -v $program)" "$work/bin/$program"; done
printf '#!/usr/bin/env bash\necho "srun $*"\n' >"$work/bin/srun"
chmod +x "$work/bin/srun"
unset PACELINE_LAUNCH_ARGS
PATH=$work/bin job 0 "no mpirun" "$config" "$work/srun"
says "srun takes its place" '^srun --mpi=pmix --cpus-per-task=1 '
[ "$failures" = 0 ]
