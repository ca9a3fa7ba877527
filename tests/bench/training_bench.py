#!/usr/bin/env python3
"""The first steps of a training in simulation, by each way to draft: training_bench.py PACELINE [OPTION...].

SpecActor's and Seer's workloads (configs/simulated/specactor-lognormal.yaml, seer-qwen2-vl-72b.yaml; --scale N: an N-th of
prompts and nodes). Steps differ in their seed. Texts agree by shares that were measured on a real training of the embedded
model (ladder_bench.py): --history has for each step the share of the tokens missed by this step's texts that those of
earlier steps have right (simulation.workload.history), (P - p) / (1 - p) where drafts of 8 tokens, each right with p alone
and P with history, give the measured tokens a step, (1 - p^9) / (1 - p). --foreseen is this share where all has been
pregenerated under the step's own noise. Pregeneration itself is not simulated: its share of the next step's tokens is what
ranks that were idle in the step before would generate plainly, and what lies between both shares is taken by it. A draft
model drafts beside suffix trees with history. Columns: seconds of each step and of all, and plain's by these.
"""

import argparse
import re
import subprocess
import sys

from rollouts import ROOT

SMALL = f"{{method: model, path: {ROOT}/configs/simulated/models/Qwen2.5-0.5B}}"
# Configuration, prompts, nodes, settings; accepted of the suffix trees' and the draft model's tokens (both defaults of
# runtime/sim/acceptance.hpp, but SpecActor's draft model as in its configuration).
WORKLOADS = {
    "SpecActor": ("specactor-lognormal", 512, 32, ["speculation.best_of_n=false", "schedule.rebalance=true"], "0.412,0.8"),
    "Seer": ("seer-qwen2-vl-72b", 600, 16, [], "0.412,0.6"),
}
ARMS = ("plain", "suffix trees", "and history", "and pregenerated", "history and a draft model")


def simulate(program: str, config: str, settings: list[str]) -> tuple[float, float, str]:
    """Seconds, the share of them in which verifiers are busy, digest."""
    sets = [word for s in settings for word in ("--set", s)]
    done = subprocess.run([program, "simulate", str(ROOT / f"configs/simulated/{config}.yaml"), *sets], capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        sys.exit(" ".join(sets) + "\n" + done.stderr[-2000:])
    row = re.split(r"\s+", done.stdout.splitlines()[1].strip())
    return float(row[0]), float(row[3]) / 100, row[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="paceline")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--scale", type=int, default=8)
    parser.add_argument("--history", default="0,0.32,0.5,0.5,0.5", help="a step")
    parser.add_argument("--foreseen", type=float, default=0.64)
    arguments = parser.parse_args()
    shares = [float(share) for share in arguments.history.split(",")]
    for workload in arguments.workloads.split(","):
        config, prompts, nodes, settings, accepted = WORKLOADS[workload]
        base = [f"simulation.nodes={nodes // arguments.scale}", f"simulation.workload.prompts={prompts // arguments.scale}",
                "simulation.workload.acceptance=auto", *settings]
        print(f"{workload} / {arguments.scale}: {config}, history {arguments.history}, foreseen {arguments.foreseen}\n"
              f"{'':26} seconds by step and of all: {'':12} plain by it", flush=True)
        seconds: dict[str, list[float]] = {}
        busy: dict[str, list[float]] = {}
        digests: dict[int, str] = {}
        for arm in ARMS:
            for step, share in enumerate(shares):
                if arm == "and pregenerated" and step > 0:
                    idle = seconds[arm][-1] * (1 - busy[arm][-1])
                    made = min(1.0, idle / (seconds["plain"][step - 1] * busy["plain"][step - 1]))
                    share += made * max(0.0, arguments.foreseen - share)
                own = [f"sampling.seed={step + 1}", "speculation.drafters=[{method: suffix}]", "speculation.mode=coupled"]
                if arm == "plain":
                    own.append("speculation.mode=plain")
                elif arm == "history and a draft model":
                    own += [f"speculation.drafters=[{{method: suffix}}, {SMALL}]", "speculation.mode=auto",
                            f"simulation.workload.acceptance=[{accepted}]"]
                if arm not in ("plain", "suffix trees"):
                    own.append(f"simulation.workload.history={share}")
                took, used, digest = simulate(arguments.program, config, [*base, *own])
                if digests.setdefault(step, digest) != digest:
                    sys.exit(f"{arm}, step {step + 1}: another digest")
                seconds.setdefault(arm, []).append(took)
                busy.setdefault(arm, []).append(used)
            print(f"{arm:26} {' '.join(f'{s:7.1f}' for s in seconds[arm])} {sum(seconds[arm]):9.1f} "
                  f"{sum(seconds['plain']) / sum(seconds[arm]):7.2f}", flush=True)


if __name__ == "__main__":
    main()
