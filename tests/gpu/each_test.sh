#!/usr/bin/env bash
# each_test.sh PROGRAM LIST AT_ONCE: runs the tests of a GoogleTest program that a file lists, a line each, in
# processes of their own, AT_ONCE at a time. Prints what those that fail print, and how many passed.
set -uo pipefail
program=$1 list=$2 at_once=$3
passed=$(mktemp)
trap 'rm -f "$passed"' EXIT
export program passed
# shellcheck disable=SC2016  # expands in the shells that xargs starts
xargs -a "$list" -P "$at_once" -I TEST bash -c '
  if said=$("$program" --gtest_filter="$1" 2>&1); then
    grep -E "chains.* differ" <<<"$said"
    echo "$1" >>"$passed"
  else
    printf "%s\n" "$said"
  fi' bash TEST
all=$(wc -l <"$list")
good=$(wc -l <"$passed")
echo "$good of $all tests passed, each in a process of its own"
[ "$good" = "$all" ]
