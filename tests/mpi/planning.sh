#!/usr/bin/env bash
# Which ranks draft, by what they cost: the plan and its settings, from profile over check to a run.
source "$(dirname "$0")/lib.sh"

model="{method: model, path: $root/configs/models/draft}"
drafters=(--set "speculation.drafters=[{method: ngram}, $model]")
costs=$work/costs.yaml

rollout 1 "$work/plain" && reference=$(digest "$work/plain")

# says WHAT TEXT ARG...: `check` with these arguments prints the text.
says() {
  local what=$1 text=$2
  shift 2
  local output
  output=$("$paceline" check "$config" --output "$work/none" "${backend[@]}" "${small[@]}" "${drafters[@]}" "$@" 2>&1) ||
    { fail "$what: $output"; return; }
  if [[ $output == *"$text"* ]]; then ok "$what"; else fail "$what: '$text' is not in: $output"; fi
}

# refuses WHAT TEXT ARG...: it ends with 64 and says the text.
refuses() {
  local what=$1 text=$2 code=0
  shift 2
  local output
  output=$("$paceline" check "$config" --output "$work/none" "${backend[@]}" "${small[@]}" "${drafters[@]}" "$@" 2>&1) || code=$?
  if [[ $code == 64 && $output == *"$text"* ]]; then ok "$what"; else fail "$what: exit code $code, $output"; fi
}

says "without a profile nobody drafts for others" "0 drafter ranks: verifiers draft for themselves: no costs are known; measure them with \`paceline profile\`" --ranks 4
refuses "decoupled needs a number or costs" "speculation.mode: decoupled needs drafter ranks; set layout.drafters" --set speculation.mode=decoupled --ranks 4
refuses "modes and ranks that draft must agree" "layout.drafters: expected auto or 0 where speculation.mode is coupled, found 1" --set speculation.mode=coupled --set layout.drafters=1 --ranks 4

# Of 64 requests: trees of 32 KiB, 220 tokens of 64 bytes and 8 of the text; and what the responses' trees may take.
says "texts that drafters look up are counted" "texts for lookup on each verifier: up to 4.0 MiB of host memory" \
  --set "speculation.drafters=[{method: suffix, max_memory: 1MiB}]"
# Of 32 requests, for there are no more.
says "no more texts than there are responses" "texts for lookup on each verifier: up to 2.5 MiB of host memory" \
  --set "speculation.drafters=[{method: suffix, max_memory: 1MiB}]" --set prompts.samples=1 --set engine.max_batch=4096
says "a log is on its server alone" "responses that each draft server holds: up to 1.0 MiB of host memory" --ranks 2 \
  --set "speculation.drafters=[{method: suffix, max_memory: 1MiB}]" --set prompts.samples=2000
# Of 1.8 GiB a rank, where the trees may take 2 GiB.
says "a rank with less memory than lookups may take" "from engine.kv_memory" --ranks 12 --host-memory 22GiB \
  --set "speculation.drafters=[{method: suffix}]" --set prompts.samples=2000 --set engine.kv_memory=256MiB

says "nodes without a number of ranks have one each" "node 7 (planned): rank 7" --nodes 8

# Under a launcher the job's own ranks are planned for.
code=0
"$here/launch.sh" 2 "$paceline" check "$config" --output "$work/none" --ranks 4 >"$work/check.log" 2>&1 || code=$?
same "a number of ranks is for check on one" 64 $code
grep -q "check: --ranks, --nodes" "$work/check.log" && ok "and it says so" || fail "it says: $(cat "$work/check.log")"

# A profile is of one degree.
code=0
"$here/launch.sh" 3 "$paceline" profile "$config" --output "$work/mixed.yaml" --seconds 1 "${backend[@]}" "${small[@]}" \
  --set layout.verifier_tp=[2,1] >"$work/mixed.log" 2>&1 || code=$?
same "a profile of several degrees is refused" 64 $code
grep -q "layout.verifier_tp: 2, 1 are several degrees" "$work/mixed.log" && ok "and says why" || fail "it says: $(cat "$work/mixed.log")"

# The configuration may ask for drafter ranks, and name the profile that is to be made.
if "$here/launch.sh" 2 "$paceline" profile "$config" --output "$costs" --seconds 1 "${backend[@]}" "${small[@]}" "${drafters[@]}" \
  --set layout.drafters=1 --set engine.profile="$costs" >"$work/profile.log" 2>&1; then
  ok "profile measures all drafters"
else
  fail "profile: $(tail -n 3 "$work/profile.log")"
fi
# ladder: of what is on standard input.
ladder() { awk '/^draft ladder/ {on = 1; print; next} on && /^ +[0-9]/ {print; next} {on = 0}'; }
shown=$(ladder <"$work/profile.log")
if [ "$(wc -l <<<"$shown")" -gt 20 ]; then ok "profile prints the draft ladder"; else fail "no ladder: $(tail -n 5 "$work/profile.log")"; fi
same "and it is that of runs with the profile" "$shown" "$("$paceline" check "$config" --ranks 2 --output "$work/none" "${backend[@]}" \
  "${small[@]}" "${drafters[@]}" --set layout.drafters=0 --set engine.profile="$costs" | ladder)"

# A drafter's name may come to mean another model, whose costs these are not.
sed -e 's|model:.*/draft"|model:along"|' -e '/    model:/s/3 layers/4 layers/' "$costs" >"$work/along.yaml"
"$paceline" check "$config" --ranks 2 --output "$work/none" "${backend[@]}" "${small[@]}" --set engine.profile="$work/along.yaml" \
  --set "speculation.drafters=[{method: model, path: $root/configs/models/draft/, name: along}]" >"$work/along.log" 2>&1 || true
if [ "$(grep -c 'drafter model:along was measured with the model qwen2 4 layers.*; this run has qwen2 3 layers' "$work/along.log")" -gt 0 ]; then
  ok "a drafter of another shape"; else fail "a drafter of another shape: $(cat "$work/along.log")"; fi
code=0
at_once rollout 1 "$work/none" --set "speculation.drafters=[{method: model, path: $root/configs/models/draft}, {method: model, path: $root/configs/../configs/models/draft/}]" || code=$?
same "a draft model twice, by another path" 64 $code

# A simulation takes them for those of the same model, and of no other. Its prompts are the configuration's.
simulated=$("$paceline" simulate "$config" --output "$work/simulated" "${backend[@]}" "${small[@]}" "${drafters[@]}" --set engine.profile="$costs" \
  2>&1) || true
if [[ $simulated == *"96 responses to 32 prompts"*"digest"* ]]; then
  ok "a simulation with the profile of the same model"
else
  fail "a simulation with the profile: $simulated"
fi
code=0
"$paceline" simulate "$config" --output "$work/simulated" "${small[@]}" --set model.path="$root/configs/models/draft" \
  --set engine.profile="$costs" >"$work/other.log" 2>&1 || code=$?
same "and of another model it is refused" 64 $code
grep -q "does not apply to this simulation: it was measured with the model: qwen2 6 layers.*; this simulation has qwen2 3 layers" "$work/other.log" &&
  ok "which says what differs" || fail "it says: $(cat "$work/other.log")"

# Steps that cost the same whatever is in them, drafts and messages that cost little: made up, so that the answer is known.
# Attention costs nothing: how far it was measured depends on the machine, and further positions would cost by that.
python3 - "$costs" <<'PYTHON'
import sys
path = sys.argv[1]
lines, step, flat = [], None, None
for line in open(path):
    key = line.strip()
    if key.startswith(("decode:", "prefill:")): step = 0.01
    elif key.startswith(("first:", "round:", "catch_up:")): step = 0.0004
    elif key.startswith("points:"): flat = step
    elif key.startswith("attention:"): flat = 0
    made_up = {"drafted_position": 0, "latency": 1e-5, "bandwidth": 1e9}.get(key.split(":")[0])
    if made_up is not None: line = line.split(":")[0] + f": {made_up}\n"
    if key.startswith("- [") : line = line.split(",")[0] + f", {flat}]\n"
    lines.append(line)
open(path, "w").writelines(lines)
PYTHON
profile=(--set engine.profile="$costs")
says "the plans are printed, with what asks for them" "--set speculation.mode=decoupled --set layout.drafters=1 --set speculation.window=" "${profile[@]}" --ranks 4
says "what is not known is assumed" "0.60 of its draft tokens accepted, an assumption; " "${profile[@]}" --ranks 4
says "a drafter rank drafts by the model first, though n-grams cost as little" "drafts by model:" "${profile[@]}" --ranks 4 \
  --set speculation.mode=decoupled --set layout.drafters=1
says "on one rank there is none to spare" "0 drafter ranks: " "${profile[@]}" --ranks 1
refuses "nor can there be" "needs a rank that drafts beside the verifier groups, but the job has 1 rank" "${profile[@]}" --set speculation.mode=decoupled --ranks 1

# What became of a run's drafts is where the next one begins.
history=${costs%.yaml}.drafts.yaml
fixed=(--set speculation.policy=fixed)
# of METHOD KEY: what the history says of it; nothing: no such method.
of() { awk -v method="$1" -v key="$2:" '/method:/ {here = index($0, method) > 0} here && $1 == key {print $2}' "$history"; }
# more WHAT THAN NUMBER: NUMBER is larger.
more() { if [ "${3:-0}" -gt "$2" ]; then ok "$1: $3"; else fail "$1: ${3:-nothing}, which is not above $2"; fi; }

rollout 2 "$work/off" "${drafters[@]}" "${profile[@]}" "${fixed[@]}" --set speculation.keep_history=false
if [ -e "$history" ]; then fail "keep_history: false wrote $history"; else ok "keep_history: false keeps none"; fi
run "coupled, without a history" 2 "${drafters[@]}" "${profile[@]}" "${fixed[@]}" --set speculation.mode=coupled
more "model tokens that were tried" 1000 "$(of model: tried)"
more "n-gram tokens that were tried" 0 "$(of ngram tried)"
more "of a hundred model tokens were accepted" 80 $((100 * $(of model: accepted) / $(of model: tried)))
says "the next run begins with these rates" "of its draft tokens accepted, as in earlier runs" "${profile[@]}" --ranks 4
before=$(of model: tried)
run "decoupled, with it" 2 "${drafters[@]}" "${profile[@]}" "${fixed[@]}" --set speculation.mode=decoupled
grep -q drafter-ranks "$history" && fail "drafter ranks are no method" || ok "what drafter ranks draft counts by method"
more "model tokens with those of the drafter rank" "$before" "$(of model: tried)"
before=$(cat "$history")
run "plain" 2 "${drafters[@]}" "${profile[@]}" --set speculation.mode=plain
same "plain decoding leaves the history as it is" "$before" "$(cat "$history")"

# A stop keeps what was seen by then, and the resumed run adds to it.
rm "$history"
code=0
start 2 "$work/stopped" "${drafters[@]}" "${profile[@]}" "${fixed[@]}" --set engine.max_batch=2
if wait_for_finished "$work/stopped" 5 "$pid"; then kill -USR1 "$pid" || true; fi
wait "$pid" || code=$?
same "a run is stopped" 75 $code
before=$(of model: tried)
more "and keeps what it has seen" 100 "$before"
rollout 1 "$work/stopped" --resume "${drafters[@]}" "${profile[@]}" "${fixed[@]}"
same "it goes on" "$reference" "$(digest "$work/stopped")"
more "and adds the rest" "$before" "$(of model: tried)"
rm "$history"

# Where the history cannot be written the run is none the worse.
mkdir "$work/gone" && cp "$costs" "$work/gone/costs.yaml"
start 2 "$work/unkept" "${drafters[@]}" "${fixed[@]}" --set engine.profile="$work/gone/costs.yaml" --set engine.max_batch=2
wait_for_finished "$work/unkept" 1 "$pid" && rm -r "$work/gone"
code=0
wait "$pid" || code=$?
same "a run that cannot keep its history ends well" 0 $code
grep -q "warning: the acceptance of drafts is not kept for later runs: $work/gone/costs.drafts.yaml: cannot write" "$work/unkept.log" &&
  ok "and says so" || fail "it says: $(tail -n 5 "$work/unkept.log")"

# Drafts that are nearly always right are worth a rank. ${costs%.yaml}.drafts.yaml is the history beside the profile.
cat >"${costs%.yaml}.drafts.yaml" <<YAML
drafts:
  - {method: "model:$root/configs/models/draft", tried: 100000, accepted: 99500}
  - {method: ngram, tried: 100000, accepted: 1000}
YAML
says "what drafter ranks ask first is what the plan is for" "drafts by model:$root/configs/models/draft, ngram:" "${profile[@]}" --set layout.drafters=1 --ranks 4
says "a verifier asks what costs nothing first" "drafts by ngram, model:$root/configs/models/draft:" "${profile[@]}" --set layout.drafters=0 --ranks 4
says "the history of drafts counts" "0.99 of its draft tokens accepted, as in earlier runs" "${profile[@]}" --ranks 4
says "auto takes drafter ranks where they pay" "tokens/s predicted (decoupled, " "${profile[@]}" --ranks 4
says "and the window from the plan" "drafter ranks send 8 tokens at a time" "${profile[@]}" --ranks 4
says "a window that is asked for is among the plans" "*  " "${profile[@]}" --set speculation.window=3 --set layout.drafters=2 --ranks 4
says "a list of degrees leaves no rank to draft where it takes all" "0 drafter ranks: " "${profile[@]}" --set layout.verifier_tp=[1,1,1,1] --ranks 4
says "and as many as it leaves" "rank 3 drafter" "${profile[@]}" --set layout.verifier_tp=[1,1,1] --set speculation.mode=decoupled --ranks 4
says "of several degrees none is planned" "0 drafter ranks: verifiers draft for themselves: layout.verifier_tp names groups of degrees 1 and 2" "${profile[@]}" --set layout.verifier_tp=[2,1,1] --ranks 4
says "for which the profile does not hold" "a run measures its costs anew, because $costs (engine.profile) does not apply to this run: it was measured with tensor-parallel degree: 1; this run has 1, 2" "${profile[@]}" --set layout.verifier_tp=[2,1,1] --ranks 4
refuses "decoupled without a rank to spare" "has 4 ranks for 4 groups (layout.verifier_tp)" "${profile[@]}" --set layout.verifier_tp=[1,1,1,1] --set speculation.mode=decoupled --ranks 4
says "coupled keeps them out" "0 drafter ranks: speculation.mode is coupled" "${profile[@]}" --set speculation.mode=coupled --ranks 4
says "plain drafts nothing" "0 drafter ranks: there are no drafters" "${profile[@]}" --set speculation.mode=plain --ranks 4

run "auto, which decouples" 4 "${drafters[@]}" "${profile[@]}" "${fixed[@]}"
grep -q "tokens/s predicted (decoupled, " "$work/run.log" && ok "it did" || fail "it did not: $(head -n 20 "$work/run.log")"
run "coupled" 2 "${drafters[@]}" "${profile[@]}" "${fixed[@]}" --set speculation.mode=coupled
run "decoupled" 2 "${drafters[@]}" "${profile[@]}" "${fixed[@]}" --set speculation.mode=decoupled
run "plain" 2 "${drafters[@]}" "${fixed[@]}" --set speculation.mode=plain

run "goodput, requests and roles at random" 4 "${drafters[@]}" "${profile[@]}" --set layout.drafters=2 --set test.shuffle=[moves,roles]

echo "drafts: [{method: ngram, tried: 1, accepted: 2}]" >"${costs%.yaml}.drafts.yaml"
refuses "a history that makes no sense" "costs.drafts.yaml:1:46: drafts.accepted: expected at most what was tried (1), found '2'" "${profile[@]}"

finish
