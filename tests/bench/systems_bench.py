#!/usr/bin/env python3
"""The four systems in one simulated rollout: systems_bench.py PACELINE [OPTION...].

SpecActor's job (configs/simulated/specactor.yaml) on --nodes nodes of 8 H100-class GPUs: each system alone, then
together. Heads draft as the shipped one does on the embedded target at temperature --temperature, in every cycle of one
request after the other (this records it first: record_stops; at 1.5 about as much is accepted as of published
heads); what they cost is what a layer of the target's width takes. Beside each: how much sooner it ends than plain
decoding.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rollouts import ROOT

CONFIG = ROOT / "configs/simulated/specactor.yaml"
MODELS = ROOT / "configs/simulated/models"
MODEL = "{method: model, path: %s/Qwen2.5-0.5B}" % MODELS
HEAD = "{method: eagle3, max_tokens: 59, path: %s/Qwen2.5-32B-EAGLE3%s}"
EAGLE = HEAD % (MODELS, "")
RADAR = HEAD % (MODELS, ", stop: %s" % (ROOT / "configs/models/radar"))
TREE = ["speculation.max_length=8", "speculation.paths=10"]
ALONE = ["speculation.best_of_n=false"]
COUPLED = [*ALONE, "speculation.mode=coupled"]
SEER = ["schedule.policy=context", "schedule.rebalance=true", "schedule.chunk=auto"]


def drafters(*which: str) -> str:
    return "speculation.drafters=[%s]" % ", ".join(which)


ARMS = {
    "plain": [*ALONE, "speculation.mode=plain"],
    "SpecActor: windows, best of N": [],
    "Seer: chunks, context, trees of siblings": [*COUPLED, *SEER, drafters("{method: suffix}")],
    "Nightjar: bandit over a draft model": [*COUPLED, drafters(MODEL), "speculation.policy=nightjar"],
    "EAGLE-3: 8 calls always": [*COUPLED, *TREE, drafters(EAGLE), "speculation.policy=fixed"],
    "RADAR: as many as it says": [*COUPLED, *TREE, drafters(RADAR), "speculation.policy=fixed"],
    "EAGLE-3, lengths by costs": [*COUPLED, *TREE, drafters(EAGLE)],
    "RADAR, lengths by costs": [*COUPLED, *TREE, drafters(RADAR)],
    "RADAR, lengths by Nightjar": [*COUPLED, *TREE, drafters(RADAR), "speculation.policy=nightjar"],
    "Seer + SpecActor": [*SEER, drafters("{method: suffix}", MODEL)],
    "Seer + RADAR": [*COUPLED, *SEER, *TREE, drafters("{method: suffix}", RADAR)],
    "Seer + RADAR + Nightjar": [*COUPLED, *SEER, *TREE, drafters("{method: suffix}", RADAR),
                                "speculation.policy=nightjar"],
    "all, drafter ranks": [*SEER, *TREE, drafters("{method: suffix}", MODEL, RADAR)],
    "all, freed ranks draft": [*SEER, *TREE, drafters("{method: suffix}", MODEL, RADAR), "speculation.mode=auto",
                               "layout.drafters=0"],
}


def command(words: list[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(" ".join(words) + "\n" + done.stderr[-2000:])
    return done.stdout


def sets(settings: list[str]) -> list[str]:
    return [word for s in settings for word in ("--set", s)]


def record(program: str, temperature: str, folder: Path) -> Path:
    trained = "{method: eagle3, max_tokens: 59, record_stops: 1, path: %s}" % (ROOT / "configs/models/eagle3")
    command([program, "rollout", str(ROOT / "configs/quickstart.yaml"), "--output", str(folder),
             *sets([f"prompts.path={ROOT / 'configs/prompts/unseen.jsonl'}", "prompts.samples=1", "engine.max_batch=1", drafters(trained), *TREE,
                    f"sampling.temperature={temperature}", "sampling.max_tokens=512", "speculation.policy=fixed"])])
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="paceline")
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--prompts", type=int, default=128, help="of 16 responses each")
    parser.add_argument("--temperature", default="1.5")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--arms", default="", help="those alone that have one of these words, by comma; and plain")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trees = record(arguments.program, arguments.temperature, Path(folder) / "recorded")
        for seed in arguments.seeds.split(","):
            print(f"{16 * arguments.prompts} responses, {8 * arguments.nodes} GPUs, seed {seed}\n{'':42} rollout s   tail s  "
                  "busy, %: verifiers drafters  moves  races  speed", flush=True)
            plain = 0.0
            for name, settings in ARMS.items():
                if plain and not any(word in name for word in arguments.arms.split(",")):
                    continue
                out = command([arguments.program, "simulate", str(CONFIG),
                               *sets([f"simulation.nodes={arguments.nodes}", f"sampling.seed={seed}",
                                      f"simulation.workload.prompts={arguments.prompts}",
                                      f"simulation.workload.stop_points={trees}", *settings])])
                row = re.split(r"\s+", out.splitlines()[1].strip())
                plain = plain or float(row[0])
                print(f"{name:42} {float(row[0]):9.1f} {float(row[2]):8.1f} {row[3]:>19} {row[4]:>8} {row[5]:>6} {row[6]:>6} "
                      f"{plain / float(row[0]):6.2f}", flush=True)


if __name__ == "__main__":
    main()
