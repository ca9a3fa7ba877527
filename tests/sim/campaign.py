#!/usr/bin/env python3
"""Simulates rollouts of random configurations in which things go wrong, and looks at what comes out.

    tests/sim/campaign.py build/release/app/paceline --seeds 1000
    tests/sim/campaign.py build/release/app/paceline --first 417 --seeds 1 --verbose

Each seed draws work (prompts, lengths, acceptance), a layout (groups of TP 1 to 8 on one to three nodes, drafter ranks,
spare ones), batches, blocks and chunks of KV, speculation, moves, groups that join, races and changes of roles by policy
or at random, and faults: messages that are delayed or come twice, block transfers that fail, slow ranks, drafter ranks
that stand still, and a rank that dies, after which the job is resumed. Every step looks at the KV of all it attends to
(test.check_kv).
The simulation must end, with exit code 0, and its digest must be that of plain decoding of the same work on one rank, on
which nothing goes wrong. What fails is printed as commands, and its folder is kept.

The last line says what all seeds came to: a campaign without moves, races or kills has not tried them.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Dict, List, Tuple

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

PATIENCE = 120.0  # seconds; most simulations take a tenth of one, so that one that takes longer hangs
PROCESSES = 2
DRAFTERS = {
    "model": "{method: model, path: %(work)s/draft-1}",
    "ngram": "{method: ngram}",
    "other model": "{method: model, path: %(work)s/draft-2}",
    "suffix": "{method: suffix, servers: %(servers)s}",
}
# Heads, of which a run takes one, and what their config.json says beside the embedded head's.
HEADS = {"eagle3": {}, "p-eagle": {"ptd_token_id": 3}}
DRAFTERS.update({name: f"{{method: eagle3, path: %(work)s/{name}}}" for name in HEADS})
# Tokens and weights. Many responses are short, and some come to the limit, which is the last of them.
POLICIES = ("fixed", "goodput", "nightjar", "dsd", "banditspec", "tetris")
PROMPT_LENGTHS = ((1, 2), (15, 1), (16, 1), (17, 1), (40, 4), (90, 2), (150, 1))
RESPONSE_LENGTHS = ((1, 1), (2, 1), (8, 2), (30, 4), (80, 4), (160, 2), (320, 1))
LONGEST_PROMPT = PROMPT_LENGTHS[-1][0]
LAYERS, HEAD_DIM = 32, 128  # a block of one head has 256 KiB
DRAFT_BYTES = 2 * 3 * 2 * 64 * 2  # of a position of a draft model
HEAD_BYTES = 2 * 2 * 64 * 2  # of a head
# Degrees of groups, at most, by the model's KV heads.
MODELS = (2, 4, 8)
COUNTED = ("moves", "races", "changes of roles", "changes of roles by policy", "joins of groups", "kills")


@dataclasses.dataclass
class Outcome:
    seed: int
    fault: str  # empty: none
    commands: List[str]
    counts: Dict[str, int]


class Failure(Exception):
    pass


def record_trees(paceline: str, run: pathlib.Path) -> None:
    """By which modelled heads draft, by a run of the embedded one."""
    head = f"{{method: eagle3, path: {ROOT / 'configs/models/eagle3'}, record_stops: 8}}"
    words = [paceline, "rollout", str(ROOT / "configs/quickstart.yaml"), "--output", str(run)]
    for setting in ("prompts.samples=1", "sampling.max_tokens=160", "engine.backend=cpu", "speculation.policy=fixed",
                    "speculation.max_length=8", "speculation.paths=10", f"speculation.drafters=[{head}]"):
        words += ["--set", setting]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode != 0:
        raise SystemExit(f"recording trees failed: {done.stderr}")


def prepare(work: pathlib.Path, paceline: str) -> None:
    """Writes what all seeds read."""
    record_trees(paceline, work / "trees")
    costs, model, head = re.split(r'(?=  - name: "(?:model|eagle3):DIR")', (HERE / "costs.yaml").read_text())
    for number in (1, 2):  # of the same shape and costs
        draft = work / f"draft-{number}"
        draft.mkdir()
        shutil.copy(ROOT / "configs/models/draft/config.json", draft)
        costs += model.replace("DIR", str(draft))
    for name, more in HEADS.items():
        (work / name).mkdir()
        config = json.loads((ROOT / "configs/models/eagle3/config.json").read_text())
        config.update(hidden_size=8 * HEAD_DIM, target_hidden_size=8 * HEAD_DIM, **more)
        (work / name / "config.json").write_text(json.dumps(config))
        costs += head.replace("DIR", str(work / name))
    shape = json.loads((ROOT / "configs/models/target/config.json").read_text())
    for kv_heads in MODELS:
        folder = work / f"model-{kv_heads}"
        folder.mkdir()
        shape.update(num_key_value_heads=kv_heads, num_attention_heads=8, num_hidden_layers=LAYERS,
                     hidden_size=8 * HEAD_DIM, max_position_embeddings=1024)
        (folder / "config.json").write_text(json.dumps(shape))
        # As if they had been measured with it.
        measured = (f"qwen2 {LAYERS} layers, {8 * HEAD_DIM} wide, 8 + {kv_heads} heads of {HEAD_DIM}, "
                    f"{shape['intermediate_size']} inner, {shape['vocab_size']} tokens, bf16")
        costs_of_model = re.sub(r'^  model: .*$', f'  model: "{measured}"', costs, flags=re.M)
        (folder / "costs.yaml").write_text(costs_of_model)
        for degree in (2, 4, 8):  # of larger groups, in which all is done in a hundredth of the time
            sooner = re.sub(r"(- \[\d+, )([^\]]+)\]", lambda m: f"{m[1]}{float(m[2]) / 100:g}]", costs_of_model)
            (folder / f"tail-{degree}.yaml").write_text(sooner.replace("  tp: 1\n", f"  tp: {degree}\n"))
    rows = [("input_tokens", *row) for row in PROMPT_LENGTHS] + [("output_tokens", *row) for row in RESPONSE_LENGTHS]
    (work / "lengths.csv").write_text("field,tokens,weight\n" + "".join(f"{f},{t},{w}\n" for f, t, w in rows))
    (work / "base.yaml").write_text(f"""
sampling: {{temperature: 1.0}}
speculation: {{keep_history: false}}
simulation:
  workload: {{lengths: {work}/lengths.csv, stop_points: {work}/trees}}
test: {{check_kv: true}}
""")


class Draw:
    """The settings of a seed."""

    def __init__(self, work: pathlib.Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.folder = work
        self.kv_heads = self.pick(MODELS)
        self.max_tokens = self.pick([40, 100, 250])
        model = f"{work}/model-{self.kv_heads}"
        self.work = [f"model.path={model}", f"engine.profile={model}/costs.yaml", f"sampling.seed={seed}",
                     f"prompts.samples={self.pick([1, 2, 4, 6])}", f"simulation.workload.prompts={self.pick([1, 4, 9, 14])}",
                     f"sampling.max_tokens={self.max_tokens}"]
        self.degrees, self.drafter_ranks = self.layout()

    def pick(self, choices):
        return self.random.choice(choices)

    def often(self, share: float = 0.5) -> bool:
        return self.random.random() < share

    def flag(self, share: float = 0.5) -> str:
        return "true" if self.often(share) else "false"

    def layout(self) -> Tuple[List[int], int]:
        degrees = [self.pick([d for d in (1, 1, 2, 4, 8) if d <= self.kv_heads]) for _ in range(self.pick([1, 2, 2, 3, 4, 6]))]
        if self.often(0.3):
            degrees = [degrees[0]] * len(degrees)
        return degrees, self.pick([0, 0, 1, 1, 2, 3])

    def machine(self) -> List[str]:
        ranks = sum(self.degrees) + self.drafter_ranks + self.pick([0, 0, 1, 2])
        nodes = self.pick([1, 1, 2, 3])
        per_node = -(-ranks // nodes)
        return [f"layout.verifier_tp=[{', '.join(map(str, self.degrees))}]", f"simulation.nodes={nodes}",
                f"layout.verifier_groups={len(self.degrees)}", f"simulation.ranks_per_node={per_node}",
                f"simulation.cores={self.pick(['auto', 'auto', 1, per_node])}",
                f"simulation.step_overhead={self.pick([0, 0, 1e-3])}",
                f"simulation.link.network_bandwidth={self.pick([50e9, 1e8, 1e7])}",
                f"simulation.link.node_bandwidth={self.pick([200e9, 1e8])}"]

    def engine(self) -> List[str]:
        block = self.pick([16, 16, 32, 64])
        settings = [f"engine.kv_block={block}", f"engine.max_batch={self.pick([1, 3, 7, 20, 64])}",
                    f"engine.prefill_chunk={self.pick([3, 20, 64, 256])}",
                    f"output.flush_seconds={self.pick([0.001, 0.02, 1])}"]
        if self.often():
            # The longest request, with a block in which it parts from its siblings, and then not much more.
            blocks = -(-(LONGEST_PROMPT + self.max_tokens) // block) + 1 + self.pick([0, 1, 5, 20])
            per_block = 2 * LAYERS * (self.kv_heads // min(self.degrees)) * HEAD_DIM * block * 2
            per_block += (2 * DRAFT_BYTES + HEAD_BYTES) * block  # on verifiers, where there are so many
            settings.append(f"engine.kv_memory={blocks * per_block}")
        return settings

    def schedule(self) -> List[str]:
        shares = {"moves": 0.5, "roles": 0.3, "races": 0.3, "memory": 0.5, "outcomes": 0.5}
        shuffled = [name for name, share in shares.items() if self.often(share)]
        joins = []
        if len(self.degrees) > 1 and len(set(self.degrees)) == 1 and 2 * self.degrees[0] <= self.kv_heads and self.often(0.7):
            joins = [f"engine.tail_profile={self.folder}/model-{self.kv_heads}/tail-{2 * self.degrees[0]}.yaml"]
        return [*joins, f"test.shuffle=[{', '.join(shuffled)}]", f"test.seed={self.random.randrange(1 << 32)}",
                f"schedule.rebalance={self.flag(0.8)}",
                f"schedule.move_kv={self.pick(['cost', 'transfer', 'recompute', 'both'])}",
                f"schedule.policy={self.pick(['context', 'context', 'no_context', 'oracle', 'group', 'fcfs'])}",
                f"schedule.chunk={self.pick(['auto', 0, 1, 16, 30, 64, 'grow'])}", f"prompts.shuffle={self.flag()}"]

    def speculation(self) -> List[str]:
        names = self.random.sample(sorted(DRAFTERS), self.pick([0, 1, 1, 2, 3]))
        if not names:
            return ["layout.drafters=auto"]  # ranks that would draft are spare
        if self.often(0.2):  # with two models ranks that are freed may draft by the second
            names = ["model", "other model", *(name for name in names if "model" not in name)]
        heads = [name for name in names if name in HEADS]
        names = [name for name in names if name not in heads[1:]]
        plannable = len(set(self.degrees)) == 1
        mode = self.pick(["auto", "plain", "coupled", "decoupled", "decoupled"])
        drafters = 0 if mode in ("plain", "coupled") else self.drafter_ranks
        if mode == "decoupled" and drafters == 0:
            mode = "auto"
        asked = "auto" if self.often(0.3) and (plannable or mode != "decoupled") else drafters
        servers = self.pick(['auto', 0, 1])
        settings = [f"speculation.drafters=[{', '.join(DRAFTERS[name] % {'work': self.folder, 'servers': servers} for name in names)}]",
                    f"speculation.mode={mode}", f"layout.drafters={asked}",
                    f"speculation.policy={self.pick(POLICIES)}",
                    f"speculation.max_length={self.pick([1, 2, 4, 8])}", f"speculation.paths={self.pick(['auto', 'auto', 1, 2])}",
                    f"speculation.window={self.pick(['auto', *range(1, 9)])}",
                    f"speculation.best_of_n={self.flag()}"]
        if self.often():
            means = ", ".join(str(self.pick([0.2, 0.5, 0.8, 0.95])) for _ in names)
            settings.append(f"simulation.workload.acceptance=[{means}]")
        return settings

    def faults(self, seconds: float) -> List[str]:
        """`seconds`: that plain decoding on one rank takes."""
        faults = [f"delayed: {self.pick([0, 0.05, 0.5])}", f"delay: {self.pick([1e-4, 1e-3, 0.02])}",
                  f"duplicated: {self.pick([0, 0.1, 0.5])}", f"lost_blocks: {self.pick([0, 0.1, 0.5, 1])}",
                  f"slow_ranks: {self.pick([0, 0.2, 0.5])}", f"slow_factor: {self.pick([1.5, 10])}",
                  f"stalled_drafters: {self.pick([0, 0.5, 1])}", f"stall: {self.pick([0.01, 0.1, 3])}"]
        if self.often(0.4):
            faults.append(f"kill: {self.random.uniform(0, seconds / len(self.degrees)):.6f}")
        return [f"test.faults={{{', '.join(faults)}}}"]


@dataclasses.dataclass
class Simulated:
    seconds: float
    digest: str
    counts: Dict[str, int]


class Campaign:
    def __init__(self, paceline: str, work: pathlib.Path) -> None:
        self.paceline = paceline
        self.work = work

    def simulate(self, settings: List[str], commands: List[str]) -> Simulated:
        words = [self.paceline, "simulate", str(self.work / "base.yaml")]
        for setting in settings:
            words += ["--set", setting]
        commands.append(shlex.join(words))
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            raise Failure("hangs")
        said = done.stderr.strip().splitlines() or [""]
        if done.returncode != 0:
            raise Failure(f"ends with {done.returncode}: {said[-1]}")
        row = done.stdout.splitlines()[-1].split()
        more = re.search(r"(\d+) attempts?, (\d+) changes? of roles", done.stderr)
        if more is None:
            raise Failure(f"does not account for itself: {said[-1]}")
        moves, races, digest = row[-3:]
        changes = int(more[2])
        by_policy = 0 if any(s.startswith("test.shuffle") and "roles" in s for s in settings) else changes
        # Without best-of-N policies change no roles but where groups join.
        joins = by_policy if "groups join into groups of" in done.stderr and "speculation.best_of_n=true" not in settings else 0
        counts = dict(zip(COUNTED, (int(moves), int(races), changes, by_policy, joins, int(more[1]) - 1)))
        return Simulated(float(row[0]), digest, counts)

    def run(self, seed: int) -> Outcome:
        draw = Draw(self.work, seed)
        commands: List[str] = []
        counts: Dict[str, int] = {}
        try:
            plain = self.simulate(draw.work + ["simulation.ranks_per_node=1", "layout.verifier_tp=1"], commands)
            settings = draw.work + draw.machine() + draw.engine() + draw.schedule() + draw.speculation()
            disturbed = self.simulate(settings + draw.faults(plain.seconds), commands)
            counts = disturbed.counts
            if disturbed.digest != plain.digest:
                raise Failure(f"digest {disturbed.digest}, not {plain.digest}")
        except Failure as failure:
            return Outcome(seed, str(failure), commands, counts)
        return Outcome(seed, "", commands, counts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paceline", help="the executable")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--verbose", action="store_true", help="print the commands of every seed")
    parser.add_argument("--stop", action="store_true", help="end at the first that fails")
    options = parser.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(prefix="campaign-"))
    paceline = os.path.realpath(options.paceline)
    prepare(work, paceline)
    campaign = Campaign(paceline, work)
    seeds = range(options.first, options.first + options.seeds)
    failed: List[int] = []
    totals: Dict[str, int] = dict.fromkeys(COUNTED, 0)
    begin = time.monotonic()
    ran = 0
    with concurrent.futures.ThreadPoolExecutor(PROCESSES) as pool:
        futures = [pool.submit(campaign.run, seed) for seed in seeds]
        for future in futures:
            outcome = future.result()
            ran += 1
            for name, count in outcome.counts.items():
                totals[name] += count
            if outcome.fault:
                failed.append(outcome.seed)
                print(f"FAIL seed {outcome.seed}: {outcome.fault}")
            if outcome.fault or options.verbose:
                print("\n".join(f"     {command}" for command in outcome.commands), flush=True)
            if outcome.fault and options.stop:
                pool.shutdown(cancel_futures=True)
                break
    minutes = (time.monotonic() - begin) / 60
    counts = ", ".join(f"{count} {name}" for name, count in totals.items())
    print(f"{ran} seeds, {len(failed)} failed{f': {failed}' if failed else ''}; {counts}; {ran / minutes:.0f} seeds a minute")
    if not failed:
        shutil.rmtree(work)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
