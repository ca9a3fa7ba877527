#!/usr/bin/env bash
# interrupted.sh PACELINE: a job that gets USR1 exits 75, goes back to the queue and resumes; then
# loses a rank to kill -9, and rank 0 to a node that stands still, is submitted again and resumes. Its
# digest is that of a run left alone.
set -euo pipefail
export PACELINE_EXE=${1:?"the executable"}
cd "$(dirname "$0")/../.."
# shellcheck source-path=SCRIPTDIR
source tests/slurm/cluster.sh
cluster_start

out=$cluster_dir/out
# Every response of full length and few at a time, so that some are done and some are not.
run=(configs/quickstart.yaml --set prompts.samples=3 --set sampling.ignore_eos=true --set engine.max_batch=4)

# Responses on disk, as a reader of the run in progress sees them.
finished() {
  { "$PACELINE_EXE" digest "$out" 2>&1 >/dev/null || true; } |
    sed -n 's/.*: \([0-9]*\) of [0-9]* trajectories.*/\1/p'
}
await_more_than() {  # COUNT
  local i count
  for i in {1..240}; do
    count=$(finished)
    if [[ ${count:-0} -gt $1 ]]; then
      echo "$count responses finished"
      return
    fi
    [[ ! -e $out/trajectories.h5 ]] || fail "the run was over before it could be interrupted"
    sleep 0.5
  done
  fail "not more than $1 responses after $((i / 2)) s"
}
ranks() { pgrep -f "^$PACELINE_EXE rollout .*--output $out "; }

echo "== USR1 to the job script, as Slurm sends it before the time limit"
submit "${run[0]}" "$out" "${run[@]:1}"
await_more_than 0
scancel --signal=USR1 --batch "$job"
until [[ $(state_of "$job") == PENDING ]]; do sleep 0.2; done
scontrol show job "$job" | grep -E 'JobState|Restarts|EligibleTime'
before=$(finished)
echo "in the queue again, with $before responses finished"
grep -q "paceline ended with 75" "$cluster_dir/job-$job.log" || fail "the first start did not end with 75"
await_more_than "$before"

echo "== kill -9 of a rank"
kill -9 "$(ranks | head -n 1)"
follow "$job"
[[ $(state_of "$job") == FAILED ]] || fail "job $job should have failed"

echo "== SIGSTOP of rank 0"
before=$(finished)
submit "${run[0]}" "$out" "${run[@]:1}" --set limits.stall=3
await_more_than "$before"
for rank in $(ranks); do
  if grep -qzx "PMIX_RANK=0" "/proc/$rank/environ"; then kill -STOP "$rank"; fi
done
follow "$job"
[[ $(state_of "$job") == FAILED ]] || fail "job $job should have failed"
grep "rank 0, which leads the job, has not been heard from" "$cluster_dir/job-$job.log" || fail "nobody missed rank 0"
grep "paceline ended with 70" "$cluster_dir/job-$job.log" || fail "it did not end with 70"
[[ -z $(ranks) ]] || fail "rank 0 is still there"

echo "== the same line again"
submit "${run[0]}" "$out" "${run[@]:1}"
follow "$job"
cat "$cluster_dir"/job-*.log
[[ $(state_of "$job") == COMPLETED ]] || fail "job $job did not complete"

echo "== the same run left alone"
plain "$cluster_dir/plain" "${run[@]}"
digest=$("$PACELINE_EXE" digest "$out")
echo "digest of the interrupted run $digest, left alone $plain_digest"
[[ $digest == "$plain_digest" ]] || fail "the digests differ"
