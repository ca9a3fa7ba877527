#!/usr/bin/env bash
# launch.sh RANKS PROGRAM [ARG...]: runs a program on so many ranks of this machine, however few its cores.
set -euo pipefail
ranks=$1
shift
if [ "$(id -u)" = 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# Containers often forbid the single-copy transport; without it Open MPI only warns.
export OMPI_MCA_btl_vader_single_copy_mechanism=none
here=$(dirname "$(realpath "$0")")
export TSAN_OPTIONS="suppressions=$here/tsan.supp ${TSAN_OPTIONS-}"
# Frames of libraries without frame pointers are needed to tell whose a leak is.
export ASAN_OPTIONS="fast_unwind_on_malloc=0 ${ASAN_OPTIONS-}"
export LSAN_OPTIONS="suppressions=$here/lsan.supp:print_suppressions=0 ${LSAN_OPTIONS-}"
exec mpirun --oversubscribe -n "$ranks" "$@"
