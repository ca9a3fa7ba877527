#!/usr/bin/env bash
# Installs what is missing, builds with tests and warnings as errors, runs the tests.
#
#   tests/run.sh [--label unit|mpi|sim|slurm]... [--asan]
#
# Without --label all tests run. --asan also builds with the address and undefined-behaviour
# sanitizers, and runs the unit tests and short runs of several ranks; CI=true in the environment
# implies it.
set -euo pipefail

labels=()
asan=${CI:-false}
while [[ $# -gt 0 ]]; do
  case "$1" in
    --label) labels+=("${2:?"--label needs unit, mpi, sim or slurm"}"); shift 2 ;;
    --asan) asan=true; shift ;;
    *) echo "usage: $0 [--label unit|mpi|sim|slurm]... [--asan]" >&2; exit 64 ;;
  esac
done
cd "$(dirname "$0")/.."

say() { printf '\n== %s (%dm%02ds)\n' "$*" $((SECONDS / 60)) $((SECONDS % 60)); }

if [[ $EUID -eq 0 ]]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

# Who builds once is helped by precompiled headers; a compiler's cache would read every file twice.
# The release build's product does without, as users' builds do.
precompiled_tests=() precompiled=()
if [[ ${CI:-false} == true ]]; then
  precompiled_tests=(-DPACELINE_PRECOMPILED=tests) precompiled=(-DPACELINE_PRECOMPILED=all)
  export CCACHE_DISABLE=1
fi

build() {  # PRESET [CMAKE OPTIONS...]
  cmake --preset "$1" -DBUILD_TESTING=ON "${@:2}" >/dev/null
  cmake --build --preset "$1"
}

failed=0
run_tests() {  # PRESET [CTEST OPTIONS...]
  local dir=build/$1
  # More than there are cores: tests of several ranks wait for one another, and for mpirun, two thirds of their time.
  ctest --test-dir "$dir" --no-tests=error --output-on-failure --timeout 1800 -j "$((2 * $(nproc) + 1))" "${@:2}" ||
    failed=1
  # CTest names the tests that were skipped but not why; their own output does.
  awk '/: Skipped$/ { where = $0; getline; print where ": " $0 } /^SKIP: /' \
    "$dir/Testing/Temporary/LastTest.log" | sort -u | sed "s#^#skipped: #; s#$PWD/##"
}

say "Packages"
jobscripts/install-deps.sh --tests

say "Build"
build release "${precompiled_tests[@]}" -DPACELINE_WERROR=ON

if [[ $asan == true ]]; then
  # Beside the tests, which leave the cores idle at times, and behind them, so that they notice
  # little of it. Sanitizers make compilers warn falsely.
  (renice -n 19 "$BASHPID"; build asan "${precompiled[@]}" -DPACELINE_WERROR=OFF) >build/asan.log 2>&1 &
  asan_build=$!
fi

say "Tests"
select=()
if [[ ${#labels[@]} -gt 0 ]]; then
  select=(-L "$(IFS='|'; echo "${labels[*]}")")
fi
run_tests release "${select[@]}"

if [[ $asan == true ]]; then
  say "Build with sanitizers, begun beside the tests"
  wait "$asan_build" || { cat build/asan.log; exit 1; }
  say "Tests with sanitizers"
  run_tests asan -L 'unit|sanitized'
fi

if [[ $failed -ne 0 ]]; then
  say "FAILED"
  exit 1
fi
say "Passed"
