"""Checkpoints of a policy that a trainer writes for a resident job: FOLDER/step-N."""

from __future__ import annotations

import os
import shutil


def policy_path(folder: str, step: int) -> str:
    return os.path.join(folder, f"step-{step}")


def publish_policy(folder: str, step: int, growing: str, keep: int = 2) -> str:
    """Makes the directory `growing` the policy of a step, by rename; returns its path.

    Goes with what is not wanted any more: older policies than the last `keep`, and policies of later
    steps, which an earlier trainer left.
    """
    path = policy_path(folder, step)
    shutil.rmtree(path, ignore_errors=True)
    os.rename(growing, path)
    for name in os.listdir(folder):
        number = name[len("step-") :]
        if name.startswith("step-") and number.isdigit() and not step - keep < int(number) <= step:
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
    return path


def newest_policy(folder: str, step: int) -> str:
    """The policy of the step, or else the newest one before it. Raises FileNotFoundError."""
    for number in range(step, -1, -1):
        path = policy_path(folder, number)
        if os.path.isdir(path):
            return path
    raise FileNotFoundError(f"{folder} has no policy of step {step} or before")
