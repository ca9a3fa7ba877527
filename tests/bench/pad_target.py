"""The same model, as slow as a larger one: pad_target.py CHECKPOINT DIR --inner N.

Widens every MLP to N with weights of zero, which add nothing: what it says stays what it was, but for the last bits, and a
step reads and multiplies as much as that of a larger model. So drafters that were trained for a small target can be timed
at the ratio of costs that they have at a large one. Needs numpy alone.
"""

import argparse
import json
import shutil
import struct
from pathlib import Path

import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--inner", type=int, required=True, help="the width of the MLPs")
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    config = json.loads((arguments.checkpoint / "config.json").read_text())
    for file in arguments.checkpoint.iterdir():
        if file.suffix == ".json" and file.name != "config.json":
            shutil.copy(file, arguments.directory)
    stored = (arguments.checkpoint / "model.safetensors").read_bytes()
    length = struct.unpack("<Q", stored[:8])[0]
    header = json.loads(stored[8:8 + length])
    header.pop("__metadata__", None)
    data: list[bytes] = []
    end = 0
    for name, tensor in header.items():
        begin, stop = tensor["data_offsets"]
        width = {"BF16": np.uint16, "F32": np.uint32}[tensor["dtype"]]
        values = np.frombuffer(stored[8 + length:][begin:stop], dtype=width).reshape(tensor["shape"])
        if ".mlp." in name:
            axis = 1 if "down_proj" in name else 0
            more = [(0, 0), (0, 0)]
            more[axis] = (0, arguments.inner - values.shape[axis])
            values = np.pad(values, more)
        data.append(values.tobytes())
        tensor["shape"] = list(values.shape)
        tensor["data_offsets"] = [end, end + len(data[-1])]
        end += len(data[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (arguments.directory / "model.safetensors").write_bytes(b"".join([struct.pack("<Q", len(text)), text, *data]))
    (arguments.directory / "config.json").write_text(json.dumps({**config, "intermediate_size": arguments.inner}, indent=2))


if __name__ == "__main__":
    main()
