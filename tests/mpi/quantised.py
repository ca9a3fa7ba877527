"""Quantises a bf16 checkpoint: quantised.py FROM FP8 BF16.

FP8 gets the layers' matrices as DeepSeek-V3 publishes them, e4m3 with a scale for each block of 128 x 128, the first
layer's scales in bf16 as Qwen3 has them. BF16 gets what these are by their definition. Needs nothing but Python.
"""

import bisect
import json
import math
import struct
import sys
from pathlib import Path

BLOCK = 128


def bits_of(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


def fp32(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def rounded(value: float) -> int:
    """bf16 bits of an fp32 value: to the nearest, ties to even."""
    bits = bits_of(value)
    lower, rest = bits >> 16, bits & 0xFFFF
    return lower + (rest > 0x8000 or (rest == 0x8000 and lower % 2 == 1))


def magnitude(code: int) -> float:
    exponent, mantissa = code >> 3, code & 7
    return math.ldexp(mantissa, -9) if exponent == 0 else math.ldexp(8 + mantissa, exponent - 10)


MAGNITUDES = [magnitude(code) for code in range(127)]  # the last code is NaN


def nearest(value: float) -> int:
    above = min(bisect.bisect_left(MAGNITUDES, abs(value)), 126)
    below = max(above - 1, 0)
    code = above if MAGNITUDES[above] - abs(value) < abs(value) - MAGNITUDES[below] else below
    return code | (0x80 if value < 0 else 0)


def quantise(values: list[int], shape: list[int], narrow: bool) -> tuple[bytes, list[float], list[int], list[int]]:
    """Codes, scales, the scales' shape, and the bf16 bits that these stand for."""
    rows, columns = shape
    blocks = [-(-rows // BLOCK), -(-columns // BLOCK)]
    largest = [0.0] * (blocks[0] * blocks[1])
    block_of = [row // BLOCK * blocks[1] + column // BLOCK for row in range(rows) for column in range(columns)]
    numbers = [fp32(bits << 16) for bits in values]
    for block, number in zip(block_of, numbers):
        largest[block] = max(largest[block], abs(number))
    scales = [fp32(bits_of(number / 448)) for number in largest]
    if narrow:
        scales = [fp32(rounded(scale) << 16) for scale in scales]
    codes = bytes(nearest(number / scales[block]) for block, number in zip(block_of, numbers))
    # Products are exact in Python; packing rounds them to fp32.
    meant = [rounded(math.copysign(MAGNITUDES[code & 0x7F], 0.5 - (code >> 7)) * scales[block])
             for block, code in zip(block_of, codes)]
    return codes, scales, blocks, meant


def write(folder: Path, config: dict, tensors: dict[str, tuple[str, list[int], bytes]]) -> None:
    header, data = {}, b""
    for name, (dtype, shape, stored) in sorted(tensors.items(), key=lambda item: item[1][0] == "F8_E4M3"):
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(stored)]}
        data += stored
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def main() -> None:
    source, fp8, bf16 = map(Path, sys.argv[1:])
    config = json.loads((source / "config.json").read_text())
    stored = (source / "model.safetensors").read_bytes()
    begin = 8 + struct.unpack("<Q", stored[:8])[0]
    quantised, plain = {}, {}
    for name, entry in json.loads(stored[8:begin]).items():
        shape = entry["shape"]
        first, last = entry["data_offsets"]
        data = stored[begin + first:begin + last]
        quantised[name] = plain[name] = (entry["dtype"], shape, data)
        if ".layers." not in name or len(shape) != 2:
            continue
        narrow = ".layers.0." in name
        codes, scales, blocks, meant = quantise(list(struct.unpack(f"<{len(data) // 2}H", data)), shape, narrow)
        quantised[name] = ("F8_E4M3", shape, codes)
        quantised[name + "_scale_inv"] = (
            ("BF16", blocks, struct.pack(f"<{len(scales)}H", *map(rounded, scales))) if narrow
            else ("F32", blocks, struct.pack(f"<{len(scales)}f", *scales)))
        plain[name] = ("BF16", shape, struct.pack(f"<{len(meant)}H", *meant))
    kind = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]}
    write(fp8, config | {"quantization_config": kind}, quantised)
    write(bf16, config, plain)


if __name__ == "__main__":
    main()
