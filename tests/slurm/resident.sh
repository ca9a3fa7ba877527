#!/usr/bin/env bash
# resident.sh PACELINE: one job on two nodes meets the requests of a training's steps, goes back to the queue in the midst
# of one, and ends when the folder is closed. The digest of each step is that of a run of its own on one rank.
set -euo pipefail
export PACELINE_EXE=${1:?"the executable"}
cd "$(dirname "$0")/../.."
# shellcheck source-path=SCRIPTDIR
source tests/slurm/cluster.sh
cluster_start

steps=$cluster_dir/steps
mkdir "$steps"
run=(configs/quickstart.yaml --set prompts.samples=2 --set sampling.ignore_eos=true --set engine.max_batch=4)
request() {  # STEP
  printf 'sampling: {seed: %s}\nmodel: {weight_version: %s}\n' "$1" "$1" >"$steps/.request"
  mv "$steps/.request" "$steps/step-$1.yaml"
}
await() {  # FILE
  for _ in {1..480}; do
    [[ ! -e $1 ]] || return 0
    sleep 0.25
  done
  cat "$cluster_dir/job-$job.log"
  fail "$1 does not come"
}
check_digest() {  # STEP
  plain "$cluster_dir/plain-$1" "${run[@]}" --set sampling.seed="$1" --set model.weight_version="$1"
  digest=$("$PACELINE_EXE" digest "$steps/step-$1")
  echo "digest of step $1 $digest, of a run of its own $plain_digest"
  [[ $digest == "$plain_digest" ]] || fail "the digests differ"
}

submit "${run[0]}" --watch "$steps" "${run[@]:1}"
request 1
await "$steps/step-1"

echo "== USR1 to the job script in the midst of a step, as Slurm sends it before the time limit"
request 2
await "$steps/step-2.part/shards"
scancel --signal=USR1 --batch "$job"
until [[ $(state_of "$job") == PENDING ]]; do sleep 0.2; done
[[ ! -e $steps/step-2 ]] || fail "step 2 was over before it could be interrupted"
await "$steps/step-2"
request 3
: >"$steps/stop"
follow "$job"
cat "$cluster_dir/job-$job.log"
[[ $(state_of "$job") == COMPLETED ]] || fail "job $job did not complete"
grep -q "paceline ended with 75" "$cluster_dir/job-$job.log" || fail "the first start did not end with 75"
for step in 1 2 3; do check_digest "$step"; done
