#!/usr/bin/env python3
"""Simulated against real rollouts: calibration_bench.py PACELINE [OPTION...].

Two ranks of one thread, one on each of two cores, roll out the same requests in many ways, and `paceline simulate`
foretells how long that takes: from the costs that `paceline profile` measured just before, from the number of cores,
and from an earlier run: its lengths, how its drafts were accepted (which real runs know too), and what its steps took
beside the engine and drafts. All arms have one seed, so they generate the same tokens. A machine that is shared has
other costs from minute to minute, so each repeat measures costs, runs all arms and simulates them; what other programs
disturb is done again. Ranks get small pages: the host of a virtual machine takes free memory back, and may need 5 ms to
give a huge page again. The table has medians over the repeats of rollout seconds and of their ratios. With --shared,
the arms of tail_bench.py are also run on 4 ranks. These share cores by time slices, which no simulated cluster has, so
they are counted apart. Needs h5py.
"""

import argparse
import ctypes
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py

import tail_bench
from rebalance_bench import write_workload
from rollouts import LAUNCH, ROOT

CONFIG = tail_bench.CONFIG
METHODS = {"suffix": "{method: suffix}", "n-grams": "{method: ngram}",
           "model": "{method: model, path: %s}" % (ROOT / "configs/models/draft")}


def coupled(*methods: str) -> list[str]:
    return ["speculation.mode=coupled", "speculation.drafters=[%s]" % ", ".join(METHODS[m] for m in methods)]


BOTH = coupled("suffix", "model")
DRAFTER_RANK = [*coupled("model"), "speculation.mode=decoupled", "layout.drafters=1"]
SMALL = ["engine.max_batch=16"]
FEW = ["prompts.samples=1", "sampling.max_tokens=2000"]
#: Earlier runs, which tell lengths and how drafts are accepted: their settings, and how many groups verify at once.
EARLIER: dict[str, tuple[list[str], int]] = {
    "plain": ([], 2),
    "suffix": (coupled("suffix"), 2),
    "n-grams": (coupled("n-grams"), 2),
    "model": (coupled("model"), 2),
    "both": (BOTH, 2),
    "plain, small": (SMALL, 2),
    "small": ([*BOTH, *SMALL], 2),
    "plain, few": (FEW, 2),
    "few": ([*BOTH, *FEW], 2),
    "one": (coupled("model"), 1),
    "drafter": (DRAFTER_RANK, 1),
    "tail drafter": (tail_bench.DECOUPLED, 2),
}
Arm = tuple[list[str], str] | tuple[list[str], str, str]
#: Settings of each arm, and its earlier run. Only coupled runs tell how drafts are accepted; if another run tells what
#: steps take, it comes last.
ARMS: dict[str, Arm] = {
    "plain, nothing moves": (["schedule.rebalance=false"], "plain"),
    "plain": ([], "plain"),
    "plain, batch 16": (SMALL, "plain, small"),
    "plain, 16 requests": (FEW, "plain, few"),
    "16 requests, groups join": ([*FEW, "engine.tail_profile={tail}"], "plain, few"),
    "16 requests, races": ([*BOTH, *FEW, "speculation.best_of_n=true"], "few"),
    "coupled, suffix trees": (coupled("suffix"), "suffix"),
    "coupled, n-grams": (coupled("n-grams"), "n-grams"),
    "coupled, draft model": (coupled("model"), "model"),
    "coupled, trees and model": (BOTH, "both"),
    "coupled, batch 16": ([*BOTH, *SMALL], "small"),
    "drafter, window 4": ([*DRAFTER_RANK, "speculation.window=4"], "one", "drafter"),
    "drafter, token by token": ([*DRAFTER_RANK, "speculation.outcomes=false"], "one", "drafter"),
    "drafter, outcomes": (DRAFTER_RANK, "one", "drafter"),
}
#: Largest share of the cores that other programs may take from a run that counts.
DISTURBED = 0.01


def sets(settings: list[str]) -> list[str]:
    return [word for s in settings for word in ("--set", s)]


def busy_seconds() -> tuple[float, float]:
    """Of all cores so far, without idle and niced programs; of this process's children."""
    user, _, system, _, _, *interrupts = [int(n) for n in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (user + system + sum(interrupts)) / 100, own.ru_utime + own.ru_stime


def run(command: list[str], output: Path | None = None) -> str:
    """Runs until other programs did not disturb; at most ten times."""
    for _ in range(10):
        if output is not None and output.is_dir():
            shutil.rmtree(output)
        begin, before = time.monotonic(), busy_seconds()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds, after = time.monotonic() - begin, busy_seconds()
        if done.returncode != 0:
            sys.exit(" ".join(command) + "\n" + done.stdout + done.stderr)
        others = after[0] - before[0] - (after[1] - before[1])
        if output is None or others < DISTURBED * 2 * seconds:
            break
        time.sleep(2)
    return done.stdout


def real_seconds(directory: Path, ranks: int) -> float:
    with h5py.File(directory / "telemetry.h5") as telemetry:
        steps = [telemetry[f"ranks/{rank}/steps"] for rank in range(ranks)]
        made = [s for s in steps if len(s["start"])]
        return max(s["start"][-1] + s["duration"][-1] for s in made) - min(s["start"][0] for s in made)


def overhead(directory: Path, ranks: int) -> float:
    """Seconds of a verifier's step that are not its engine's, drafting or a wait for KV: a mean, because moves, messages
    and flushes take most of them in few steps. Between its first and its last step a rank without requests waits for a
    move; this time counts too, though the simulation also has such waits."""
    seconds, count = 0.0, 0
    with h5py.File(directory / "telemetry.h5") as telemetry:
        for rank in range(ranks):
            s = telemetry[f"ranks/{rank}/steps"]
            if len(s["start"]) == 0 or s["role"][0] != 0:
                continue
            spent = sum(s[k][:].sum() for k in ("forward_duration", "sample_duration", "draft_duration", "waited"))
            seconds += s["start"][-1] + s["duration"][-1] - s["start"][0] - spent
            count += len(s["start"])
    return seconds / count


class Calibration:
    def __init__(self, arguments: argparse.Namespace, folder: Path):
        self.program, self.folder, self.seconds = arguments.program, folder, arguments.seconds
        prompts = folder / "prompts.jsonl"
        samples = 8
        write_workload("mixed", arguments.requests // (2 * samples), prompts)
        self.shared = [f"prompts.path={prompts}", f"prompts.samples={samples}", "engine.threads=1"]

    def launch(self, ranks: int, output: Path, settings: list[str], *arguments: str) -> None:
        if not (output / "telemetry.h5").exists() and not output.is_file():
            command, *more = arguments
            run([str(LAUNCH), str(ranks), self.program, command, str(CONFIG), "--output", str(output), *more,
                 *sets([*self.shared, *settings])], output)

    def profile(self, name: str, settings: list[str], seconds: float) -> Path:
        costs = self.folder / f"{name}.yaml"
        self.launch(2, costs, [*settings, *coupled(*METHODS)], "profile", "--seconds", str(seconds))
        return costs

    def simulated(self, settings: list[str], ranks: int, cores: str) -> float:
        more = [f"simulation.ranks_per_node={ranks}", f"simulation.cores={cores}"]
        table = run([self.program, "simulate", str(CONFIG), "--output", str(self.folder / "simulated"),
                     *sets([*self.shared, *settings, *more])])
        return float(re.split(r"\s+", table.splitlines()[1].strip())[0])

    def repeat(self, number: int, ranks: int, arms: dict[str, Arm]) -> dict[str, tuple[float, float]]:
        """Real and simulated seconds of each arm."""
        one = ["layout.verifier_tp=1"]
        costs = {2: self.profile(f"costs-{number}", one, self.seconds),
                 # A drafter rank needs less of the memory's bandwidth than a second verifier.
                 1: self.profile(f"alone-{number}", [*one, "layout.verifier_groups=1"], self.seconds)}
        tail = self.profile(f"joined-{number}", ["layout.verifier_tp=2"], self.seconds / 2)
        base = {name: [*one, f"engine.profile={costs[EARLIER[name][1]]}", "speculation.keep_history=false"]
                for name in {earlier for arm in arms.values() for earlier in arm[1:]}}
        earlier = {name: self.folder / re.sub("[^a-z0-9]+", "-", f"{ranks}-earlier-{name}-{number}") for name in base}
        for name, output in earlier.items():  # adds to the history of drafts
            self.launch(ranks, output, [*base[name], *EARLIER[name][0], "speculation.keep_history=true"], "rollout")
        output = {name: self.folder / re.sub("[^a-z0-9]+", "-", f"{ranks}-{name}-{number}") for name in arms}
        settings = {name: [*base[arm[1]], *(s.format(tail=tail) if s.startswith("engine.tail") else s for s in arm[0])]
                    for name, arm in arms.items()}
        for name in list(arms)[::1 if number % 2 == 0 else -1]:
            self.launch(ranks, output[name], settings[name], "rollout")
        return {name: (real_seconds(output[name], ranks),
                       self.simulated([*settings[name], f"simulation.workload.lengths={earlier[arm[1]]}",
                                       f"simulation.step_overhead={overhead(earlier[arm[-1]], ranks)}"], ranks, "2"))
                for name, arm in arms.items()}


def table(results: list[dict[str, tuple[float, float]]]) -> None:
    print(f"{'':26}real s (min-max)       simulated (min-max)    simulated / real (min-max)")
    close = 0
    for name in results[0]:
        pairs = [r[name] for r in results]
        columns = [[r for r, _ in pairs], [s for _, s in pairs], [s / r for r, s in pairs]]
        close += abs(statistics.median(columns[2]) - 1) <= 0.1
        print(f"{name:26}" + "   ".join(f"{statistics.median(v):6.3f} ({min(v):.3f}-{max(v):.3f})" for v in columns))
    print(f"within 10 %: {close} of {len(results[0])}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="paceline")
    parser.add_argument("--requests", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10, help="of measuring costs")
    parser.add_argument("--shared", action="store_true", help="also 4 ranks, two on a core")
    parser.add_argument("--keep", help="a folder for the runs and profiles, which are used again where they are there")
    arguments = parser.parse_args()
    no_huge_pages = 41  # PR_SET_THP_DISABLE; children inherit it
    ctypes.CDLL(None).prctl(no_huge_pages, 1, 0, 0, 0)

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(arguments.keep or temporary)
        folder.mkdir(exist_ok=True)
        calibration = Calibration(arguments, folder)
        print(f"2 ranks on 2 cores, {arguments.requests} requests")
        table([calibration.repeat(n, 2, ARMS) for n in range(arguments.repeats)])
        if arguments.shared:
            print("4 ranks on 2 cores")
            known = {"plain": ["plain"], "coupled": ["both"], "decoupled": ["both", "tail drafter"]}
            arms = {name: (settings, *known[name.split(",")[0]]) for name, settings in tail_bench.ARMS.items()}
            table([calibration.repeat(n, 4, arms) for n in range(arguments.repeats)])


if __name__ == "__main__":
    main()
