"""Simulations for benchmarks, some at a time."""

import argparse
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from rollouts import ROOT

T = TypeVar("T")


def sets(settings: list[str]) -> list[str]:
    """The settings as words of a command."""
    return [word for s in settings for word in ("--set", s)]


def simulate(program: str, config: str, settings: list[str], *words: str) -> tuple[list[str], str]:
    """The columns of the table's row, and stderr. `config`: of configs/simulated."""
    path = ROOT / f"configs/simulated/{config}.yaml"
    done = subprocess.run([program, "simulate", str(path), *words, *sets(settings)], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit(" ".join(sets(settings)) + "\n" + done.stderr[-2000:])
    return re.split(r"\s+", done.stdout.splitlines()[1].strip()), done.stderr


def add_runs(parser: argparse.ArgumentParser) -> None:
    """The options that say how many simulations there are, and how many of them run at a time."""
    parser.add_argument("--seeds", type=int, default=1, help="1 to N")
    parser.add_argument("--jobs", type=int, default=1, help="simulations at a time, on a core each")
    parser.add_argument("--set", dest="settings", action="append", default=[], help="for all arms")


def in_order(jobs: int, simulations: list[Callable[[], T]]) -> Iterator[T]:
    """The results of the simulations, in their order. The first that fails ends all that have not begun."""
    pool = ThreadPoolExecutor(jobs)
    try:
        yield from pool.map(lambda simulation: simulation(), simulations)
    finally:
        pool.shutdown(cancel_futures=True)
