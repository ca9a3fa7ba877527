#!/usr/bin/env bash
# links.sh TEST_SIM PACELINE: the simulated world links no MPI, UCX or kernels; the real program, in which all three are,
# shows that they would be seen.
set -euo pipefail

libraries() { ldd "$1" | grep -cE '^\s*lib(mpi|ucp|uct|ucs|open-(rte|pal))' || true; }
# Functions and data of its own, or that it wants: not what merely has a type of theirs in its name.
symbols() { nm -C "$1" | grep -cE '^ *[0-9a-f]* [A-Za-z] ((vtable|typeinfo|typeinfo name) for )?paceline::(kernels|fabric)::' || true; }

world="$(libraries "$1") libraries, $(symbols "$1") symbols"
program="$(libraries "$2") libraries, $(symbols "$2") symbols"
echo "of MPI, UCX, kernels and fabric: simulated world: $world; program: $program"
[ "$world" = "0 libraries, 0 symbols" ]
[[ ! " $program" =~ " 0 " ]]
