#!/usr/bin/env python3
"""Simulated against real rollouts: calibration_bench.py PACELINE [OPTION...].

The arms of tail_bench.py, run on ranks of one thread and simulated by `paceline simulate` from their own profile: the
workload is that of the coupled run (its prompts and lengths, which all arms share, and how its drafts were accepted),
costs are those of `paceline profile` on as many ranks, which all work at once, and of the machine only the number of
cores is told. The table has rollout seconds (real: median of the repeats), their ratio, and what the simulation says
of the same arms with a core for each rank. Needs h5py.
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
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--keep", help="a folder for the runs and the profile, which is used again where it is there")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(arguments.keep or temporary)
        folder.mkdir(exist_ok=True)
        prompts = folder / "prompts.jsonl"
        samples = 8
        write_workload("mixed", arguments.requests // (2 * samples), prompts)
        shared = [f"prompts.path={prompts}", f"prompts.samples={samples}", "engine.threads=1", "layout.verifier_tp=1"]
        for ranks in [int(n) for n in arguments.ranks.split(",")]:
            costs = folder / f"costs-{ranks}.yaml"
            if not costs.exists():
                run([str(LAUNCH), str(ranks), arguments.program, "profile", str(CONFIG), "--output", str(costs),
                     "--seconds", "10", *sets([*shared, DRAFTERS, "speculation.mode=coupled"])])
            base = [*shared, f"engine.profile={costs}", "speculation.keep_history=false"]
            seconds: dict[str, list[float]] = {name: [] for name in ARMS}
            for repeat in range(arguments.repeats):
                for name in list(ARMS)[::1 if repeat % 2 == 0 else -1]:
                    directory = folder / f"{ranks}-{name.replace(' ', '-').replace(',', '')}-{repeat}"
                    if not (directory / "telemetry.h5").exists():
                        run([str(LAUNCH), str(ranks), arguments.program, "rollout", str(CONFIG), "--output",
                             str(directory), *sets([*base, *ARMS[name]])])
                    seconds[name].append(real_seconds(directory, ranks))
            recorded = folder / f"{ranks}-coupled-0"
            beside = overhead(folder / f"{ranks}-plain-0")
            print(f"{ranks} ranks, {arguments.requests} requests; {1e6 * beside:.0f} us of a step beside its engine\n"
                  f"{'':32}  real s   min-max       simulated  ratio   a core for each rank")
            for name, settings in ARMS.items():
                settings = [*base, *settings, f"simulation.workload.lengths={recorded}",
                            f"simulation.step_overhead={beside}"]
                simulated = [simulated_seconds(arguments.program, folder, settings, ranks, cores)
                             for cores in (str(arguments.cores), "auto")]
                real = statistics.median(seconds[name])
                print(f"{name:32} {real:7.3f} {min(seconds[name]):6.3f}-{max(seconds[name]):.3f} {simulated[0]:11.3f} "
                      f"{simulated[0] / real:6.2f} {simulated[1]:12.3f}", flush=True)


if __name__ == "__main__":
    main()
