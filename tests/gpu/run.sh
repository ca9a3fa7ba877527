#!/usr/bin/env bash
# run.sh [PART]...: correctness and speed on this machine's GPU, from a bundled tree (bundle.cmake in
# this folder says how to make one). Needs a GPU, its driver and a C library.
#
#   correctness   operations against float64, one digest over layouts, parity with transformers
#   products      every way to compute each matrix product; the price of exactness against cuBLAS
#   decoding      whole decoding, verification and prefill of Qwen2.5 shapes
#   speculation   a 7B shape with a draft of its first layer (SCALE: see tests/bench/README.md)
#   pytorch       the same shape by PyTorch and transformers, where python3 has them
#   drafts        one digest over drafters, their lengths and trees
#   sanitizer     the operations under compute-sanitizer, where there is one
#
# All of them in this order by default, what matters most first; each takes ten minutes at most, and
# every step of it has a limit of its own. Prints the tables of the benchmarks, then one of all steps;
# logs are in OUT (default: a folder beside the tree). Exit code 1 when anything failed.
# shellcheck disable=SC2317  # parts are called by name
set -uo pipefail
all=(correctness products decoding speculation pytorch drafts sanitizer)
parts=("$@")
if [ $# = 0 ]; then parts=("${all[@]}"); fi
for part in "${parts[@]}"; do
  case " ${all[*]} " in
    *" $part "*) ;;
    *) echo "usage: $0 [$(IFS='|'; echo "${all[*]}")]..." >&2; exit 64 ;;
  esac
done
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

# cuBLAS is not bundled (half a gigabyte): that of a toolkit, or of PyTorch.
has_cublas=false
for folder in /usr/local/cuda/lib64 \
  "$(env -u LD_LIBRARY_PATH python3 -c 'import nvidia.cu13 as n; print(n.__path__[0] + "/lib")' 2>/dev/null)"; do
  if [ -e "$folder/libcublas.so.13" ]; then
    has_cublas=true
    LD_LIBRARY_PATH+=:$folder
    break
  fi
done

rows=()
tables=()
failed=0
row() { rows+=("$(printf '%-22s %-7s %5ds  %s' "$@")"); }
# step NAME LIMIT COMMAND...: its result, and the last line it printed that says something of its size.
step() {
  local name=$1 limit=$2 log=$out/$1.log start=$SECONDS result=passed code=0 said
  shift 2
  printf 'running %s\n' "$name" >&2
  timeout --kill-after=10 "$limit" "$@" >"$log" 2>&1 || { code=$?; result=FAILED; failed=1; }
  said=$(grep -E '^\[  PASSED|checks passed|tests passed|^\[  FAILED.*tests?,|passed on|^=+ .*SUMMARY' "$log" | tail -n 1)
  if [ $code = 124 ]; then said="stopped after $limit s"; fi
  row "$name" "$result" $((SECONDS - start)) "$said"
  if [ "$result" = FAILED ]; then tail -n 15 "$log" >&2; fi
}
# bench NAME LIMIT COMMAND...: the same, and all that it printed comes after the table.
bench() {
  step "$@"
  tables+=("$1")
}

# gpu_tests NAME LIMIT PROGRAM FILTER: each test in a process of its own, several at a time, so that a fault of one
# leaves the others their device. A filter that matches nothing would pass.
gpu_tests() {
  local list=$out/$1.tests at_once
  at_once=$(($(nproc) < 14 ? $(nproc) : 14))
  "$3" --gtest_list_tests --gtest_filter="$4" | awk '/^[^ ]/ { suite = $1 } /^  / { print suite $1 }' >"$list"
  if [ -s "$list" ]; then
    step "$1" "$2" "$root/tests/gpu/each_test.sh" "$3" "$list" "$at_once"
  else
    echo "no tests match $4" >"$out/$1.log"
    row "$1" FAILED 0 "no tests match $4"
    failed=1
  fi
}

shape() { echo "$root/tests/bench/shapes/qwen2.5-$1"; }

correctness() {
  gpu_tests tensor-cores 30 test_tensor_cores '*'
  tables+=(tensor-cores)  # it also says what it found
  gpu_tests operations 200 test_kernels '*cuda*'
  step digests 240 "$root/tests/mpi/exactness.sh" "$root/bin/paceline"
  gpu_tests parity 60 test_model '*cuda*'
}

drafts() {
  step drafts 560 "$root/tests/mpi/speculation.sh" "$root/bin/paceline" 12
}

# The longest tests only repeat what others do. The sanitizer wants the system's libraries; programs
# find theirs by themselves.
sanitizer() {
  local tool program filter='*cuda*:-*Draws*:*KeptSet*'
  program=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer)
  if [ -z "$program" ]; then row sanitizer skipped 0 "no compute-sanitizer"; return; fi
  for tool in memcheck racecheck; do
    step "$tool" 260 env -u LD_LIBRARY_PATH "$program" --tool "$tool" --error-exitcode 1 \
      "$root/bin/test_kernels" --gtest_filter="$filter"
  done
}

products() {
  step plans 100 bench_linear --quick
  if $has_cublas; then
    bench price 140 bench_price "$(shape 0.5b)" "$(shape 7b)" "$(shape 32b)"
  else
    row price skipped 0 "no libcublas.so.13"
  fi
  bench plans-7b 120 bench_linear --model 7B
}

decoding() {
  bench decoding-7b 110 bench_engine "$(shape 7b)" --backend cuda
  bench decoding-32b 200 bench_engine "$(shape 32b)" --backend cuda
  bench decoding-0.5b 80 bench_engine "$(shape 0.5b)" --backend cuda
  bench decoding-7b-context 150 bench_engine "$(shape 7b)" --backend cuda --context 1024
}

speculation() {
  bench speculation 550 bench_speculation --backend cuda --target "$(shape 7b)" --layers-draft 1 \
    --scale "${SCALE:-0.25}" --threads "$(nproc)" --batches 1,2,4,8,16,32,64,128,256 --seconds 1.5
}

pytorch() {
  if ! env -u LD_LIBRARY_PATH python3 -c 'import torch, transformers' 2>/dev/null; then
    row pytorch skipped 0 "python3 has no torch and transformers"
    return
  fi
  bench pytorch-ours 110 bench_engine "$(shape 7b)" --backend cuda
  bench pytorch 430 env -u LD_LIBRARY_PATH python3 -B "$root/tests/gpu/compare_transformers.py" \
    "$(shape 7b)" --seconds 390
}

step device 30 paceline check "$root/configs/quickstart.yaml" --set engine.backend=cuda
if [ $failed = 0 ]; then
  for part in "${parts[@]}"; do "$part"; done
fi

for name in "${tables[@]}"; do
  printf '\n== %s\n' "$name"
  cat "$out/$name.log"
done
{
  printf '\n%-22s %-7s %6s  %s\n' step result time 'in its own words'
  printf '%s\n' "${rows[@]}"
  grep -hE '^  .*backend' "$out/device.log" || true
} | tee "$out/summary.log"
exit $failed
