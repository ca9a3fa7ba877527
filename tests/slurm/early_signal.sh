#!/usr/bin/env bash
# early_signal.sh PACELINE: a signal to the job script while the launcher has no ranks yet, which it drops, still ends
# the job with 75, and nothing is generated. Plays Slurm's part itself: none is needed.
set -euo pipefail
paceline=$(realpath "$1")
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SLURM_JOB_ID=1 SLURM_NTASKS=2 SLURM_JOB_NODELIST=here PACELINE_EXE=$paceline PACELINE_LAUNCH_ARGS=--oversubscribe
if [ "$(id -u)" = 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi

# A launcher that takes its time, and tells when it has begun.
mkdir "$work/bin"
cat >"$work/bin/mpirun" <<LAUNCHER
#!/usr/bin/env bash
trap '' USR1
touch "$work/launched"
while [ ! -e "$work/signalled" ]; do sleep 0.05; done
exec $(command -v mpirun) "\$@"
LAUNCHER
chmod +x "$work/bin/mpirun"

PATH=$work/bin:$PATH bash "$root/jobscripts/rollout.sbatch" "$root/configs/quickstart.yaml" "$work/run" \
  --set sampling.max_tokens=20 >"$work/log" 2>&1 &
script=$!
until [ -e "$work/launched" ]; do sleep 0.05; done
kill -TERM "$script"
until grep -q "got TERM" "$work/log"; do sleep 0.05; done
touch "$work/signalled"
code=0; wait "$script" || code=$?
cat "$work/log"
[ "$code" = 75 ] || { echo "FAIL: the script ended with $code"; exit 1; }
[ ! -e "$work/run/trajectories.h5" ] || { echo "FAIL: the run went on to its end"; exit 1; }
[ -z "$(ls -A "$work/run")" ] || { echo "FAIL: something is left behind: $(ls -A "$work/run")"; exit 1; }
