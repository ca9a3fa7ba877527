#!/usr/bin/env bash
# run.sh [--quick]: correctness and speed on this machine's GPU, from a bundled tree (bundle.cmake in
# this folder says how to make one). Needs a GPU, its driver and a C library.
#
# Prints a table; logs are in OUT (default: a folder beside the tree). --quick leaves out random
# speculation settings and benchmarks. Exit code 1 when anything failed.
set -uo pipefail
quick=false
if [ "${1-}" = --quick ]; then quick=true; shift; fi
if [ $# -gt 0 ]; then echo "usage: $0 [--quick]" >&2; exit 64; fi
root=$(cd "$(dirname "$0")/../.." && pwd)
out=${OUT:-$root/gpu-results}
mkdir -p "$out"

export PACELINE_ROOT=$root PACELINE_TEST_BACKEND=cuda
export PATH=$root/bin:$PATH LD_LIBRARY_PATH=$root/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
if [ -d "$root/lib/openmpi" ]; then
  export OPAL_PREFIX=$root OPAL_BINDIR=$root/bin OPAL_LIBDIR=$root/lib OPAL_PKGLIBDIR=$root/lib/openmpi
  export OPAL_PKGDATADIR=$root/share/openmpi OPAL_SYSCONFDIR=$root/share/openmpi
  export PMIX_MCA_mca_base_component_path=$root/lib/pmix PMIX_MCA_pmix_mca_base_component_path=$root/lib/pmix
  export OMPI_MCA_mca_base_component_show_load_errors=0 PMIX_MCA_mca_base_component_show_load_errors=0
  export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader OMPI_MCA_plm=isolated PMIX_MCA_pcompress_base_silence_warning=1
fi
if [ "$(id -u)" = 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi

rows=()
failed=0
# step NAME COMMAND...: its result and the last line it printed that says something of its size.
step() {
  local name=$1 log=$out/$1.log start=$SECONDS result=passed
  shift
  printf 'running %s\n' "$name" >&2
  "$@" >"$log" 2>&1 || { result=FAILED; failed=1; }
  local said
  said=$(grep -E '^\[  PASSED|checks passed|^\[  FAILED.*tests?,|tokens/s|passed on' "$log" | tail -n 1)
  rows+=("$(printf '%-22s %-7s %5ds  %s' "$name" "$result" $((SECONDS - start)) "$said")")
  if [ "$result" = FAILED ]; then tail -n 15 "$log" >&2; fi
}

# A filter that matches nothing would pass.
gpu_tests() {
  "$1" --gtest_list_tests --gtest_filter="$2" | grep -q '^  ' || { echo "no tests match $2"; return 1; }
  "$1" --gtest_filter="$2"
}

check() { paceline check "$root/configs/quickstart.yaml" --set engine.backend=cuda; }

step device check
if [ $failed = 0 ]; then
  step operations gpu_tests test_kernels '*cuda*'
  if $quick; then step products bench_linear --quick; else step products bench_linear; fi
  step parity gpu_tests test_model '*cuda*'
  step digests "$root/tests/mpi/exactness.sh" "$root/bin/paceline"
  if $quick; then draws=0; else draws=12; fi
  step speculation "$root/tests/mpi/speculation.sh" "$root/bin/paceline" $draws
  if ! $quick; then
    step products bench_linear --quick
    step decoding bench_engine "$root/configs/models/target" --backend cuda
  fi
fi

printf '\n%-22s %-7s %6s  %s\n' step result time 'in its own words'
printf '%s\n' "${rows[@]}"
grep -hE '^  .*backend' "$out/device.log" || true
exit $failed
