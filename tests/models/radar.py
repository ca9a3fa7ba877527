"""RADAR's stop policy: the published network, trained by REINFORCE on a recorded dataset.

    paceline rollout CONFIG --output RUN --set 'speculation.drafters=[{method: eagle3, path: HEAD, noise: false, \
        max_tokens: 59, record_stops: 16}]' --set speculation.policy=fixed --set speculation.paths=10
    paceline profile CONFIG ... --output costs.yaml
    python radar.py RUN/telemetry.h5 --costs costs.yaml --output radar

Ma and Li, "RADAR", section 2.2: equations 4, 6 and 7; the constants are those of the published code. Of
every data point that a rollout recorded (or radar_data.py made) the policy draws when to stop, a length is
drawn from the distribution recorded for that stop, and the reward follows from it; nothing is drafted in
training.

Times are in units of T0, a cycle's fixed part: verifying the tree, the root's call included. With
`a` expansions, that is a + 1 calls of the head,
    T(a) = T0 + Tf a + Te min(a + 1, 7),
since before each of the 7 possible expansions the policy is asked once. The accepted length counts the
token that the target adds to the accepted ones, as table 1 of the paper does: it is what a cycle gives.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path

import h5py
import numpy as np
import torch
import yaml
from safetensors.torch import save_file
from torch import Tensor, nn

from radar_data import CALLS, WIDTH

STOP, CONTINUE = 0, 1
DECISIONS = CALLS - 1


class StopPolicy(nn.Module):
    """Asked after each call of the head but the last whether to call it again."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, 128, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(128 + WIDTH, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 2))

    def forward(self, states: Tensor) -> Tensor:
        """Of frontiers [points, calls, 10], log-probabilities [points, calls, 2] of stopping and going on."""
        hidden, _ = self.lstm(states)
        return torch.log_softmax(self.mlp(torch.cat((hidden, states), dim=-1)), dim=-1)


@dataclass(frozen=True)
class Reward:
    """Equations 4 and 6, times in units of T0."""

    pass_cost: float  # Tf, of an expansion
    decision_cost: float  # Te
    alpha: float  # what every expansion is charged
    beta: float  # what a token at no other cost than T0 is worth
    gamma: float

    def times(self) -> Tensor:
        """What a cycle takes that stops after 1 ... 8 calls: [calls]."""
        expansions = torch.arange(CALLS)
        return 1.0 + self.pass_cost * expansions + self.decision_cost * (expansions + 1).clamp(max=DECISIONS)

    def returns(self, calls: Tensor, tokens: Tensor) -> Tensor:
        """Discounted returns [points, decisions] of trajectories that end after `calls` with `tokens` a cycle.

        Row d is what decision d and all after it earned: -alpha for each expansion, and the speed at
        the end. Decisions that were not come to are 0.
        """
        speed = self.beta * tokens / self.times()[calls - 1]
        # The end comes this many steps after decision d; a stop by decision d itself is 0 steps away.
        away = calls[:, None] - 1 - torch.arange(DECISIONS)
        steps = away.clamp(min=0)
        penalty = self.alpha * (steps if self.gamma == 1 else (1 - self.gamma**steps) / (1 - self.gamma))
        earned = self.gamma**steps * speed[:, None] - penalty
        return torch.where(away >= 0, earned, torch.zeros(()))


def read_points(path: Path) -> tuple[Tensor, Tensor]:
    """States [points, decisions, 10] and lengths [points, calls, 9], of telemetry or of radar_data.py's file."""
    with h5py.File(path) as file:
        points = file["stop_points"] if "stop_points" in file else file
        return torch.from_numpy(points["states"][:][:, :DECISIONS]), torch.from_numpy(points["lengths"][:])


def seconds_of(curve: dict, rows: float, positions: float) -> float:
    """What a curve of a cost table says of so many rows that attend to so many positions in all."""
    known = np.array(curve["points"])
    attention = np.array([[0.0, 0.0], *curve.get("attention", [])])
    return float(np.interp(rows, known[:, 0], known[:, 1]) + np.interp(positions, attention[:, 0], attention[:, 1]))


def costs_of(table: Path, total: int, context: float) -> tuple[float, float]:
    """T0 and Tf in seconds, for one request: verifying `total` rows after the head's first call, and one more."""
    costs = yaml.safe_load(table.read_text())
    head = next(drafter for drafter in costs["drafters"] if drafter["name"].startswith("eagle3:"))
    verify = seconds_of(costs["decode"], total, context) + costs["drafted_position"] * (total - 1) * context
    return verify + seconds_of(head["first"], 1, context), seconds_of(head["round"], 1, context)


def calls_of(actions: Tensor) -> Tensor:
    """After how many calls trajectories of actions [points, decisions] end: at the first stop, or after all."""
    going_on = (actions == CONTINUE).long().cumprod(1)
    return 1 + going_on.sum(1)


def stop_probabilities(log_policy: Tensor) -> Tensor:
    """How likely a cycle ends after 1 ... 8 calls, of log-probabilities [points, decisions, 2]: [points, calls]."""
    probabilities = log_policy.exp()
    reached = torch.cat((torch.ones(len(log_policy), 1), probabilities[..., CONTINUE].cumprod(1)), dim=1)
    return reached * torch.cat((probabilities[..., STOP], torch.ones(len(log_policy), 1)), dim=1)


def loss_of(log_policy: Tensor, lengths: Tensor, reward: Reward, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Equation 7 for one drawn trajectory a point, and the rewards' mean: `lengths` is [points, calls, 9]."""
    drawn = torch.rand(log_policy.shape[:2], generator=generator)
    actions = torch.where(drawn < log_policy[..., STOP].exp(), STOP, CONTINUE)
    calls = calls_of(actions)
    reached = lengths[torch.arange(len(lengths)), calls - 1]
    accepted = torch.multinomial(reached, 1, generator=generator)[:, 0]
    returns = reward.returns(calls, 1.0 + accepted)
    taken = log_policy.gather(2, actions[..., None])[..., 0]
    come_to = torch.arange(DECISIONS) < calls[:, None]
    return -(taken * returns)[come_to].mean(), returns[:, 0].mean()


@dataclass
class Outcome:
    """What cycles give and take on average."""

    calls: float
    tokens: float
    time: float  # in units of T0

    @property
    def speed(self) -> float:
        return self.tokens / self.time


def outcome(stops: Tensor, lengths: Tensor, reward: Reward) -> Outcome:
    """Of the probabilities [points, calls] that cycles stop there, exactly."""
    tokens = 1.0 + (lengths * torch.arange(CALLS + 1)).sum(-1)
    calls = torch.arange(1, CALLS + 1).float()
    return Outcome(*((stops * value).sum(1).mean().item() for value in (calls, tokens, reward.times())))


def fixed(calls: int, points: int) -> Tensor:
    stops = torch.zeros(points, CALLS)
    stops[:, calls - 1] = 1.0
    return stops


def print_outcomes(policy: StopPolicy, states: Tensor, lengths: Tensor, reward: Reward) -> None:
    """The policy beside every fixed number of calls; the last, EAGLE-3's, is what others are compared with."""
    with torch.no_grad():
        stops = stop_probabilities(policy.eval()(states))
    unasked = replace(reward, decision_cost=0.0)
    rows = {f"{calls} calls": outcome(fixed(calls, len(states)), lengths, unasked) for calls in range(1, CALLS + 1)}
    rows["RADAR"] = outcome(stops, lengths, reward)
    whole = rows[f"{CALLS} calls"]
    for name, row in rows.items():
        print(f"{name:8} calls {row.calls:.3f} ({row.calls / whole.calls - 1:+.1%}) tokens {row.tokens:.3f} "
              f"({row.tokens / whole.tokens - 1:+.1%}) speed {row.speed:.3f} ({row.speed / whole.speed - 1:+.1%})")
    print("RADAR stops after 1 ... 8 calls:", " ".join(f"{value:.3f}" for value in stops.mean(0).tolist()))


def train(policy: StopPolicy, states: Tensor, lengths: Tensor, reward: Reward, epochs: int, batch: int, rate: float,
          generator: torch.Generator) -> None:
    optimizer = torch.optim.Adam(policy.parameters(), lr=rate)
    steps = epochs * math.ceil(len(states) / batch)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, eta_min=1e-6)
    started = time.time()
    for epoch in range(epochs):
        policy.train()
        earned = []
        for rows in torch.randperm(len(states), generator=generator).split(batch):
            loss, mean = loss_of(policy(states[rows]), lengths[rows], reward, generator)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
            cosine.step()
            earned.append(mean)
        if epoch < 5 or (epoch + 1) % 10 == 0:
            with torch.no_grad():
                now = outcome(stop_probabilities(policy.eval()(states)), lengths, reward)
            print(f"epoch {epoch + 1} return {torch.stack(earned).mean():.4f} calls {now.calls:.3f} "
                  f"tokens {now.tokens:.3f} speed {now.speed:.4f} {time.time() - started:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path, help="telemetry.h5 of a run with record_stops")
    parser.add_argument("--output", type=Path, help="where to write model.safetensors")
    parser.add_argument("--costs", type=Path, help="a cost table with the head, in place of the next three")
    parser.add_argument("--total", type=int, default=60, help="rows that are verified (--costs)")
    parser.add_argument("--context", type=float, default=256, help="positions before them (--costs)")
    parser.add_argument("--decision-seconds", type=float, default=2.5e-5, help="of asking the policy once (--costs)")
    # Published, in seconds for Llama 3.1 8B: T0 0.07067, Tf 0.002684, Te 0.0004, beta about 0.031.
    parser.add_argument("--pass-cost", type=float, default=0.038, help="Tf / T0, of one more call of the head")
    parser.add_argument("--decision-cost", type=float, default=0.0057, help="Te / T0, of asking the policy once")
    parser.add_argument("--alpha", type=float, default=0.02)
    parser.add_argument("--beta", type=float, default=0.44, help="in units of T0")
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--held-out", type=float, default=0.1, help="of the points, the last, to report on")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    generator = torch.Generator().manual_seed(arguments.seed)
    states, lengths = read_points(arguments.dataset)
    if arguments.costs:
        cycle, one_pass = costs_of(arguments.costs, arguments.total, arguments.context)
        arguments.pass_cost, arguments.decision_cost = one_pass / cycle, arguments.decision_seconds / cycle
        print(f"T0 {1e6 * cycle:.0f} us, Tf {1e6 * one_pass:.0f} us: Tf / T0 {arguments.pass_cost:.3f}, "
              f"Te / T0 {arguments.decision_cost:.4f}")
    reward = Reward(arguments.pass_cost, arguments.decision_cost, arguments.alpha, arguments.beta, arguments.gamma)
    kept = round(len(states) * (1 - arguments.held_out))
    policy = StopPolicy()
    train(policy, states[:kept], lengths[:kept], reward, arguments.epochs, arguments.batch, arguments.rate, generator)
    print_outcomes(policy, states[kept:], lengths[kept:], reward)
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        save_file(policy.state_dict(), arguments.output / "model.safetensors", metadata={"format": "pt"})
        (arguments.output / "model.safetensors").chmod(0o644)


if __name__ == "__main__":
    main()
