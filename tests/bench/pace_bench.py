#!/usr/bin/env python3
"""How far a step takes a request by the model that plans, and in runs: pace_bench.py PACELINE [OPTION...].

Two ranks of one thread: coupled drafts of fixed lengths on both, and one verifier with the other rank as its drafter,
with windows. --batches counts the requests of all groups together, all of --tokens tokens. Of each run's telemetry the
model (runtime/policy/plan/speculation_speed.hpp) is given how often drafted tokens were accepted where those before them were
(p) and how long the drafter's call for a window took, in steps of the verifier ("drafting"); it foresees what was counted:
tokens that a request commits in a step, drafted tokens that are verified in it, and drafted tokens that come to nothing
for each committed one. These are counts, so the machine need not be quiet. Needs h5py.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import h5py

from rollouts import ROOT, embedded_prompts, id_prompts, rollout

VERIFIER, DRAFTER = 0, 2  # roles in telemetry


# As the functions of these names in speculation_speed.cpp.
def geometric_sum(p: float, n: float) -> float:
    return (1 - p**n) / (1 - p) if p < 1 else n


def coupled_tau(p: float, w: int) -> float:
    return geometric_sum(p, w + 1)


def decoupled_pace(p: float, w: int, drafting: float) -> tuple[float, float]:
    n = max(1.0, drafting + 0.5)
    if p == 0 or n >= w:
        return 1, 0
    ahead = p**n / (p**n + 1 - p**w)
    return 1 + ahead * p * geometric_sum(p, w - n) / n, ahead * (w - n) / n


def decoupled_waste(p: float, w: int) -> float:
    chances = [p**a * (1 - p) for a in range(w)]
    accepted_before = sum(a * chance for a, chance in enumerate(chances))
    return (1 - p) * (2 * w - 1 - p * accepted_before / sum(chances)) if p < 1 else 0


def judged_tokens(telemetry: h5py.File) -> float:
    """Verified tokens on which the target has spoken: the first of each draft, and those after an accepted one."""
    drafted: dict[int, int] = {}
    accepted: dict[int, int] = {0: 0}
    for name, counts in (("drafted", drafted), ("accepted", accepted)):
        for position, count in zip(telemetry["acceptance/position"][:], telemetry[f"acceptance/{name}"][:]):
            counts[int(position)] = counts.get(int(position), 0) + int(count)
    # As many of the drafts whose n tokens were accepted go on as of all that have n tokens.
    return sum(count if n == 1 else accepted[n - 1] * count / drafted[n - 1] for n, count in drafted.items())


def window_steps(verifier: h5py.Group, drafter: h5py.Group) -> float:
    """Of a call that drafts whole windows, in steps of the verifier."""
    seconds, tokens = drafter["duration"][:], drafter["drafted"][:] / drafter["requests"][:]
    span = verifier["start"][-1] + verifier["duration"][-1] - verifier["start"][0]
    return statistics.median(seconds[tokens == tokens.max()]) / (span / len(verifier["start"]))


def figures(telemetry: h5py.File, steps: list, seconds: float) -> dict:
    of_verifiers = [s for s in steps if len(s["role"]) and s["role"][0] == VERIFIER]
    of_drafters = [s for s in steps if len(s["role"]) and s["role"][0] == DRAFTER]
    total = {name: sum(int(s[name][:].sum()) for s in of_verifiers) for name in ("drafted", "accepted", "decode_tokens")}
    return {"accepted": total["accepted"], "judged": judged_tokens(telemetry), "drafted": total["drafted"],
            "rows": total["decode_tokens"] - total["drafted"],  # one of a request in each of its steps
            "wasted": int(telemetry["summary/wasted"][:].sum()) if of_drafters else total["drafted"] - total["accepted"],
            "drafting": window_steps(of_verifiers[0], of_drafters[0]) if of_drafters else 0.0}


def model_of(arm: str, w: int, p: float, drafting: float) -> tuple[float, float, float]:
    """What it foresees of committed, drafted and wasted."""
    if arm == "coupled":
        tau = coupled_tau(p, w)
        return tau, w, (w - (tau - 1)) / tau
    return *decoupled_pace(p, w, drafting), decoupled_waste(p, w)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="paceline")
    parser.add_argument("--pair", help="a folder with target and draft, as of make_pair.py (default: the embedded pair)")
    parser.add_argument("--batches", default="1,4,16")
    parser.add_argument("--lengths", default="1,2,3,4,5,6,7,8", help="drafted tokens and windows")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--seeds", type=int, default=1, help="runs of each, whose counts are added up")
    arguments = parser.parse_args()
    pair = Path(arguments.pair).resolve() if arguments.pair else ROOT / "configs/models"

    print(f"{'committed a step':>45} {'verified a step':>20} {'wasted a token':>15}\n"
          "batch  arm        w      p  drafting   found  model    found  model   found  model  off, %")
    for batch in [int(b) for b in arguments.batches.split(",")]:
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as prompts:
            prompts.writelines(id_prompts(batch) if arguments.pair else embedded_prompts(batch))
            prompts.flush()
            base = [f"model.path={pair / 'target'}", f"prompts.path={prompts.name}", "prompts.samples=1",
                    "sampling.ignore_eos=true", f"sampling.max_tokens={arguments.tokens}",
                    f"sampling.min_tokens={arguments.tokens}", "speculation.policy=fixed",
                    "speculation.drafters=[{method: model, path: %s}]" % (pair / "draft")]
            for arm, layout in (("coupled", []), ("decoupled", ["layout.drafters=1"])):
                for w in [int(n) for n in arguments.lengths.split(",")]:
                    settings = [*base, *layout, f"speculation.max_length={w}", f"speculation.window={w}"]
                    runs = [rollout(arguments.program, [*settings, f"sampling.seed={seed + 1}"], figures)
                            for seed in range(arguments.seeds)]
                    of = {name: sum(run[name] for run in runs) for name in runs[0]}
                    p = of["accepted"] / of["judged"] if of["judged"] else 0.0
                    drafting = of["drafting"] / len(runs)
                    found = 1 + of["accepted"] / of["rows"]
                    committed, drafted, wasted = model_of(arm, w, p, drafting)
                    print(f"{batch:5}  {arm:9} {w:2} {p:6.3f} {drafting:9.2f} "
                          f"{found:7.2f} {committed:6.2f}   {of['drafted'] / of['rows']:6.2f} {drafted:6.2f}  "
                          f"{of['wasted'] / of['rows'] / found:6.2f} {wasted:6.2f} {100 * (committed / found - 1):+7.1f}",
                          flush=True)


if __name__ == "__main__":
    main()
