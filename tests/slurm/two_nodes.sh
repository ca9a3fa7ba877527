#!/usr/bin/env bash
# two_nodes.sh PACELINE: the quickstart on two Slurm nodes, started by mpirun and by srun, gives the
# digest of plain decoding on one rank; so it does with a drafter rank, requests that move
# and ranks that change roles.
set -euo pipefail
export PACELINE_EXE=${1:?"the executable"}
cd "$(dirname "$0")/../.."
# shellcheck source-path=SCRIPTDIR
source tests/slurm/cluster.sh
cluster_start

run=(configs/quickstart.yaml --set prompts.samples=3)
plain "$cluster_dir/plain" "${run[@]}"

# on_two_nodes NAME ARG...
on_two_nodes() {
  local out=$cluster_dir/$PACELINE_LAUNCHER-$1
  echo "== $PACELINE_LAUNCHER, $1"
  submit "${run[0]}" "$out" "${run[@]:1}" "${@:2}"
  follow "$job"
  cat "$cluster_dir/job-$job.log"
  [[ $(state_of "$job") == COMPLETED ]] || fail "job $job did not complete"
  digest=$("$PACELINE_EXE" digest "$out")
  echo "digest on two nodes $digest, on one rank $plain_digest"
  [[ $digest == "$plain_digest" ]] || fail "the digests differ"
}

moving=(--set test.shuffle=[moves,roles] --set layout.drafters=1
  --set layout.verifier_tp=[2,1] --set speculation.policy=fixed
  --set 'speculation.drafters=[{method: ngram}, {method: model, path: configs/models/draft}]')
for PACELINE_LAUNCHER in mpirun srun; do
  export PACELINE_LAUNCHER
  if [[ $PACELINE_LAUNCHER == srun ]]; then unset PACELINE_LAUNCH_ARGS; fi
  on_two_nodes plainly
  on_two_nodes moving "${moving[@]}"
done
echo "== what Slurm recorded"
cat "$cluster_dir/jobs.txt"
