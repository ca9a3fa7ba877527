#!/usr/bin/env bash
# draft_servers.sh PACELINE: one digest whatever draft servers there are, whatever becomes of requests and messages, and
# with servers that stand still; and siblings on other ranks are heard of.
source "$(dirname "$0")/lib.sh"
more=(--set prompts.samples=8)

rollout 1 "$work/reference" "${more[@]}" || { cat "$work/reference.log"; exit 1; }
reference=$(digest "$work/reference")

# above WHAT LEAST COUNT
above() {
  case $3 in
    skip) echo "SKIP: $1: h5py is not there" ;;
    *) if [ "$3" -gt "$2" ]; then ok "$1: $3"; else fail "$1: $3, expected more than $2"; fi ;;
  esac
}

with() { echo "speculation.drafters=[{method: suffix, servers: $1}${2:+, $2}]"; }  # SERVERS [DRAFTER]
suffix=(--set "$(with auto)" --set speculation.policy=fixed)
moved=(--set test.shuffle=[moves])
for servers in 0 2; do
  run "servers: $servers" 2 "${more[@]}" "${suffix[@]}" "${moved[@]}" --set "$(with $servers)"
  heard=$(summed draft_heard)
  if [ $servers = 0 ]; then same "tokens heard without servers" "0|skip" "$heard"; else above "tokens heard" 1000 "$heard"; fi
done
run "by themselves, one on the node" 4 "${more[@]}" "${suffix[@]}" "${moved[@]}"
if grep -q '1 draft server on rank 3: one on each node' "$work/run.log"; then ok "the banner says so"; else fail "the banner: $(head -n 20 "$work/run.log")"; fi
run "under goodput, TP 2 and 1" 4 "${more[@]}" "${suffix[@]}" "${moved[@]}" --set speculation.policy=goodput \
  --set 'layout.verifier_tp=[2,1,1]' --set "$(with 4)"

all=(--set "$(with 2 "{method: model, path: $root/configs/models/draft}")"
  --set speculation.policy=fixed --set layout.drafters=1 --set test.shuffle=[moves,roles,races])
run "moves, races, role changes, delays" 4 "${more[@]}" "${all[@]}" "${delays[@]}"
stalled=("${more[@]}" "${suffix[@]}" "${moved[@]}" --set "$(with 2)")
run "servers that stall" 2 "${stalled[@]}" --set "test.faults={draft_servers: stall}"

settings=("${more[@]}" "${suffix[@]}" "${moved[@]}" --set "$(with 1)")
cut_and_resume KILL "draft servers" 2 settings 2 settings
finish
