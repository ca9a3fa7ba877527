#!/usr/bin/env python3
"""Seer's ladder (its table 6) where KV memory is short: seer_real_bench.py PACELINE [OPTION...].

The same requests of the embedded model on 2 ranks of one thread in every arm, with memory for a part of the KV that full
batches take at their longest:

  preempting       prompts are dealt out to ranks; KV is given block by block, and the last to come gives way and is
                   computed again (veRL on vLLM)
  reserved         likewise, but a request is given KV for the longest response at once
  divided, fcfs    requests run in chunks and go on in the order in which they came
  divided          likewise, and queue up again after each (Seer's No-Context)
  context          likewise, in the order of Algorithm 1
  oracle           likewise, longest first, by the lengths that a run before found
  context, drafts  and the suffix trees of siblings draft, with a draft server

A step of the embedded model costs almost as much as its rows, so that a larger batch gains nothing. With --inner its
feed-forward layers are padded with zeros to that width: it says the same, and a step waits for its weights, as those of
large models do.

Costs come from one `paceline profile`, made before. Arms run in turns, under as many seeds as there are repeats; the
table has medians, and ratios to the first arm under the same seed. The digests of all arms of a seed must be equal.
"CPU" is of all processes, start and end included: where others want the cores it says more than seconds. "Last 10 %" is
from the end of the ninth tenth of the requests to that of the last; "KV" the share of the blocks that were taken and
"batch" the requests in a step, over the time of steps; "steps" those of the rank that made most. "Computed again" and
"restored" are positions of KV: of responses, and out of the KV pool or from the other rank.

--default compares instead, where memory is not short, the default with first come and no chunks, on the configuration of
the first run, and exits with 1 where it takes more than 1.05 of the CPU time (medians). Needs h5py.
"""

import argparse
import json
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

from rebalance_bench import write_workload
from rollouts import LAUNCH, ROOT, rollout

CONFIG = ROOT / "configs/quickstart.yaml"
SUFFIX = "speculation.drafters=[{method: suffix}]"
STATIC = ["schedule.policy=group", "schedule.chunk=0", "schedule.rebalance=false"]
COLUMNS = ("seconds", "cpu", "tokens_per_second", "tail", "preempted", "recomputed", "moved", "restored", "steps", "batch", "kv")


def arms_of(lengths: Path) -> dict[str, list[str]]:
    return {
        "preempting": [*STATIC, "schedule.chunk=grow"],
        "reserved": STATIC,
        "divided, fcfs": ["schedule.policy=fcfs"],
        "divided": ["schedule.policy=no_context"],
        "context": ["schedule.policy=context"],
        "oracle": ["schedule.policy=oracle", f"schedule.lengths={lengths}"],
        "context, drafts": ["schedule.policy=context", SUFFIX],
    }


def widened(inner: int, folder: Path) -> Path:
    """The embedded model with so wide feed-forward layers, all but its own part of them zeros."""
    source = ROOT / "configs/models/target"
    folder.mkdir()
    for file in source.iterdir():
        if file.name != "model.safetensors":
            (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": inner}))
    data = (source / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, values = json.loads(data[8:8 + size]), data[8 + size:]
    parts, at = [], 0
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        begin, end = tensor["data_offsets"]
        if ".mlp." in name:  # 2 bytes each, as bf16
            array = np.frombuffer(values[begin:end], np.uint16).reshape(tensor["shape"])
            wide = [(0, inner - n if n == config["intermediate_size"] else 0) for n in tensor["shape"]]
            array = np.pad(array, wide)
            tensor["shape"] = list(array.shape)
            parts.append(array.tobytes())
        else:
            parts.append(values[begin:end])
        tensor["data_offsets"] = [at, at + len(parts[-1])]
        at += len(parts[-1])
    head = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + b"".join(parts))
    return folder


def cpu_seconds() -> float:
    """Of processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def timed(program: str, settings: list[str], pool: float) -> dict:
    before = cpu_seconds()
    run = rollout(program, settings, figures_by(program, pool))
    return {**run, "cpu": cpu_seconds() - before}


def compare_default(program: str, repeats: int, settings: list[str]) -> None:
    arms = {"fcfs, no chunks": ["schedule.policy=fcfs", "schedule.chunk=0"], "default": []}
    results: dict[str, list[dict]] = {name: [] for name in arms}
    for repeat in range(repeats):
        for name in list(arms)[::1 if repeat % 2 == 0 else -1]:
            results[name].append(timed(program, [*settings, *arms[name], f"sampling.seed={repeat + 1}"], 1))
        if len({runs[-1]["digest"] for runs in results.values()}) > 1:
            sys.exit(f"seed {repeat + 1}: digests differ")
    print(f"{'':16} seconds     CPU  last 10 %    steps  tokens/s")
    for name, runs in results.items():
        m = {key: statistics.median(r[key] for r in runs) for key in COLUMNS}
        print(f"{name:16} {m['seconds']:7.2f} {m['cpu']:7.2f} {m['tail']:10.2f} {m['steps']:8.0f} {m['tokens_per_second']:9.0f}")
    for key in ("seconds", "cpu", "steps"):
        ratios = [d[key] / f[key] for d, f in zip(results["default"], results["fcfs, no chunks"])]
        print(f"{key}, ratio: {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})")
        if key == "cpu" and statistics.median(ratios) > 1.05:
            sys.exit("the default is slower")


def block_bytes() -> int:
    """Of a KV block of 16 positions: keys and values in bf16."""
    model = json.loads((ROOT / "configs/models/target/config.json").read_text())
    head = model.get("head_dim", model["hidden_size"] // model["num_attention_heads"])
    return model["num_hidden_layers"] * model["num_key_value_heads"] * head * 16 * 2 * 2


def digest(program: str, folder: Path) -> str:
    return subprocess.run([program, "digest", str(folder)], capture_output=True, text=True, check=True).stdout.strip()


def figures_by(program: str, pool: float):
    def figures(telemetry: h5py.File, steps: list, seconds: float) -> dict:
        requests, summary = telemetry["requests"], telemetry["summary"]
        ends = np.sort(requests["time"][:][requests["kind"][:] == requests["kind"].attrs["finished"]])
        duration = np.concatenate([s["duration"][:] for s in steps])

        def over_time(column: str) -> float:
            return float(np.average(np.concatenate([s[column][:] for s in steps]), weights=duration))

        sums = {name: int(summary[name][:].sum())
                for name in ("preempted", "recomputed", "moved", "positions_transferred", "response_tokens")}
        return {
            "seconds": seconds,
            "tokens_per_second": sums["response_tokens"] / seconds,
            "tail": ends[-1] - ends[int(0.9 * len(ends)) - 1],
            "preempted": sums["preempted"],
            "recomputed": sums["recomputed"],
            "moved": sums["moved"],
            "restored": sums["positions_transferred"],
            "steps": max(len(s["start"]) for s in steps),
            "batch": over_time("requests"),
            "kv": 100 * over_time("kv_blocks_used") / pool,
            "digest": digest(program, Path(telemetry.filename).parent),
        }

    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="paceline")
    parser.add_argument("--memory", default="15,25,50", help="%% of what the batch would take at its longest")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--max-batch", type=int, default=32, help="of a rank")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--arms", default="", help="besides the first those alone that have one of these words, by comma")
    parser.add_argument("--set", action="append", default=[], help="further settings of all arms")
    parser.add_argument("--inner", type=int, default=0, help="width of the feed-forward layers; 0: its own")
    parser.add_argument("--default", action="store_true", help="the default, where memory is not short")
    arguments = parser.parse_args()
    if arguments.default:
        compare_default(arguments.program, arguments.repeats, arguments.set)
        return

    with tempfile.TemporaryDirectory() as folder:
        prompts, costs = Path(folder) / "prompts.jsonl", Path(folder) / "costs.yaml"
        write_workload("mixed", arguments.prompts // 2, prompts)
        base = [f"prompts.path={prompts}", f"prompts.samples={arguments.samples}", "engine.threads=1",
                f"engine.max_batch={arguments.max_batch}", *arguments.set]
        if arguments.inner > 0:
            base.append(f"model.path={widened(arguments.inner, Path(folder) / 'model')}")
        sets = [word for s in [*base, SUFFIX] for word in ("--set", s)]
        profile = [str(LAUNCH), "2", arguments.program, "profile", str(CONFIG), "--output", str(costs), "--seconds", "5"]
        done = subprocess.run(profile + sets, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        base += [f"engine.profile={costs}", "speculation.keep_history=false"]

        # A run without want of memory for each seed: its digest, its lengths and its pool.
        digests: list[str] = []
        for seed in range(1, arguments.repeats + 1):
            output = Path(folder) / f"reference-{seed}"
            sets = [word for s in [*base, f"sampling.seed={seed}"] for word in ("--set", s)]
            command = [str(LAUNCH), "2", arguments.program, "rollout", str(CONFIG), "--output", str(output), *sets]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                sys.exit(done.stdout + done.stderr)
            digests.append(digest(arguments.program, output))
        with h5py.File(Path(folder) / "reference-1/telemetry.h5") as telemetry:
            full = int(telemetry["summary/kv_bytes"][0])
        with h5py.File(Path(folder) / "reference-1/trajectories.h5") as trajectories:
            lengths = np.diff(trajectories["trajectories/offsets"][:])
        print(f"{len(lengths)} requests of {lengths.mean():.0f} tokens (median {np.median(lengths):.0f}, "
              f"90 % {np.quantile(lengths, 0.9):.0f}, longest {lengths.max()}); full batches take {full / 2**20:.0f} MiB a rank")

        for percent in [float(p) for p in arguments.memory.split(",")]:
            memory = int(full * percent / 100)
            results: dict[str, list[dict]] = {}
            for repeat, expected in enumerate(digests):
                arms = arms_of(Path(folder) / f"reference-{repeat + 1}")
                first, words = next(iter(arms)), arguments.arms.split(",")
                names = [n for n in arms if n == first or any(word in n for word in words)]
                for name in names[::1 if repeat % 2 == 0 else -1]:
                    settings = [*base, *arms[name], f"engine.kv_memory={memory}", f"sampling.seed={repeat + 1}"]
                    pool = memory // block_bytes()
                    run = timed(arguments.program, settings, pool)
                    if run["digest"] != expected:
                        sys.exit(f"{name} at {percent} %, seed {repeat + 1}: digest {run['digest']}, expected {expected}")
                    results.setdefault(name, []).append(run)
            print(f"KV memory {percent:g} %\n{'':16} seconds  ratio   min-max      CPU  tokens/s  last 10 %  preempted  computed again"
                  "   gave way  restored    steps  batch   KV, %", flush=True)
            for name in names:
                runs = results[name]
                m = {key: statistics.median(r[key] for r in runs) for key in COLUMNS}
                ratios = [r["seconds"] / base_run["seconds"] for r, base_run in zip(runs, results[first])]
                print(f"{name:16} {m['seconds']:7.2f} {statistics.median(ratios):6.2f} {min(ratios):5.2f}-{max(ratios):.2f} {m['cpu']:7.1f} "
                      f"{m['tokens_per_second']:9.0f} {m['tail']:10.2f} {m['preempted']:10.0f} {m['recomputed']:15.0f} "
                      f"{m['moved']:10.0f} {m['restored']:9.0f} {m['steps']:8.0f} {m['batch']:6.1f} {m['kv']:7.1f}",
                      flush=True)


if __name__ == "__main__":
    main()
