"""Skips what needs a package that is not there, and says so where tests/run.sh looks for it."""

import importlib.util
import unittest


def is_there(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a package that it is in
        return False


def needs(*modules):
    """For a test or a class of them."""
    missing = ", ".join(module for module in modules if not is_there(module))

    def mark(test):
        if missing:
            print(f"SKIP: {test.__qualname__}: {missing} is not there")
        return unittest.skipIf(missing, f"{missing} is not there")(test)

    return mark
