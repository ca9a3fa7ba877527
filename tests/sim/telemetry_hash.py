"""telemetry_hash.py FILE: SHA-256 of all that a simulation's telemetry says but where its files lie, 16 digits.

HDF5 may lay the same values out in other bytes from version to version, and plans and drafters have folders in them.
"""

import hashlib
import sys

import h5py
import numpy as np

NAMES_FOLDERS = ("attempts/plan", "drafter_names")


def main() -> None:
    text = hashlib.sha256()

    def take(name: str, item: h5py.Group | h5py.Dataset) -> None:
        values = {f"{name}@{key}": item.attrs[key] for key in sorted(item.attrs)}
        if isinstance(item, h5py.Dataset) and not name.startswith(NAMES_FOLDERS):
            values[name] = item[()]
        for where, value in values.items():
            array = np.asarray(value)
            text.update(f"{where} {array.dtype} {array.shape} {array.tolist()}".encode())

    with h5py.File(sys.argv[1]) as file:
        file.visititems(take)
    print(text.hexdigest()[:16])


if __name__ == "__main__":
    main()
