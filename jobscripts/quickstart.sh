#!/usr/bin/env bash
# From a bare Debian 12 machine to a finished rollout: installs what is missing, builds, runs
# configs/quickstart.yaml (a small model that comes with the repository), shows what was written.
#
#   jobscripts/quickstart.sh [--ranks N] [--output DIR]
#
# Safe to repeat: without --output each run replaces the one before in out/quickstart.
set -euo pipefail

ranks=4
output=
while [[ $# -gt 0 ]]; do
  case "$1" in
    --ranks) ranks=${2:?"--ranks needs a number"}; shift 2 ;;
    --output) output=$(realpath -m "${2:?"--output needs a directory"}"); shift 2 ;;
    *) echo "usage: $0 [--ranks N] [--output DIR]" >&2; exit 64 ;;
  esac
done
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }

if [[ -z $output ]]; then
  output=$PWD/out/quickstart
  rm -rf "$output"
elif [[ -e $output/run.json ]]; then
  echo "quickstart: $output holds a run already; name another directory" >&2
  exit 64
fi

say "Packages"
jobscripts/install-deps.sh
echo "all present"

say "Build"
cmake --preset release >/dev/null
cmake --build --preset release --target paceline paceline_described  # what `cmake --install` takes

say "Rollout on $ranks ranks"
if [[ $EUID -eq 0 ]]; then
  # Open MPI refuses to start as root unless told twice; in a container there is no one else.
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
paceline=build/release/app/paceline
mpirun -n "$ranks" --oversubscribe --bind-to none \
  "$paceline" rollout configs/quickstart.yaml --output "$output"

say "Digest (the same on any number of ranks)"
"$paceline" digest "$output"

say "What was written to $output"
python=python3
"$python" -c 'import h5py' 2>/dev/null || python=/usr/bin/python3  # another Python comes first in PATH
"$python" io/python/paceline_reader.py "$output"
