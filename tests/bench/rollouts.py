"""Rollouts on a few ranks of one thread each, for benchmarks. Needs h5py."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import h5py

ROOT = Path(__file__).resolve().parents[2]
LAUNCH = ROOT / "tests" / "mpi" / "launch.sh"


def embedded_prompts(count: int) -> list[str]:
    """Lines of the embedded model's own."""
    return (ROOT / "configs/prompts/unseen.jsonl").read_text().splitlines(keepends=True)[:count]


def id_prompts(count: int) -> list[str]:
    """Lines for any model: rows of ids."""
    return [json.dumps({"uid": f"p{i}", "prompt_tokens": list(range(3 + i, 67 + i))}) + "\n" for i in range(count)]


def rollout(program: str, settings: list[str], figures: Callable[[h5py.File, list, float], dict],
            ranks: int = 2) -> dict:
    """What `figures` makes of its telemetry, of each rank's steps, and of the seconds from the first step of any rank
    to the end of the last."""
    with tempfile.TemporaryDirectory() as folder:
        sets = [word for s in ["engine.threads=1", *settings] for word in ("--set", s)]
        command = [str(LAUNCH), str(ranks), program, "rollout", str(ROOT / "configs/quickstart.yaml"), "--output", folder]
        done = subprocess.run(command + sets, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        with h5py.File(Path(folder) / "telemetry.h5") as telemetry:
            steps = [telemetry[f"ranks/{rank}/steps"] for rank in range(ranks)]
            made = [s for s in steps if len(s["start"])]
            seconds = max(s["start"][-1] + s["duration"][-1] for s in made) - min(s["start"][0] for s in made)
            return figures(telemetry, steps, seconds)
