#!/usr/bin/env python3
"""Runs rollouts of random layouts, with kills or without, and looks at what they leave. By hand: minutes to hours.

    tests/mpi/soak.py build/release/app/paceline --kills 200 --seed 1
    tests/mpi/soak.py build/release/app/paceline --runs 200 --seed 1
    tests/mpi/soak.py build/release/app/paceline --kills 100 --conversations

Each run goes through random layouts (1 to 7 ranks, groups of TP 1, 2 and 4, drafter ranks as asked for or as planned),
batches, KV memory and pools, speculation by costs that were measured or made up, moves of requests, races, changes of
roles, groups that join, and delays of messages. With --kills, at a random moment one rank, mpirun, or all its processes are killed
(SIGKILL), or the job is asked to stop (SIGUSR1); a third of the moments lie within the writing of the final files.
--resume goes on, with other settings, until the run is done. Then its digest, and what mixtures record of their experts,
must be that of plain decoding on one rank, and its directory must hold what that of an undisturbed run holds: telemetry is there, shards and temporaries are not. No
attempt may hang, or fail but for the kill. What fails is kept for a look. With --conversations responses are conversations
of up to six turns, answered as in the plain run was recorded, by workers that do so at random moments, die and talk
nonsense; many kills come while some wait.

Where h5py is there, each line says how many requests have come to which mode, how often a group raced for another's
request, and in how many runs groups joined: a soak that saw none of some mode has not tried it.

Open MPI's own launcher does not always end when a rank was killed. Where all ranks are gone and it is not, it is ended
and counted apart; the run goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Dict, List, Optional, Tuple

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "io/python"))
sys.dont_write_bytecode = True
try:
    import h5py
    from paceline_reader import open_run, races
except ImportError:
    open_run = None

PATIENCE = 900.0  # seconds; an attempt, or processes whose launcher is gone, that live longer hang
LAUNCHER_PATIENCE = 60.0  # seconds; a launcher without ranks that lives longer hangs
STOPPED = 75

SAMPLINGS: Dict[str, List[str]] = {
    "plain": [],
    "greedy": ["sampling.temperature=0"],
    "filtered": ["sampling.top_p=0.9", "sampling.min_p=0.01", "sampling.min_tokens=30"],
}
DRAFTERS = {
    "model": "{method: model, path: %(draft)s}",
    "ngram": "{method: ngram, min_match: 1, max_match: 4}",
    "suffix": "{method: suffix, min_probability: 0.02, servers: %(servers)s}",
    "head": "%(head)s",  # a model has one, if any, for a run takes one head
}
EAGLE3 = "{method: eagle3, path: %s}"  # or P-EAGLE
DFLASH = "{method: dflash, path: %s}"
MTP = "{method: mtp}"
# Costs of a profile in which steps take 10 ms whatever is in them, seconds of a token: of n-grams and trees, and of the
# model. Measured ones make the same plan again and again.
PRICES: Dict[str, Optional[Tuple[float, float]]] = {
    "measured": None,
    "cheap": (4e-4, 4e-4),  # ranks that draft pay where drafts are as good as its history begins with
    "mixed": (1e-6, 5e-3),  # a request is best left to its own n-grams, or to drafter ranks
    "dear": (0.03, 0.03),  # nothing is as good as plain decoding
}
JOINED = "joined"
# Without a tokenizer, for models that cannot have one.
TOKENS = [{"uid": f"t{i}", "prompt_tokens": list(range(3, i * 9 + 12, i % 3 + 1))} for i in range(16)]
POLICIES = ("fixed", "goodput", "nightjar", "dsd", "banditspec", "tetris")
MOVES = ("cost", "transfer", "recompute", "both")
VICTIMS = ("rank", "rank", "mpirun", "all", "stop")


class Failure(Exception):
    pass


@dataclasses.dataclass
class Moment:
    """When to strike: `delay` seconds after the start, or after `file` of the run's directory appeared."""

    delay: float
    file: Optional[str] = None


def children(pid: int) -> List[int]:
    try:
        text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split()]


def alive(pid: int) -> bool:
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def kill(pid: int, how: signal.Signals) -> None:
    try:
        os.kill(pid, how)
    except ProcessLookupError:
        pass


@dataclasses.dataclass
class Model:
    settings: List[str]  # model and prompts
    draft: Optional[pathlib.Path]
    degrees: List[int]  # that its groups can have
    head: str = ""  # entry of speculation.drafters
    digests: Dict[str, str] = dataclasses.field(default_factory=dict)  # by sampling
    profiles: Dict[Tuple[int, str], pathlib.Path] = dataclasses.field(default_factory=dict)  # by degree and price

    @property
    def methods(self) -> List[str]:
        """All that can draft for it."""
        missing = {"model": self.draft is None, "head": not self.head}
        return [name for name in DRAFTERS if not missing.get(name)]

    def drafters(self, names: List[str], servers: object = "auto") -> str:
        values = {"draft": self.draft, "head": self.head, "servers": servers}
        return "speculation.drafters=[%s]" % ", ".join(DRAFTERS[name] % values for name in names)


def priced(profile: str, own: float, model: float, step: float = 0.01) -> str:
    """A profile with made-up seconds (PRICES)."""
    lines = []
    seconds, attends = step, False
    for line in profile.splitlines():
        if "name:" in line:
            seconds = model if "model:" in line else own
        if line.strip().endswith(":"):
            attends = line.strip() == "attention:"
        lines.append(re.sub(r"(- \[[^,]*), .*\]", rf"\1, {0 if attends else seconds}]", line))
    return "\n".join(lines) + "\n"


class Soak:
    def __init__(self, paceline: str, work: pathlib.Path, seed: int, kills: bool, most_ranks: int) -> None:
        self.paceline = paceline
        self.work = work
        self.random = random.Random(seed)
        self.kills: Dict[str, int] = {}
        self.runs = self.failures = self.attempts = self.hung_launchers = 0
        self.with_kills = kills
        self.most_ranks = most_ranks
        self.races = self.joined = 0
        self.models = self.make_models(work)
        self.seconds = 0.0  # of an undisturbed run
        for number, model in enumerate(self.models):
            for name in self.samplings:
                directory = work / f"plain-{number}-{name}"
                begin = time.monotonic()
                process = self.start(directory, 1, model.settings + SAMPLINGS[name])
                if process.wait() != 0:
                    raise SystemExit(f"plain decoding failed: see {directory}.log")
                self.seconds = max(self.seconds, time.monotonic() - begin)
                model.digests[name] = self.digest(directory)
                self.files = self.listing(directory)
            self.made_plain(number)
            for degree in model.degrees if self.profiles else []:
                self.profile(model, degree, work / f"costs-{number}-{degree}")

    samplings = sorted(SAMPLINGS)
    profiles = True

    def make_models(self, work: pathlib.Path) -> List[Model]:
        embedded = work / "prompts.jsonl"
        embedded.write_text("\n".join((ROOT / "configs/prompts/unseen.jsonl").read_text().splitlines()[:25]) + "\n")
        tokens = work / "tokens.jsonl"
        tokens.write_text("\n".join(json.dumps(prompt) for prompt in TOKENS) + "\n")
        four = work / "four-kv-heads"  # TP 4
        layer = work / "one-layer"  # the first of those: right at times
        experts = work / "experts"  # a mixture
        latent = work / "latent"  # one with latent attention
        for folder, more in ((four, []), (layer, ["num_hidden_layers=1"]), (experts, ["EXPERTS=qwen3_moe"]),
                             (latent, ["EXPERTS=deepseek_v3", "num_nextn_predict_layers=1"])):
            subprocess.run([sys.executable, str(HERE / "random_model.py"), str(folder), "num_key_value_heads=4", *more],
                           check=True)

        def head(target: pathlib.Path, layers: str, *more: str) -> str:
            """A head of random weights, which is right at times, and reads what enters these layers."""
            folder = work / f"head-{target.parent.name}-{target.name}"
            subprocess.run([sys.executable, str(HERE / "random_head.py"), str(folder), str(target),
                            f"eagle_aux_hidden_state_layer_ids={layers}", *more], check=True)
            return (DFLASH if more and more[0].startswith("block_size") else EAGLE3) % folder

        parallel = ("PREFIX=layers.0.", "num_hidden_layers=2", "ptd_token_id=3")  # P-EAGLE
        # DFlash, whose every row says of its own token what the target's output does
        blocks = ("block_size=8", "MARKOV=1", 'dflash_config={"mask_token_id": 3, "target_layer_ids": [0]}')
        models = ROOT / "configs/models"
        return [
            Model([f"prompts.path={embedded}"], models / "draft", [1, 2], EAGLE3 % (models / "eagle3")),
            Model([f"prompts.path={tokens}", f"model.path={four}", "sampling.ignore_eos=true"], layer, [1, 2, 4],
                  head(four, "[0,1]", *parallel)),
            Model([f"prompts.path={tokens}", f"model.path={experts}", "sampling.ignore_eos=true",
                   "sampling.keep_routing=true"], layer, [1, 2, 4], head(experts, "[0,1]", *blocks)),
            Model([f"prompts.path={tokens}", f"model.path={latent}", "sampling.ignore_eos=true",
                   "sampling.keep_routing=true"], layer, [1, 2, 4], MTP),
            Model([f"prompts.path={embedded}", f"model.path={models / 'experts'}", "sampling.keep_routing=true"],
                  models / "draft", [1, 2], head(models / "experts", "[0,1,2]", *parallel)),
            Model([f"prompts.path={embedded}", f"model.path={models / 'latent'}", "sampling.keep_routing=true"],
                  models / "draft", [1, 2, 4], MTP),
            Model([f"prompts.path={ROOT / 'configs/prompts/pictures.jsonl'}", f"model.path={models / 'pictures'}"],
                  models / "pictures", [1, 2], head(models / "pictures", "[0,1,2]")),
        ]

    def made_plain(self, number: int) -> None:
        """After the plain runs of a model."""

    def begin_attempt(self) -> None:
        pass

    def about_to_kill(self) -> None:
        pass

    def tried(self) -> bool:
        """Whether all that was to be tried was."""
        return True

    def summary(self) -> str:
        return f"{self.races} races, groups joined in {self.joined} runs"

    def profile(self, model: Model, degree: int, stem: pathlib.Path) -> None:
        measured = stem.with_suffix(".measured.yaml")
        settings = [*model.settings, model.drafters(model.methods), f"layout.verifier_tp={degree}"]
        process = self.start(stem, degree, settings, "--output", str(measured), "--seconds", "1", command="profile")
        if process.wait() != 0:
            raise SystemExit(f"profiling failed: see {stem}.log")
        for price, seconds in PRICES.items():
            path = stem.with_suffix(f".{price}.yaml")
            model.profiles[degree, price] = path
            if seconds is not None:
                path.write_text(priced(measured.read_text(), *seconds))
            if price == "cheap":
                history = f'drafts: [{{method: "model:{model.draft}", tried: 100000, accepted: 99500}}]\n'
                stem.with_suffix(f".{price}.drafts.yaml").write_text(history)
        # Of a larger group, in which nothing takes time: neighbours join as soon as no request waits.
        model.profiles[degree, JOINED] = stem.with_suffix(f".{JOINED}.yaml")
        model.profiles[degree, JOINED].write_text(priced(measured.read_text(), 1e-6, 1e-6, 1e-6))

    def start(self, directory: pathlib.Path, ranks: int, settings: List[str], *more: str,
              command: str = "rollout") -> subprocess.Popen:
        small = ["prompts.samples=4", "sampling.max_tokens=96", "engine.backend=cpu", "engine.threads=1"]
        words = [str(HERE / "launch.sh"), str(ranks), self.paceline, command, str(ROOT / "configs/quickstart.yaml"), *more]
        for setting in small + settings + [f"output.directory={directory}"]:
            words += ["--set", setting]
        log = open(f"{directory}.log", "ab")
        log.write((" ".join(words) + "\n").encode())
        log.flush()
        with log:
            return subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def digest(self, directory: pathlib.Path) -> str:
        done = subprocess.run([self.paceline, "digest", str(directory)], capture_output=True, text=True, timeout=PATIENCE)
        if done.returncode != 0 or done.stderr:
            raise Failure(f"digest ends with {done.returncode}: {done.stderr.strip()}")
        return done.stdout.strip() + self.experts(directory)

    @staticmethod
    def experts(directory: pathlib.Path) -> str:
        """Of those that the run recorded, if any, and where h5py is there."""
        if open_run is None:
            return ""
        with open_run(directory) as run:
            recorded = [run.routed_experts(i).tobytes() for i in range(len(run) if run.keeps_routing else 0)]
        return " " + hashlib.blake2b(b"".join(recorded), digest_size=8).hexdigest() if recorded else ""

    def count(self, directory: pathlib.Path, layout: str) -> None:
        """Races of the last attempt, whose settings are `layout`, and whether groups of it joined."""
        if open_run is None:
            return
        self.races += len(races(directory)["rank"])
        with h5py.File(directory / "telemetry.h5") as telemetry:
            largest = int(telemetry["summary/tp"][:].max())
        degrees = re.search(r"verifier_tp=\[([\d, ]+)\]", layout)
        self.joined += degrees is not None and largest > max(map(int, degrees[1].split(",")))

    @staticmethod
    def listing(directory: pathlib.Path) -> List[str]:
        return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))

    def layout(self, model: Model) -> tuple[int, List[str]]:
        pick = self.random.choice
        most = self.most_ranks - 2  # beside those that speculation may want
        degrees = [pick([d for d in model.degrees if d <= most]) for _ in range(pick([1, 1, 2, 2, 3]))]
        if pick([True, False]):  # groups of one degree may join
            degrees = [degrees[0]] * len(degrees)
        while sum(degrees) > most:
            degrees.remove(max(degrees))
        ranks = sum(degrees)
        attention = pick(["auto", "auto", "data"])  # profiles are of auto
        settings = [*model.settings, f"layout.verifier_tp=[{', '.join(map(str, degrees))}]",
                    f"layout.attention={attention}",
                    f"schedule.move_kv={pick(MOVES)}",
                    f"test.shuffle=[{', '.join(s for s in ('moves', 'roles', 'races', 'memory', 'outcomes') if pick([True, False]))}]",
                    f"schedule.chunk={pick(['auto', 0, 16, 50, 'grow'])}",
                    f"schedule.policy={pick(['context', 'context', 'no_context', 'group', 'fcfs'])}",
                    f"engine.max_batch={pick([1, 3, 7, 20, 64])}", f"engine.prefill_chunk={pick([3, 20, 64, 256])}",
                    f"engine.kv_block={pick([16, 16, 32, 64])}", f"output.flush_seconds={pick([0.02, 0.1, 1])}"]
        price = pick([None, *(PRICES if model.profiles else [])])
        if price is not None:
            settings.append(f"engine.profile={model.profiles[degrees[0], price]}")
        holds = price is not None and len(set(degrees)) == 1 and attention == "auto"
        larger = model.profiles.get((2 * degrees[0], JOINED))
        if larger and holds and pick([True, True, False]):
            settings.append(f"engine.tail_profile={larger}")
        more, settings_of_drafts = self.speculation(model, holds)
        return ranks + more, settings + self.kv_memory() + settings_of_drafts

    def kv_memory(self) -> List[str]:
        """Often too little for the batch, and little for what waits."""
        pick = self.random.choice
        settings = [f"engine.kv_memory={pick(['auto', '16MiB', '8MiB'])}"]
        pool = pick(["auto", "auto", "none", "1MiB"])
        settings.append(f"kv_pool.memory={pool}")
        if pool != "none" and pick([True, False]):
            settings += [f"kv_pool.disk={self.work}", f"kv_pool.disk_size={pick(['auto', '4MiB', '1MiB'])}"]
        return settings

    def speculation(self, model: Model, holds: bool) -> tuple[int, List[str]]:
        """Ranks beside those of the groups, and settings. `holds`: there is a profile to plan by."""
        pick = self.random.choice
        names = self.random.sample(model.methods, pick([0, 1, 1, 2, 3]))
        if not names:
            return 0, []
        mode = pick(["auto", "auto", "plain", "coupled", "decoupled"])
        spare = pick([0, 1, 1, 2])
        if mode == "decoupled":
            spare = max(spare, 1)
        planned = pick([True, False]) and (mode != "decoupled" or holds)
        asked = 0 if mode in ("plain", "coupled") else spare
        servers = pick(["auto", 0, 1])
        # What plain runs of all models have said, this one's in all samplings among them.
        history = "suffix" in names and servers != 0 and pick([True, False])
        settings = [model.drafters(names, servers),
                    f"speculation.history={self.work if history else 'none'}",
                    f"speculation.mode={mode}",
                    f"speculation.policy={pick(POLICIES)}",
                    f"speculation.max_length={pick([1, 2, 4, 8])}",
                    f"speculation.paths={pick(['auto', 'auto', 1, 2])}",
                    f"speculation.window={pick(['auto', *range(1, 9)])}",
                    f"speculation.best_of_n={pick(['true', 'false'])}",
                    f"speculation.keep_history={pick(['true', 'false'])}",
                    f"layout.drafters={'auto' if planned else asked}"]
        return spare, settings

    def delays(self) -> List[str]:
        delay = self.random.choice([0, 0.001, 0.001, 0.004])
        return [f"test.seed={self.random.randrange(1 << 32)}", f"test.faults={{delayed: 1, delay: {delay}}}"]

    def moment(self) -> Moment:
        if self.random.random() < 2 / 3:
            return Moment(self.random.uniform(0, self.seconds))
        # Some of these names may be gone before they are seen; then the next attempt has its turn.
        return Moment(self.random.choice([0, 0.001, 0.005, 0.02, 0.1]),
                      self.random.choice([".trajectories.h5.tmp", "trajectories.h5", ".telemetry.h5.tmp", "telemetry.h5"]))

    def strike(self, process: subprocess.Popen, directory: pathlib.Path,
               moment: Moment) -> Tuple[Optional[str], Optional[int]]:
        """Waits for the moment and kills. What was killed (None: the attempt ended before), and what wait() gives."""
        begin = time.monotonic()
        if moment.file is not None:
            while not (directory / moment.file).exists():
                if process.poll() is not None:
                    return None, process.returncode
                if time.monotonic() - begin > PATIENCE:
                    raise Failure("hangs")
                time.sleep(0.0005)
        with contextlib.suppress(subprocess.TimeoutExpired):  # it may end before the moment
            return None, process.wait(moment.delay)
        kill(process.pid, signal.SIGSTOP)  # no rank is to start unseen just before its launcher is killed
        ranks = children(process.pid)
        self.about_to_kill()
        victim = self.random.choice(VICTIMS)
        if victim == "stop" and not ranks:
            victim = "all"  # Open MPI drops the signal while there are no ranks
        if victim == "rank":
            if not ranks:
                victim = "mpirun"
            else:
                kill(self.random.choice(ranks), signal.SIGKILL)
        if victim == "mpirun":
            kill(process.pid, signal.SIGKILL)
        if victim == "all":
            for pid in [process.pid, *ranks]:
                kill(pid, signal.SIGKILL)
        if victim == "stop":
            kill(process.pid, signal.SIGUSR1)
        kill(process.pid, signal.SIGCONT)
        self.kills[victim] = self.kills.get(victim, 0) + 1
        return victim, self.wait(process, ranks)

    def wait(self, process: subprocess.Popen, ranks: List[int]) -> Optional[int]:
        """The exit code, once the launcher and the ranks have ended; None when the launcher hung and was killed."""
        begin = time.monotonic()
        busy = begin  # when a rank was last seen
        while process.poll() is None:
            now = time.monotonic()
            here = [pid for pid in {*ranks, *children(process.pid)} if alive(pid)]
            if here:
                busy = now
            if now - begin > PATIENCE or now - busy > LAUNCHER_PATIENCE:
                for pid in [process.pid, *here]:
                    kill(pid, signal.SIGKILL)
                process.wait()
                if here:
                    raise Failure("hangs")
                self.hung_launchers += 1
                return None
            time.sleep(0.02)
        end = time.monotonic() + PATIENCE
        while any(alive(pid) for pid in ranks):
            if time.monotonic() > end:
                for pid in ranks:
                    kill(pid, signal.SIGKILL)
                raise Failure("ranks go on without their launcher")
            time.sleep(0.01)
        return process.returncode

    def run(self) -> None:
        """One run, from the first attempt to the last."""
        self.runs += 1
        model = self.random.choice(self.models)
        sampling = self.random.choice(self.samplings)
        directory = self.work / f"run-{self.runs}"
        left = self.random.choice([1, 2, 3, 5]) if self.with_kills else 0  # kills
        done = False
        history: List[str] = []
        try:
            while not done:
                ranks, settings = self.layout(model)
                settings = settings + self.delays()
                self.attempts += 1
                self.begin_attempt()
                history.append(f"{ranks} ranks, {' '.join(settings)}")
                process = self.start(directory, ranks, SAMPLINGS[sampling] + settings, "--resume")
                victim = None
                moment = Moment(0)
                if left > 0:
                    moment = self.moment()
                    victim, code = self.strike(process, directory, moment)
                else:
                    code = self.wait(process, [])
                history[-1] += f": {victim} killed at {moment}: {'the launcher hung' if code is None else code}"
                left -= victim is not None
                done = code == 0
                if victim is None and not done:
                    raise Failure(f"an attempt that nobody killed: {history[-1].rsplit(': ', 1)[1]}")
                if code is None:
                    print(f"HUNG the launcher of {directory}, {victim} killed, all ranks gone", flush=True)
                # The signal ends a launcher that has not set up its handlers yet.
                if victim == "stop" and code not in (None, 0, STOPPED, -signal.SIGUSR1, 128 + signal.SIGUSR1):
                    raise Failure(f"a stop ends with {code}")
            digest = self.digest(directory)
            if digest != model.digests[sampling]:
                raise Failure(f"digest {digest}, not {model.digests[sampling]}")
            self.count(directory, history[-1])
            files = self.listing(directory)
            if files != self.files:
                raise Failure(f"the directory holds {files}, not {self.files}")
            shutil.rmtree(directory)
            os.remove(f"{directory}.log")
        except Failure as failure:
            self.failures += 1
            print(f"FAIL {directory} ({sampling}): {failure}")
            print("\n".join(f"     {line}" for line in history), flush=True)


class Conversing(Soak):
    """64 conversations, whose workers tell what they were asked for and have answered."""

    samplings = ["plain"]
    profiles = False  # they would say nothing of waits

    def make_models(self, work: pathlib.Path) -> List[Model]:
        self.told = work / "told"
        self.told.mkdir(exist_ok=True)
        self.in_waits = 0
        prompts = work / "prompts.jsonl"
        prompts.write_text("\n".join((ROOT / "configs/prompts/unseen.jsonl").read_text().splitlines()[:32]) + "\n")
        tokens = work / "tokens.jsonl"
        tokens.write_text("\n".join(json.dumps(prompt) for prompt in TOKENS) + "\n")
        latent = work / "latent"
        subprocess.run([sys.executable, str(HERE / "random_model.py"), str(latent), "num_key_value_heads=4",
                        "EXPERTS=deepseek_v3", "num_nextn_predict_layers=1", "vocab_size=512"], check=True)
        return [
            Model([f"prompts.path={prompts}", "prompts.samples=2", *self.talk(work / "answers-0")],
                  ROOT / "configs/models/draft", [1, 2], EAGLE3 % (ROOT / "configs/models/eagle3")),
            Model([f"prompts.path={tokens}", f"model.path={latent}", f"model.tokenizer={ROOT / 'configs/models/target'}",
                   "sampling.ignore_eos=true", *self.talk(work / "answers-1"), "sampling.max_tokens=100"], None, [1, 2, 4], MTP),
        ]

    def talk(self, record: pathlib.Path) -> List[str]:
        """Settings of conversations whose answers are recorded by the first run, and then given again."""
        worker = [sys.executable, str(HERE / "turns_worker.py"), str(self.told), "1", "slower", "dies", "garbles",
                  f"recorded={record}"]
        return ["sampling.max_tokens=150", "environment.method=command", f"environment.command=[{', '.join(worker)}]",
                "environment.max_turns=6", "environment.workers=3", "environment.max_tokens_turn=20",
                "environment.attempts=20", "environment.timeout=10"]

    def made_plain(self, number: int) -> None:
        os.rename(self.work / f"answers-{number}.new", self.work / f"answers-{number}")

    def begin_attempt(self) -> None:
        shutil.rmtree(self.told, ignore_errors=True)  # a worker of the last attempt may still write
        self.told.mkdir(exist_ok=True)

    def waits(self) -> bool:
        """Whether some conversation waits for its worker."""
        lines = {}
        for name in ("asked", "answered"):
            path = self.told / name
            lines[name] = set(path.read_text().split("\n")) if path.exists() else set()
        return bool(lines["asked"] - lines["answered"])

    def about_to_kill(self) -> None:
        """Gives half of the kills a second to come in a wait."""
        end = time.monotonic() + self.random.choice([0, 1])
        while not self.waits() and time.monotonic() < end:
            time.sleep(0.01)
        self.in_waits += self.waits()

    def layout(self, model: Model) -> tuple[int, List[str]]:
        ranks, settings = super().layout(model)  # prompts and answers by three rows a step take too long
        return ranks, [setting.replace("prefill_chunk=3", "prefill_chunk=64") for setting in settings]

    def tried(self) -> bool:
        return self.in_waits > 0 or sum(self.kills.values()) < 10  # a few may all come elsewhere

    def summary(self) -> str:
        return f"{self.in_waits} kills in waits; {super().summary()}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paceline", help="the executable")
    parser.add_argument("--kills", type=int, default=0, help="end after so many kills")
    parser.add_argument("--runs", type=int, default=0, help="end after so many runs, none of them killed")
    parser.add_argument("--conversations", action="store_true", help="responses are conversations")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", help="a folder for the runs (default: a new one in TMPDIR)")
    parser.add_argument("--most-ranks", type=int, default=7, help="of a run (3 or more)")
    options = parser.parse_args()
    if (options.kills > 0) == (options.runs > 0):
        parser.error("give either --kills or --runs")
    work = pathlib.Path(options.work or tempfile.mkdtemp(prefix="soak-"))
    work.mkdir(parents=True, exist_ok=True)
    kind = Conversing if options.conversations else Soak
    soak = kind(os.path.realpath(options.paceline), work, options.seed, options.kills > 0, options.most_ranks)
    while sum(soak.kills.values()) < options.kills or soak.runs < options.runs:
        soak.run()
        counts = ", ".join(f"{count} {victim}" for victim, count in sorted(soak.kills.items()))
        print(f"{sum(soak.kills.values())} kills ({counts}) in {soak.attempts} attempts of {soak.runs} runs, "
              f"{soak.failures} failures, {soak.hung_launchers} launchers hung; {soak.summary()}",
              flush=True)
    if soak.failures == 0 and options.work is None:
        shutil.rmtree(work)
    return 1 if soak.failures or not soak.tried() else 0


if __name__ == "__main__":
    sys.exit(main())
