#!/usr/bin/env bash
# interrupted.sh PACELINE: a job that gets USR1 exits 75, goes back to the queue and resumes; then
# loses a rank to kill -9, is submitted again and resumes. Its digest is that of a run left alone.
set -euo pipefail
export PACELINE_EXE=${1:?"the executable"}
cd "$(dirname "$0")/../.."
# shellcheck source-path=SCRIPTDIR
source tests/slurm/cluster.sh
cluster_start

out=$cluster_dir/out
log=$cluster_dir/job-1.log
run=(configs/quickstart.yaml)
longer=(--set prompts.samples=16 --set sampling.ignore_eos=true)

await() {  # WHAT COMMAND...: until it succeeds
  local i
  for i in {1..120}; do
    if "${@:2}"; then return; fi
    sleep 0.5
  done
  fail "no $1 after $((i / 2)) s"
}
ranks() { pgrep -f "^$PACELINE_EXE rollout .*--output $out "; }
attempts() { find "$out/shards" -name 'trajectories-*' 2>/dev/null | sed 's/.*trajectories-\([0-9]*\)-.*/\1/' | sort -u | wc -l; }
started() { [[ $(attempts) -ge $1 ]]; }

echo "== USR1, as Slurm sends it before the time limit"
submit "${run[@]}" "$out" "${longer[@]}"
await "first start" started 1
sleep 4
scancel --signal=USR1 --batch "$job"
await "second start" started 2
grep -q "paceline ended with 75" "$log" || fail "the first start did not end with 75"

echo "== kill -9 of a rank"
sleep 4
kill -9 "$(ranks | head -n 1)"
follow "$job"
[[ $(state_of "$job") == FAILED ]] || fail "job $job should have failed"

echo "== the same line again"
submit "${run[@]}" "$out" "${longer[@]}"
follow "$job"
cat "$cluster_dir"/job-*.log
[[ $(state_of "$job") == COMPLETED ]] || fail "job $job did not complete"

echo "== the same run left alone"
"$PACELINE_EXE" rollout "${run[@]}" "${longer[@]}" --output "$cluster_dir/plain" 2>"$cluster_dir/plain.log" ||
  { cat "$cluster_dir/plain.log"; fail "the run left alone"; }
plain=$("$PACELINE_EXE" digest "$cluster_dir/plain")
digest=$("$PACELINE_EXE" digest "$out")
echo "digest of the interrupted run $digest, left alone $plain"
[[ $digest == "$plain" ]] || fail "the digests differ"
