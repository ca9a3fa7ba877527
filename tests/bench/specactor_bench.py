#!/usr/bin/env python3
"""SpecActor's comparison (sections 5.2 and 5.4) in simulation: specactor_bench.py PACELINE [OPTION...].

256 H100-class GPUs in verifier groups of TP 4 generate 8,192 (GRPO-32B-20K) or 16,384 (DAPO-32B-20K) responses of 20 K
tokens at most with Qwen2.5-32B (configs/simulated/specactor-lognormal.yaml, fitted to the paper's baseline, or --config
specactor, lengths of DeepSeek-R1). The arms are the paper's; those that it does not tune are not tuned here: "vanilla"
drafts 5 tokens always, as vLLM does by default. Beside each is how much sooner it ends than plain decoding, and what
the paper has.
"""

import argparse
import re
import subprocess
import sys

from rollouts import ROOT

MODELS = ROOT / "configs/simulated/models"
STATIC = ["speculation.best_of_n=false"]
VANILLA = [*STATIC, "speculation.mode=coupled", "speculation.policy=fixed", "speculation.max_length=5"]
ARMS = {  # settings, speed by plain's in the paper
    "plain (veRL)": ([*STATIC, "speculation.mode=plain"], "1"),
    "plain, twice the GPUs": ([*STATIC, "speculation.mode=plain", "simulation.nodes=64"], "1.0-1.1"),
    "vanilla coupled, 0.5B": ([*VANILLA, f"speculation.drafters=[{{method: model, path: {MODELS}/Qwen2.5-0.5B}}]", "first"],
                              "1.03 (DAPO)"),
    "vanilla coupled, n-gram": ([*VANILLA, "speculation.drafters=[{method: ngram}]", "last"], "about 1"),
    "decoupled": (STATIC, "1.3"),
    "SpecActor: and best of N": ([], "2.0-2.4"),
    "ours: coupled by costs": ([*STATIC, "speculation.mode=coupled"], ""),
    "ours: SpecActor, balanced": (["schedule.rebalance=true"], ""),
    "ours: coupled, balanced, N": (["schedule.rebalance=true", "speculation.mode=coupled"], ""),
    "ours: and freed ranks draft": (["schedule.rebalance=true", "speculation.mode=auto", "layout.drafters=0"], ""),
    "plain, balanced": ([*STATIC, "speculation.mode=plain", "schedule.rebalance=true"], ""),
}


def simulate(program: str, config: str, settings: list[str]) -> tuple[list[str], str]:
    """The table's row, and the seconds over the larger lower bound. "first" and "last" among the settings: of the
    configuration's drafters one alone drafts, with its acceptance."""
    path = ROOT / f"configs/simulated/{config}.yaml"
    acceptance = re.search(r"acceptance: \[(.*)\]", path.read_text())
    own = {"first": 0, "last": -1}
    settings = [f"simulation.workload.acceptance=[{acceptance.group(1).split(',')[own[s]].strip()}]" if s in own else s
                for s in settings if s not in own or acceptance]
    sets = [word for s in settings for word in ("--set", s)]
    done = subprocess.run([program, "simulate", str(path), *sets], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(" ".join(sets) + "\n" + done.stderr[-2000:])
    bound = re.search(r"takes ([\d.]+) times the larger", done.stderr)
    return re.split(r"\s+", done.stdout.splitlines()[1].strip()), bound.group(1) if bound else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="paceline")
    parser.add_argument("--config", default="specactor-lognormal", help="of configs/simulated: the workload")
    parser.add_argument("--prompts", default="512,1024", help="of 16 responses each")
    parser.add_argument("--set", dest="settings", action="append", default=[], help="for all arms")
    parser.add_argument("--arms", default="", help="those alone that have one of these words, by comma; and plain")
    arguments = parser.parse_args()
    for prompts in arguments.prompts.split(","):
        print(f"{16 * int(prompts)} responses {' '.join(arguments.settings)}\n{'':28} rollout s   tail s  "
              "busy, %: verifiers drafters  races  over bound  speed (paper's)", flush=True)
        plain = 0.0
        for name, (settings, paper) in ARMS.items():
            if plain and not any(word in name for word in arguments.arms.split(",")):
                continue
            row, bound = simulate(arguments.program, arguments.config,
                                  [*arguments.settings, f"simulation.workload.prompts={prompts}", *settings])
            plain = plain or float(row[0])
            print(f"{name:28} {float(row[0]):9.1f} {float(row[2]):8.1f} {row[3]:>19} {row[4]:>8} {row[6]:>6} {bound:>11} "
                  f"{plain / float(row[0]):7.2f} ({paper})", flush=True)


if __name__ == "__main__":
    main()
