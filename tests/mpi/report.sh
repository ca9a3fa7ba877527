#!/usr/bin/env bash
# report.sh PACELINE: what `paceline report` says of a run with drafts that was stopped and resumed equals what a script
# of its own finds in telemetry.h5; its HTML stands alone, its trace is JSON, and bad input is told of once.
source "$(dirname "$0")/lib.sh"
python=$(command -v /usr/bin/python3 || command -v python3)
if ! "$python" -c 'import h5py' 2>/dev/null; then echo "SKIP: no h5py to compare with"; exit 0; fi

# A group of two ranks, which communicate, and one that does not; resumed on the group alone.
small=(--set prompts.samples=4 --set sampling.max_tokens=256 --set engine.threads=1 --set engine.max_batch=8
  --set reward.method=match --set reward.rule=regex --set "reward.pattern='####\\s*(.*?)\\s*\$'"
  --set "speculation.drafters=[{method: model, path: $root/configs/models/draft}, {method: suffix}]")
start 3 "$work/run" --set "layout.verifier_tp=[2,1]"
if wait_for_finished "$work/run" 20 "$pid"; then kill -USR1 "$pid" || true; fi
code=0
wait "$pid" || code=$?
same "stopped" 75 "$code"
cp "$work/run.log" "$work/stopped.log"
"$paceline" report "$work/run" --html "$work/stopped.html" >"$work/out" 2>"$work/err" || fail "a stopped run: $(cat "$work/err")"
if grep -qE '^  [0-9]+ of 128 responses are finished: the run is still going, or was stopped$' "$work/out" && grep -q '^Rewards; ' "$work/out" &&
  grep -qE '^  [1-9][0-9]* tokens in ' "$work/out"; then ok "a stopped run is reported"; else fail "a stopped run: $(head -n 9 "$work/out")"; fi
rollout 2 "$work/run" --resume --set layout.verifier_tp=2 || fail "resumed: $(tail -n 3 "$work/run.log")"

"$paceline" report "$work/run" --html "$work/report.html" --trace "$work/trace.json" >"$work/out" || fail "report: exit code $?"
if "$python" "$here/report_figures.py" "$work/run/telemetry.h5" "$work/out" "$work/trace.json" "$(hostname)" >"$work/compared"; then
  ok "$(tail -n 1 "$work/compared")"
else
  fail "figures differ: $(cat "$work/compared")"
fi
if grep -qE 'src=|href=|<script|@import|url\(' "$work/report.html"; then fail "the HTML asks for other files"; else ok "the HTML stands alone"; fi
if "$python" -c "
import sys, xml.dom.minidom, re
text = open(sys.argv[1]).read()
pictures = re.findall(r'<svg.*?</svg>', text, re.S)
for picture in pictures: xml.dom.minidom.parseString(picture)
sys.exit(len(pictures) < 6)" "$work/report.html"; then ok "its pictures are whole"; else fail "its pictures are broken"; fi

# Rewards by the trajectories' own columns, and what is said of them as JSON.
"$paceline" report "$work/run" --json >"$work/json" || fail "as JSON: exit code $?"
if "$python" - "$work/json" "$work/run" "$work/out" >"$work/compared" 2>&1 <<'PY'
import itertools, json, math, re, sys
import h5py, numpy as np
run = json.load(open(sys.argv[1]))["runs"][0]
with h5py.File(sys.argv[2] + "/trajectories.h5") as file:
    rewards = file["trajectories/reward"][:].astype(float).reshape(-1, 4)
    lengths = np.diff(file["trajectories/offsets"][:])
said = run["rewards"]
pass2 = np.mean([any(pair) for row in rewards > 0.5 for pair in itertools.combinations(row, 2)])
equal = int((rewards.min(axis=1) == rewards.max(axis=1)).sum())
assert 0 < rewards.mean() < 1, "the test needs both"
for name, is_, should in [
    ("scored", said["scored"], 128), ("mean", said["mean"], rewards.mean()), ("std", said["std"], rewards.std()),
    ("pass@1", said["pass_at"]["1"]["rate"], rewards.mean()), ("pass@2", said["pass_at"]["2"]["rate"], pass2),
    ("pass@4", said["pass_at"]["4"]["rate"], rewards.max(axis=1).mean()), ("equal", said["prompts"]["all_equal"], equal),
    ("correlation", said["length_correlation"], np.corrcoef(lengths, rewards.ravel())[0, 1]),
    ("tokens", run["tokens"], lengths.sum()), ("lengths", sum(b["responses"] for b in said["by_length"]), 128),
]:
    assert math.isclose(is_, should, abs_tol=1e-9), (name, is_, should)
assert run["complete"] and run["responses"]["finished"] == run["responses"]["expected"] == 128
row = next(l for l in open(sys.argv[3]) if l.startswith("  " + sys.argv[2]))
assert re.split(r"\s{2,}", row.strip())[4] == f"{rewards.mean():.4f}", row
PY
then ok "rewards are those of the trajectories"; else fail "rewards: $(cat "$work/compared")"; fi
if grep -q 'Mean reward by response length' "$work/report.html"; then ok "reward against length is drawn"; else fail "no picture of rewards"; fi

# The log keeps what the user was told of both attempts, line by line and in order, as under a launcher without a bar.
log=$work/run/paceline.log
said() { sed -e '/^mpirun: /d' -e '/^-\{20,\}$/,/^-\{20,\}$/d' "$@"; }  # by paceline, not by the launcher
if diff <(grep -v -e '^== ' "$log") <(said "$work/stopped.log" "$work/run.log") >"$work/differs"; then
  ok "the log has all that was said"
else
  fail "the log is another: $(head -n 5 "$work/differs")"
fi
heads=$(sed -n 's/^== \(.*\)[0-9]\{4\}-[0-9][0-9]-[0-9][0-9] [0-9:]\{8\} UTC\(.*\)/\1\2/p' "$log")
same "the log's lines of attempts" "start 1 of this run, , 3 ranks
ended 
start 2 of this run, , 2 ranks
ended " "$heads"
for what in 'layout' 'asked to stop: stopping after the current step' 'resuming .*: start 2 of this run' '^total: .* tokens/s' \
  'trajectories.h5: .* trajectories'; do
  if grep -qE "$what" "$log"; then ok "the log has '$what'"; else fail "the log lacks '$what'"; fi
done
same "the digest takes no notice of the log" "$(digest "$work/run/trajectories.h5")" "$(digest "$work/run")"

# A directory with nothing but a log holds no run: one begins there.
mkdir "$work/logged"
printf 'an old line' >"$work/logged/paceline.log"
rollout 1 "$work/logged" --set sampling.max_tokens=8 || fail "a directory with a log alone: $(tail -n 2 "$work/logged.log")"
same "a log that was there stays" "an old line" "$(head -n 1 "$work/logged/paceline.log")"
same "and goes on" 1 "$(grep -c '^== start 1 of this run' "$work/logged/paceline.log")"

# A run's own last words are what a report says of it.
rollout 2 "$work/whole" --set sampling.max_tokens=60 || fail "a run in one attempt: $(tail -n 2 "$work/whole.log")"
same "tokens/s of the run and of its report" "$(sed -n 's/^total: .*: \([0-9.]* tokens.s\), .*/\1/p' "$work/whole.log")" \
  "$("$paceline" report "$work/whole" | sed -n 's/^ .* s: \([0-9.]* tokens.s\), .*/\1/p')"

# Several runs are compared.
"$paceline" report "$work/run" "$work/run/telemetry.h5" >"$work/two" || fail "two runs: exit code $?"
same "two runs: rows" 2 "$(awk '/^Runs/ { on = 1; next } on && !NF { exit } on && !/tokens\/s/ { ++rows } END { print rows + 0 }' <(sed '/^\//s/^/\n/' "$work/two"))"

# refuses WHAT CODE PATTERN [ARG...]
refuses() {
  local what=$1 wanted=$2 pattern=$3 code=0
  shift 3
  "$paceline" report "$@" >"$work/out" 2>"$work/err" || code=$?
  same "$what: exit code" "$wanted" "$code"
  if grep -qE "$pattern" "$work/err"; then ok "$what: said"; else fail "$what: $(cat "$work/err")"; fi
}
refuses "no run" 64 "$work/none: expected a run's directory or its telemetry.h5" "$work/none"
head -c 3000 "$work/run/telemetry.h5" >"$work/cut.h5"
refuses "a file cut short" 74 "cannot (open|read) .*cut.h5" "$work/cut.h5"
refuses "a trace of two runs" 64 "trace: expected one run, found 2" "$work/run" "$work/run" --trace "$work/t.json"
for named in "$work/run" "$work/run/telemetry.h5"; do
  refuses "the run's own telemetry" 64 "belongs to the run itself" "$named" --html "$work/run/telemetry.h5"
  refuses "its responses" 64 "belongs to the run itself" "$named" --trace "$work/run/trajectories.h5"
  refuses "its directory" 64 "belongs to the run itself" "$named" --html "$work/run/."
done
same "a run named from within has its rewards" 1 "$(cd "$work/run" && "$paceline" report telemetry.h5 | grep -c '^Rewards; ')"
refuses "a file that cannot be written" 74 "nowhere" "$work/run" --html "$work/nowhere/report.html"

finish
