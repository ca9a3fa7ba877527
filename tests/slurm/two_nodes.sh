#!/usr/bin/env bash
# two_nodes.sh PACELINE: the quickstart on two Slurm nodes, started by mpirun and by srun, gives the
# digest of plain decoding on one rank.
set -euo pipefail
export PACELINE_EXE=${1:?"the executable"}
cd "$(dirname "$0")/../.."
# shellcheck source-path=SCRIPTDIR
source tests/slurm/cluster.sh
cluster_start

plain "$cluster_dir/plain" configs/quickstart.yaml

for PACELINE_LAUNCHER in mpirun srun; do
  export PACELINE_LAUNCHER
  echo "== $PACELINE_LAUNCHER"
  if [[ $PACELINE_LAUNCHER == srun ]]; then unset PACELINE_LAUNCH_ARGS; fi
  out=$cluster_dir/$PACELINE_LAUNCHER
  submit configs/quickstart.yaml "$out"
  follow "$job"
  cat "$cluster_dir/job-$job.log"
  [[ $(state_of "$job") == COMPLETED ]] || fail "job $job did not complete"
  digest=$("$PACELINE_EXE" digest "$out")
  echo "digest on two nodes $digest, on one rank $plain_digest"
  [[ $digest == "$plain_digest" ]] || fail "the digests differ"
done
echo "== what Slurm recorded"
cat "$cluster_dir/jobs.txt"
