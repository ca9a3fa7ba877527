#!/usr/bin/env bash
# Every configuration of configs/simulated runs from an installed prefix as its comments print it, made small, and says what
# a rollout says: the responses of plain decoding, all of them, in a time that is one.
#
#   configurations.sh PACELINE BUILD
source "$(dirname "$0")/../mpi/lib.sh" "$1"
build=$(realpath "$2")

cmake --install "$build" --prefix "$work/prefix" >"$work/install.log" || { tail "$work/install.log"; exit 1; }
# From here on as a user who has the prefix alone.
PATH=$work/prefix/bin:$PATH
cd "$work/prefix/share/paceline"

small=(--set simulation.nodes=4 --set simulation.workload.prompts=4 --set sampling.max_tokens=2048)

# printed CONFIG: the command of its comments, on one line.
printed() { sed -n '/^#   paceline simulate/,/[^\\]$/s/^# *//p' "$1" | sed ':next; /\\$/ { N; s/\\\n//; b next }'; }

# simulates WHAT ROWS COMMAND [ARG...]: it ends well, with so many rows. Their digests, without repetition, are in $digests.
simulates() {
  local what=$1 rows=$2 code=0 seconds pace digest
  shift 2
  "$@" "${small[@]}" >"$work/out" 2>"$work/err" || code=$?
  digests=
  if [ "$code" != 0 ]; then fail "$what: exit code $code: $(tail -n 1 "$work/err")"; return; fi
  same "$what: rows" "$rows" "$(($(wc -l <"$work/out") - 1))"
  # A sweep has its values before the columns.
  digests=$(awk 'NR > 1 { print $NF }' "$work/out" | sort -u)
  while read -r seconds pace digest; do
    if awk -v s="$seconds" -v p="$pace" 'BEGIN { exit !(s > 0.1 && s < 600 && p > 100 && p < 1e6) }' && [[ $digest =~ ^[0-9a-f]{32}$ ]]
    then ok "$what: $seconds s, $pace tokens/s"; else fail "$what: $seconds s, $pace tokens/s, digest $digest"; fi
  done < <(awk 'NR > 1 { print $(NF - 7), $(NF - 6), $NF }' "$work/out")
}

for config in configs/simulated/*.yaml; do
  name=$(basename "$config" .yaml)
  read -ra command < <(printed "$config")
  same "$name: the command that it prints" "paceline simulate $config" "${command[*]:0:3}"
  rows=1
  if [[ "${command[*]}" =~ --sweep\ ([^ ]*) ]]; then rows=$(tr , '\n' <<<"${BASH_REMATCH[1]}" | wc -l); fi
  simulates "$name" "$rows" "${command[@]}"
  said=$digests
  simulates "$name, plain" 1 paceline simulate "$config" --set speculation.mode=plain --output "$work/$name"
  same "$name: the responses of plain decoding" "$digests" "$said"
  samples=$(sed -n 's/^prompts: {samples: \([0-9]*\)}$/\1/p' "$config")
  same "$name: responses" "$((4 * samples))" \
    "$(paceline report "$work/$name" 2>&1 | sed -n 's/^ *\([0-9]*\) responses finished.*/\1/p')"
done

# Weights of a vision part are on each of the 8 GPUs that a rank stands for: 699 M elements of 2 bytes.
weights() {
  paceline simulate configs/simulated/seer-qwen2-vl-72b.yaml "${small[@]}" --set model.path="$1" 2>&1 |
    sed -n 's/.*; weights \([0-9]*\),.*/\1/p'
}
sees=configs/simulated/models/Qwen2-VL-72B
mkdir "$work/text-only"
python3 -c "
import json, sys
config = json.load(open(sys.argv[1]))
del config['vision_config']
json.dump(config, open(sys.argv[2], 'w'))" $sees/config.json "$work/text-only/config.json"
same "weights of a vision part, MiB" $((8 * 699 * 1000 * 1000 * 2 / 1048576 / 100)) $((($(weights $sees) - $(weights "$work/text-only")) / 100))

# Costs may be a profile's in the place of the tables.
code=0
paceline simulate configs/simulated/nightjar.yaml --set simulation.gpu_tables=none "${small[@]}" >"$work/out" 2>"$work/err" || code=$?
same "without tables: exit code" 64 "$code"
same "without tables: what to set" 1 "$(grep -c 'no costs are known.*engine.profile.*gpu_tables' "$work/err")"

finish
