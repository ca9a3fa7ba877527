"""Holds RADAR's dataset, as a run recorded it, against what happened: recorded_stops.py RUN [least points]

Every point has the exact distribution of how many drafted tokens are accepted after each number of calls of
the head, and how many were. Over many points what was must be a draw from those: chi-square of the counts by
length, with the covariance that the distributions foretell, which differ from point to point. Points of a
response have no noise in common, since they lie more than eight tokens apart. Prints a line for each number of
calls; the exit code is 1 where one is not to be believed. Needs h5py.
"""

import math
import sys
from pathlib import Path

import h5py
import numpy as np

LEAST_VARIANCE = 3.0  # of a count, for it to be near enough to normal
LEAST_CHANCE = 1e-4


def upper_tail(statistic: float, freedom: int) -> float:
    """How likely chi-square is larger, by Wilson and Hilferty's cube root; good to a few percent."""
    spread = 2.0 / (9.0 * freedom)
    deviate = ((statistic / freedom) ** (1.0 / 3.0) - (1.0 - spread)) / math.sqrt(spread)
    return 0.5 * math.erfc(deviate / math.sqrt(2.0))


def chi_square(distributions: np.ndarray, lengths: np.ndarray) -> tuple[float, int]:
    """The statistic and its degrees of freedom; distributions [points, bins], lengths [points]."""
    variance = (distributions * (1 - distributions)).sum(0)
    own = variance >= LEAST_VARIANCE
    # All other lengths together are what is left to one: they are the bin that is left out.
    if own.all():
        own[int(distributions.sum(0).argmax())] = False
    kept = distributions[:, own]
    off = np.array([(lengths == length).sum() for length in np.flatnonzero(own)]) - kept.sum(0)
    covariance = np.diag(kept.sum(0)) - kept.T @ kept
    # Where the bin that is left out is all but empty the others vary together.
    values, vectors = np.linalg.eigh(covariance)
    free = values >= LEAST_VARIANCE / 2
    return float((((vectors.T @ off)[free]) ** 2 / values[free]).sum()), int(free.sum())


def main() -> None:
    least = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    with h5py.File(Path(sys.argv[1]) / "telemetry.h5") as file:
        points = file["stop_points"]
        states, lengths, accepted = points["states"][:], points["lengths"][:].astype(float), points["accepted"][:]
        at = list(zip(points["prompt_index"][:], points["sample_index"][:], points["first"][:].astype(int)))
    assert len(lengths) >= least, f"{len(lengths)} points, expected at least {least}"
    assert np.abs(lengths.sum(2) - 1).max() < 1e-3, "distributions that are none"
    assert all(not lengths[:, calls, calls + 2:].any() for calls in range(8)), "more accepted than was drafted"
    assert (states <= 0).all() and (np.diff(states, axis=2) <= 1e-6).all(), "confidences out of order"
    assert (np.diff(states[:, :, 0], axis=1) <= 1e-6).all(), "a path likelier than its beginning"
    apart = [b[2] - a[2] for a, b in zip(sorted(at), sorted(at)[1:]) if a[:2] == b[:2]]
    assert all(gap > 8 for gap in apart), "points that lie too close"
    believed = True
    for calls in range(1, 9):
        statistic, freedom = chi_square(lengths[:, calls - 1], accepted[:, calls - 1].astype(int))
        assert freedom > 0 or calls == 1, f"{calls} calls: nothing is left to chance"
        chance = upper_tail(statistic, freedom) if freedom else 1.0
        believed = believed and chance > LEAST_CHANCE
        mean = (lengths[:, calls - 1] * np.arange(9)).sum(1).mean()
        print(f"{calls} calls: {mean:.3f} foretold, {accepted[:, calls - 1].mean():.3f} accepted; "
              f"chi-square {statistic:.1f} at {freedom} degrees of freedom, p = {chance:.3f}")
    print(f"{len(lengths)} points")
    sys.exit(0 if believed else 1)


main()
