#!/usr/bin/env python3
"""What drafts gain by what earlier steps said to the same prompts: steps_bench.py PACELINE [OPTION...].

Steps of the embedded model over the same prompts, as in RL: each under a seed and a weight version of its own, and under
weights that have moved by --drift times their own deviation in a random direction (none: as they are). Each step is
rolled out with suffix trees that begin empty, and with those that begin with earlier steps (speculation.history), which
must give the same digest. Tokens a step are those of a request's decoding steps on the one rank of one thread. A row is
the mean of the steps from the second on; a row of ages is how often the likeliest token of their drafts was right, and
how many tokens these were of all that were said. Needs h5py and numpy.
"""

import argparse
import json
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

from rollouts import LAUNCH, ROOT, embedded_prompts

sys.path.insert(0, str(ROOT / "io" / "python"))
from paceline_reader import acceptance


def drifted(source: Path, target: Path, amount: float, random: np.random.Generator) -> None:
    """Writes a checkpoint whose matrices have moved: bf16 as it is stored, rounded by cutting off."""
    shutil.copytree(source, target)
    path = target / "model.safetensors"
    data = bytearray(path.read_bytes())
    size = struct.unpack("<Q", data[:8])[0]
    for name, tensor in json.loads(data[8:8 + size]).items():
        if name == "__metadata__" or len(tensor["shape"]) < 2:
            continue
        if tensor["dtype"] != "BF16":
            sys.exit(f"{name}: expected BF16, found {tensor['dtype']}")
        first, last = (8 + size + offset for offset in tensor["data_offsets"])
        stored = np.frombuffer(bytes(data[first:last]), np.uint16).astype(np.uint32) << 16
        weights = stored.view(np.float32)
        moved = weights + np.float32(amount * weights.std()) * random.standard_normal(len(weights), np.float32)
        data[first:last] = (moved.astype(np.float32).view(np.uint32) + 0x8000 >> 16).astype(np.uint16).tobytes()
    path.write_bytes(data)


def figures(directory: Path) -> dict:
    """Committed tokens, steps of requests, seconds of steps and from the first step to the last one's end, and drafts from
    earlier steps by their age."""
    with h5py.File(directory / "telemetry.h5") as telemetry:
        steps = telemetry["ranks/0/steps"]
        rows = steps["decode_tokens"][:] - steps["drafted"][:]
        found = {"rows": float(rows.sum()), "tokens": float((rows + steps["accepted"][:]).sum()),
                 "seconds": float(steps["duration"][:].sum()),
                 "span": float(steps["start"][-1] + steps["duration"][-1] - steps["start"][0])}
        table = acceptance(directory, by="drafter")
        for name, tried, right in zip(table["drafter"], table["drafted"], table["accepted"]):
            if name.startswith("history:"):
                found[name] = (float(tried), float(right))
        return found


def ages_of(made: list[dict]) -> str:
    """By age of drafts from earlier steps: how often they were right, and their share of all tokens."""
    tokens = sum(f["tokens"] for f in made)
    ages = []
    for age in sorted({key for f in made for key in f if key.startswith("history:")}, key=lambda a: int(a[8:].split("-")[0].rstrip("+"))):
        tried, right = (sum(f[age][i] for f in made if age in f) for i in (0, 1))
        ages.append(f"{age[8:]}: {100 * right / tried:.0f} ({100 * right / tokens:.0f})")
    return ", ".join(ages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="paceline")
    parser.add_argument("--temperatures", default="0,0.6,1")
    parser.add_argument("--drifts", default="0,0.01")
    parser.add_argument("--requests", default="1,4", help="in a batch")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--policy", default="goodput")
    arguments = parser.parse_args()

    def rolled(output: Path, settings: list[str]) -> dict:
        sets = [word for s in settings for word in ("--set", s)]
        done = subprocess.run([str(LAUNCH), "1", arguments.program, "rollout", str(ROOT / "configs/quickstart.yaml"),
                               "--output", str(output), *sets], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        return figures(output)

    def digest(output: Path) -> str:
        return subprocess.run([arguments.program, "digest", str(output)], capture_output=True, text=True, check=True).stdout

    print("T    drift  requests   tokens a step: this step's, + history   seconds by without   by age: right, % (of all tokens, %)")
    for temperature in arguments.temperatures.split(","):
        for drift in arguments.drifts.split(","):
            for requests in arguments.requests.split(","):
                with tempfile.TemporaryDirectory() as name:
                    folder = Path(name)
                    (folder / "prompts.jsonl").write_text("".join(embedded_prompts(arguments.prompts)))
                    weights = ROOT / "configs/models/target"
                    random = np.random.default_rng(1)
                    arms: dict[str, list[dict]] = {"without": [], "with": []}
                    for step in range(1, arguments.steps + 1):
                        base = [f"model.path={weights}", f"model.weight_version={step}", f"sampling.seed={step}",
                                f"sampling.temperature={temperature}", f"prompts.path={folder / 'prompts.jsonl'}",
                                f"prompts.samples={arguments.samples}", f"sampling.max_tokens={arguments.tokens}",
                                f"engine.max_batch={requests}", "engine.threads=1",
                                "speculation.drafters=[{method: suffix}]", f"speculation.policy={arguments.policy}"]
                        without, has = folder / f"without-{step}", folder / "steps" / f"step-{step}"
                        history = f"speculation.history={folder / 'steps'}"
                        (folder / "steps").mkdir(exist_ok=True)
                        for arm in ("without", "with")[::1 if step % 2 else -1]:
                            found = rolled(without, base) if arm == "without" else rolled(has, [*base, history])
                            if step > 1:
                                arms[arm].append(found)
                        if digest(without) != digest(has):
                            sys.exit(f"step {step}: the digests differ")
                        if float(drift) > 0 and step < arguments.steps:
                            drifted(weights, folder / f"weights-{step}", float(drift), random)
                            weights = folder / f"weights-{step}"
                    pace = {arm: sum(f["tokens"] for f in found) / sum(f["rows"] for f in found)
                            for arm, found in arms.items()}
                    ratio = (sum(f["seconds"] for f in arms["with"]) / sum(f["seconds"] for f in arms["without"]))
                    print(f"{temperature:4} {drift:5}  {requests:8}   {pace['without']:13.2f}, {pace['with']:.2f} "
                          f"{ratio:26.2f}   {ages_of(arms['with'])}", flush=True)


if __name__ == "__main__":
    main()
