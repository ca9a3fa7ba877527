#!/usr/bin/env python3
"""Simulated against real rollouts: calibration_bench.py PACELINE [OPTION...].

The arms of tail_bench.py, run on ranks of one thread and simulated by `paceline simulate` from their own profile: the
workload is that of the coupled run (its prompts and lengths, which all arms share, and how its drafts were accepted),
costs are those of `paceline profile` on as many ranks, but no more than cores, which all work at once, and of the
machine only the number of cores is told. Real runs know the acceptance of an earlier one, as simulated ones do. A
machine that is shared has other costs from minute to minute, so each repeat measures costs, runs all
arms and simulates them. The table has medians over the repeats of rollout seconds and of their ratios, and what the
first repeat's simulation says of the same arms with a core for each rank. Needs h5py.
"""

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py

from rebalance_bench import write_workload
from rollouts import LAUNCH
from tail_bench import ARMS, CONFIG, DRAFTERS


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(" ".join(command) + "\n" + done.stdout + done.stderr)
    return done.stdout


def sets(settings: list[str]) -> list[str]:
    return [word for s in settings for word in ("--set", s)]


def real_seconds(directory: Path, ranks: int) -> float:
    with h5py.File(directory / "telemetry.h5") as telemetry:
        steps = [telemetry[f"ranks/{rank}/steps"] for rank in range(ranks)]
        made = [s for s in steps if len(s["start"])]
        return max(s["start"][-1] + s["duration"][-1] for s in made) - min(s["start"][0] for s in made)


def overhead(directory: Path) -> float:
    """Seconds of a step of a verifier that are not its engine's or drafting."""
    with h5py.File(directory / "telemetry.h5") as telemetry:
        s = telemetry["ranks/0/steps"]
        beside = s["duration"][:] - s["forward_duration"][:] - s["sample_duration"][:] - s["draft_duration"][:]
        gaps = s["start"][1:] - (s["start"][:-1] + s["duration"][:-1])
        return statistics.median(beside) + statistics.median(gaps)


def simulated_seconds(program: str, directory: Path, settings: list[str], ranks: int, cores: str) -> float:
    more = [f"simulation.ranks_per_node={ranks}", f"simulation.cores={cores}"]
    table = run([program, "simulate", str(CONFIG), "--output", str(directory / "simulated"), *sets([*settings, *more])])
    return float(re.split(r"\s+", table.splitlines()[1].strip())[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="paceline")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--cores", type=int, default=2, help="of this machine")
    parser.add_argument("--requests", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--keep", help="a folder for the runs and profiles, which are used again where they are there")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(arguments.keep or temporary)
        folder.mkdir(exist_ok=True)
        prompts = folder / "prompts.jsonl"
        samples = 8
        write_workload("mixed", arguments.requests // (2 * samples), prompts)
        shared = [f"prompts.path={prompts}", f"prompts.samples={samples}", "engine.threads=1", "layout.verifier_tp=1"]
        for ranks in [int(n) for n in arguments.ranks.split(",")]:
            real: dict[str, list[float]] = {name: [] for name in ARMS}
            simulated: dict[str, list[float]] = {name: [] for name in ARMS}
            apart: dict[str, float] = {}
            for repeat in range(arguments.repeats):
                costs = folder / f"costs-{ranks}-{repeat}.yaml"
                if not costs.exists():
                    # Ranks that share a core would be timed while they wait for each other.
                    run([str(LAUNCH), str(min(ranks, arguments.cores)), arguments.program, "profile", str(CONFIG),
                         "--output", str(costs), "--seconds", "10",
                         *sets([*shared, DRAFTERS, "speculation.mode=coupled"])])
                base = [*shared, f"engine.profile={costs}", "speculation.keep_history=false"]
                # Adds to the history of drafts, for simulated runs know how drafts are accepted from the start.
                earlier = folder / f"{ranks}-earlier-{repeat}"
                if not (earlier / "telemetry.h5").exists():
                    run([str(LAUNCH), str(ranks), arguments.program, "rollout", str(CONFIG), "--output", str(earlier),
                         *sets([*base, *ARMS["coupled"], "speculation.keep_history=true"])])
                directories = {name: folder / f"{ranks}-{name.replace(' ', '-').replace(',', '')}-{repeat}"
                               for name in ARMS}
                for name in list(ARMS)[::1 if repeat % 2 == 0 else -1]:
                    if not (directories[name] / "telemetry.h5").exists():
                        run([str(LAUNCH), str(ranks), arguments.program, "rollout", str(CONFIG), "--output",
                             str(directories[name]), *sets([*base, *ARMS[name]])])
                    real[name].append(real_seconds(directories[name], ranks))
                workload = [f"simulation.workload.lengths={directories['coupled']}",
                            f"simulation.step_overhead={overhead(directories['plain'])}"]
                for name, settings in ARMS.items():
                    settings = [*base, *settings, *workload]
                    simulated[name].append(
                        simulated_seconds(arguments.program, folder, settings, ranks, str(arguments.cores)))
                    if repeat == 0:
                        apart[name] = simulated_seconds(arguments.program, folder, settings, ranks, "auto")
            print(f"{ranks} ranks, {arguments.requests} requests\n{'':24}real s (min-max)       simulated (min-max)    "
                  "simulated / real (min-max)  a core for each rank")
            for name in ARMS:
                ratios = [s / r for s, r in zip(simulated[name], real[name])]
                print(f"{name:24}" + "   ".join(f"{statistics.median(v):6.3f} ({min(v):.3f}-{max(v):.3f})"
                                                for v in (real[name], simulated[name], ratios)) +
                      f" {apart[name]:27.3f}", flush=True)


if __name__ == "__main__":
    main()
