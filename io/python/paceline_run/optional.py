"""Packages that one output needs and the rest of the reader does not."""

from __future__ import annotations

import importlib
from types import ModuleType


def imported(module: str, user: str, hint: str) -> ModuleType:
    """A module that `user` needs.

    Raises ModuleNotFoundError with the hint, which says how to install it, where it, or what it
    needs itself, is not there.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{user} needs {module}, and there is no module {error.name} ({hint})",
            name=error.name,
        ) from error
