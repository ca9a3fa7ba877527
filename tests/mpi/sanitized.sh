#!/usr/bin/env bash
# sanitized.sh PACELINE: short runs of everything that moves, for an executable built with sanitizers: not a word of
# theirs, and one digest.
source "$(dirname "$0")/lib.sh"
# Two threads a rank, so that they can race. UCX's hooks and the sanitizers' are for the same calls.
small=(--set prompts.samples=1 --set sampling.max_tokens=40 --set engine.threads=2)
export UCX_MEM_EVENTS=n

# clean WHAT: no sanitizer had anything to say of the last run.
clean() {
  if grep -qE "Sanitizer|runtime error" "$1.log"; then
    fail "sanitizers found something in $2:"
    grep -E -A 30 "Sanitizer|runtime error" "$1.log" | head -n 60
  else
    ok "sanitizers are silent: $2"
  fi
}
rollout 1 "$work/reference" || { cat "$work/reference.log"; exit 1; }
clean "$work/reference" "1 rank"
reference=$(digest "$work/reference")
checked() {  # as run
  run "$@"
  clean "$work/run" "$1"
}
shuffle=(--set test.shuffle=[moves])
drafts=(--set layout.drafters=1 --set speculation.policy=fixed --set speculation.max_length=4
        --set "speculation.drafters=[{method: ngram}, {method: model, path: $root/configs/models/draft}]")
checked "moves by both ways, a drafter rank" 3 "${shuffle[@]}" --set schedule.move_kv=both "${drafts[@]}"
checked "moves of TP groups" 4 "${shuffle[@]}" --set layout.verifier_tp=2
checked "suffix and n-gram, moves by transfer" 2 "${shuffle[@]}" --set schedule.move_kv=transfer \
  --set "speculation.drafters=[{method: suffix}, {method: ngram}]"
checked "a draft model's memory comes and goes, TP 2" 2 --set test.shuffle=[memory] --set engine.kv_memory=2MiB \
  --set layout.verifier_tp=2 --set schedule.chunk=8 --set speculation.policy=fixed \
  --set "speculation.drafters=[{method: ngram}, {method: model, path: $root/configs/models/draft}]"
mkdir "$work/disk"
checked "chunks, KV that waits on disk, draft servers" 2 --set schedule.chunk=8 --set engine.kv_memory=1MiB \
  --set kv_pool.memory=1MiB --set kv_pool.disk="$work/disk" --set kv_pool.disk_size=16MiB \
  --set schedule.policy=no_context --set "speculation.drafters=[{method: suffix, servers: 2}]"
checked "a drafter rank that sends garbage" 2 "${drafts[@]}" --set "test.faults={drafters: garbage}"
finish
