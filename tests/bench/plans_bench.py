#!/usr/bin/env python3
"""What plans of speculation are foreseen to do and what they do: plans_bench.py PACELINE [OPTION...].

On this machine's ranks of one thread `paceline profile` measures the costs of a pair, and a coupled rollout how often
drafts are accepted; `paceline check` then foresees tokens a second for plain decoding, coupled drafts of several
lengths and decoupled ones of several windows, and each of these is run. --batches counts the requests of all groups
together, all of them of --tokens tokens, so that a batch stays as large as it was planned for. Runs go in turns; the
table has the medians of what the groups did, each from its first step to its last. Beneath it: how far estimates are
off, whether they rank the plans as the measurement does (Spearman), and what the plan that `auto` takes loses to the
best one. Needs h5py.
"""

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from modes_bench import figures
from rollouts import LAUNCH, ROOT, embedded_prompts, id_prompts, rollout

CONFIG = ROOT / "configs/quickstart.yaml"
# As `paceline check` prints a plan: a mark, tokens a second, what it is.
PLAN = re.compile(r"^  ([* ]) +(\d+)  (plain decoding|coupled, .*|decoupled, .*)$", re.MULTILINE)
LENGTH = re.compile(r"(?:drafts of|window) (\d+)")


@dataclass
class Plan:
    """One way to decode, with the settings that ask for it."""

    name: str
    settings: list[str]
    foreseen: float = 0
    measured: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return statistics.median(self.measured)


def plan_of(text: str, policy: str) -> Plan:
    """Of a plan's line in the output of check."""
    drafts = [f"speculation.policy={policy}"]
    if text.startswith("plain"):
        return Plan("plain", ["speculation.mode=plain"])
    length = int(LENGTH.search(text)[1])
    drafts.append(f"speculation.max_length={length}")
    if text.startswith("coupled"):
        return Plan(f"coupled, {length}", ["speculation.mode=coupled", *drafts])
    drafters = int(re.search(r"(\d+) drafter", text)[1])
    return Plan(f"decoupled, {drafters} rank{'s' * (drafters > 1)}, window {length}",
                ["speculation.mode=decoupled", f"layout.drafters={drafters}", f"speculation.window={length}", *drafts])


def paceline(program: str, ranks: int, words: list[str], settings: list[str]) -> str:
    sets = [word for s in settings for word in ("--set", s)]
    done = subprocess.run([str(LAUNCH), str(ranks), program, *words, *sets], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    return done.stdout


def foreseen(program: str, ranks: int, settings: list[str]) -> list[tuple[bool, float, str]]:
    """Whether it is the chosen one, tokens a second, and what it is: of each plan that check prints."""
    text = paceline(program, ranks, ["check", str(CONFIG), "--output", "/nonexistent/unused"], settings)
    return [(mark == "*", float(rate), what) for mark, rate, what in PLAN.findall(text)]


def plans_for(arguments: argparse.Namespace, base: list[str]) -> tuple[list[Plan], str]:
    """All plans to run, and the name of that which `auto` takes."""
    found: dict[str, Plan] = {}

    def add(rate: float, what: str) -> str:
        plan = plan_of(what, arguments.policy)
        plan.foreseen = rate
        return found.setdefault(plan.name, plan).name

    chosen = ""
    longest = max(arguments.lengths)
    for mark, rate, what in foreseen(arguments.program, arguments.ranks, [*base, f"speculation.max_length={longest}"]):
        name = add(rate, what)
        chosen = name if mark else chosen
    arms = [["speculation.mode=coupled"]] + [["speculation.mode=decoupled", f"layout.drafters={drafters}"]
                                             for drafters in range(1, arguments.ranks // 2 + 1)]
    for arm, length in [(arm, n) for arm in arms for n in arguments.lengths if n > 1 or len(arm) == 1]:
        settings = ["speculation.policy=fixed", f"speculation.max_length={length}", f"speculation.window={length}"]
        for mark, rate, what in foreseen(arguments.program, arguments.ranks, [*base, *arm, *settings]):
            if mark:
                add(rate, what)
    return sorted(found.values(), key=lambda plan: -plan.foreseen), chosen


def ranks_of(values: list[float]) -> list[float]:
    """From 1 for the least; of equal ones their mean."""
    return [sum(v < value for v in values) + (sum(v == value for v in values) + 1) / 2 for value in values]


def spearman(a: list[float], b: list[float]) -> float:
    return statistics.correlation(ranks_of(a), ranks_of(b)) if len(set(a)) > 1 and len(set(b)) > 1 else 0.0


def report(plans: list[Plan], chosen: str) -> None:
    print(f"  {'plan':32} {'foreseen':>9} {'measured':>9} {'min-max':>15} {'error, %':>9}")
    for plan in plans:
        error = 100 * (plan.foreseen / plan.rate - 1)
        mark = "*" if plan.name == chosen else " "
        print(f"{mark} {plan.name:32} {plan.foreseen:9.0f} {plan.rate:9.0f} "
              f"{min(plan.measured):7.0f}-{max(plan.measured):<7.0f} {error:+9.1f}")
    errors = [100 * abs(plan.foreseen / plan.rate - 1) for plan in plans]
    best = max(plans, key=lambda plan: plan.rate)
    taken = next(plan for plan in plans if plan.name == chosen)
    print(f"  {len(plans)} plans: off by {statistics.median(errors):.1f} % (median; {max(errors):.1f} % at most), rank "
          f"correlation {spearman([p.foreseen for p in plans], [p.rate for p in plans]):.2f}; the chosen one is "
          f"{100 * (1 - taken.rate / best.rate):.1f} % below the best ({best.name})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="paceline")
    parser.add_argument("--pair", help="a folder with target and draft, as of make_pair.py (default: the embedded pair)")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batches", default="2,8,32")
    parser.add_argument("--lengths", default="1,2,3,4,6,8", help="drafted tokens and windows")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10, help="of profiling")
    parser.add_argument("--policy", default="fixed", help="fixed runs the plan as it is; goodput, what a run makes of it")
    arguments = parser.parse_args()
    arguments.lengths = [int(n) for n in arguments.lengths.split(",")]
    pair = Path(arguments.pair).resolve() if arguments.pair else ROOT / "configs/models"

    with tempfile.TemporaryDirectory() as folder:
        prompts = Path(folder) / "prompts.jsonl"
        costs = Path(folder) / "costs.yaml"
        pair_settings = [f"model.path={pair / 'target'}", f"prompts.path={prompts}", "prompts.samples=1",
                         "engine.threads=1", "sampling.ignore_eos=true", f"sampling.max_tokens={arguments.tokens}",
                         f"sampling.min_tokens={arguments.tokens}", f"speculation.max_length={max(arguments.lengths)}",
                         "speculation.drafters=[{method: model, path: %s}]" % (pair / "draft")]
        for batch in [int(b) for b in arguments.batches.split(",")]:
            lines = id_prompts(batch) if arguments.pair else embedded_prompts(batch)
            prompts.write_text("".join(lines))
            if not costs.exists():
                paceline(arguments.program, arguments.ranks,
                         ["profile", str(CONFIG), "--output", str(costs), "--seconds", str(arguments.seconds)],
                         [*pair_settings, f"output.directory={folder}/unused"])
                rollout(arguments.program, [*pair_settings, f"engine.profile={costs}", "speculation.mode=coupled",
                                            "speculation.policy=fixed"], figures, arguments.ranks)
            base = [*pair_settings, f"engine.profile={costs}", "speculation.keep_history=false"]
            plans, chosen = plans_for(arguments, base)
            for repeat in range(arguments.repeats):
                for plan in plans if repeat % 2 == 0 else plans[::-1]:
                    settings = [*base, *plan.settings, f"sampling.seed={repeat + 1}"]
                    plan.measured.append(rollout(arguments.program, settings, figures, arguments.ranks)["steady"])
            print(f"batch {batch}, {arguments.ranks} ranks, {pair}")
            report(plans, chosen)


if __name__ == "__main__":
    main()
