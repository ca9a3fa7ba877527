#!/usr/bin/env python3
"""Makes the picture fixtures: small files, what Pillow and transformers read of them, and what the
image processor of Qwen2-VL makes of pictures.

    python make_fixtures.py

Needs numpy, Pillow, torchvision and transformers 5; versions.json says which made the files.

  pictures/NAME     a file; NAME.rgb what it decodes to: bytes [height, width, 3]
  pictures.json     {NAME: [width, height]} of the decoded pictures
  grids.json        [{processor, grids: [[width, height, rows, columns]]}]
  patches.json      [{name, picture, processor, grid}]; NAME.f32 are the patches, fp32
"""

import io
import json
import pathlib
import random
import struct
import zlib

import numpy as np
import PIL
import torch
import torchvision
import transformers
from PIL import Image, ImageOps
from transformers import Qwen2VLImageProcessor
from transformers.image_transforms import convert_to_rgb

HERE = pathlib.Path(__file__).parent
PICTURES = HERE / "pictures"


def drawing(width, height, channels=3, seed=0):
    """Waves, an edge and some noise."""
    noise = np.random.default_rng(seed).integers(0, 40, (height, width, channels))
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(channels), indexing="ij")
    waves = 105 + 100 * np.sin(x / (3.0 + c) + seed) * np.cos(y / (4.0 + c))
    return (waves + noise - 60 * (x > y) * (c == 1)).clip(0, 255).astype(np.uint8)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, bits, colours, rows, extra=b"", interlaced=False):
    """A PNG of forms that Pillow does not write. `rows`: bytes, filter bytes included."""
    header = struct.pack(">IIBBBBB", width, height, bits, colours, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def plain_rows(array):
    return b"".join(b"\0" + row.tobytes() for row in array)


def interlaced_rows(array):
    """Adam7."""
    passes = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2),
              (1, 0, 2, 1))
    parts = [array[y::dy, x::dx] for y, x, dy, dx in passes]
    return b"".join(plain_rows(part) for part in parts if part.size)


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def exif(orientation):
    data = Image.Exif()
    data[0x0112] = orientation
    return data


def files():
    rgb = Image.fromarray(drawing(31, 23))
    small = Image.fromarray(drawing(12, 8, seed=1))
    grey = Image.fromarray(drawing(19, 14, 1, seed=2)[:, :, 0])
    rgba = Image.fromarray(drawing(17, 13, 4, seed=3), "RGBA")
    grey_alpha = Image.merge("LA", [grey, Image.fromarray(drawing(19, 14, 1, seed=4)[:, :, 0])])
    palette = rgb.quantize(16)
    yield "420.jpg", saved(rgb, "JPEG", quality=90, subsampling=2)
    yield "422.jpg", saved(rgb, "JPEG", quality=90, subsampling=1)
    yield "444.jpg", saved(rgb, "JPEG", quality=70, subsampling=0)
    yield "progressive.jpg", saved(rgb, "JPEG", quality=85, progressive=True)
    yield "grey.jpg", saved(grey, "JPEG", quality=90)
    yield "cmyk.jpg", saved(rgb.convert("CMYK"), "JPEG", quality=95)
    for orientation in range(2, 9):
        yield f"turned-{orientation}.jpg", saved(small, "JPEG", quality=95, subsampling=0,
                                                 exif=exif(orientation))
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/" tiff:Orientation="6"></x:xmpmeta>'
    yield "turned-xmp.jpg", saved(small, "JPEG", quality=95, subsampling=0, xmp=xmp)
    yield "rgb.png", saved(rgb, "PNG")
    yield "rgba.png", saved(rgba, "PNG")
    yield "grey.png", saved(grey, "PNG")
    yield "grey-alpha.png", saved(grey_alpha, "PNG")
    yield "palette.png", saved(palette, "PNG", bits=4)
    yield "palette-transparent.png", saved(palette, "PNG", bits=4,
                                           transparency=bytes([0, 100, 200, 255]))
    yield "one-bit.png", saved(grey.convert("1"), "PNG")
    two = (drawing(16, 9, 1, seed=5)[:, :, 0] // 64).reshape(9, 4, 4)
    packed = (two * np.array([64, 16, 4, 1])).sum(axis=2).astype(np.uint8)
    yield "two-bits.png", png(16, 9, 2, 0, plain_rows(packed))
    wide = (drawing(11, 9, 1, seed=6)[:, :, 0].astype(np.uint16) * 3).astype(">u2")
    yield "grey-16.png", png(11, 9, 16, 0, plain_rows(wide))
    wide = (drawing(11, 9, 3, seed=7).astype(np.uint16) * 257 - 77).astype(">u2")
    yield "rgb-16.png", png(11, 9, 16, 2, plain_rows(wide))
    yield "interlaced.png", png(31, 23, 8, 2, interlaced_rows(np.asarray(rgb)), interlaced=True)
    red = drawing(10, 7, seed=8)
    red[2:5, 3:6] = (255, 0, 0)
    yield "colour-key.png", png(10, 7, 8, 2, plain_rows(red),
                                chunk(b"tRNS", struct.pack(">HHH", 255, 0, 0)))
    yield "turned-8.png", saved(small, "PNG", exif=exif(8))
    yield "animated.png", saved(small, "PNG", save_all=True, append_images=[small.rotate(180)],
                                duration=100)
    yield "lossy.webp", saved(rgb, "WEBP", quality=80)
    yield "lossless.webp", saved(rgb, "WEBP", lossless=True)
    yield "alpha.webp", saved(rgba, "WEBP", lossless=True, exact=True)
    yield "animated.webp", saved(rgb, "WEBP", save_all=True, append_images=[rgb.rotate(180)],
                                 lossless=True, duration=100)
    yield "turned-5.webp", saved(small, "WEBP", lossless=True, exif=exif(5))


def decoded(data):
    return convert_to_rgb(ImageOps.exif_transpose(Image.open(io.BytesIO(data))), return_numpy=True)


def make_pictures():
    PICTURES.mkdir(exist_ok=True)
    sizes = {}
    for name, data in files():
        (PICTURES / name).write_bytes(data)
        rgb = decoded(data)
        (PICTURES / f"{name}.rgb").write_bytes(rgb.tobytes())
        sizes[name] = [rgb.shape[1], rgb.shape[0]]
    write("pictures.json", sizes)


def make_grids():
    rng = random.Random(0)
    all_grids = []
    for processor in (dict(), dict(min_pixels=3136, max_pixels=12845056),
                      dict(patch_size=16, merge_size=2, min_pixels=65536, max_pixels=401408),
                      dict(patch_size=4, merge_size=3, min_pixels=500, max_pixels=5000)):
        made = Qwen2VLImageProcessor(**processor)
        grids = []
        for i in range(150):
            most = rng.choice((30, 300, 1200, 6000))
            width, height = rng.randint(1, most), rng.randint(1, most)
            if i % 5 == 0:  # halves
                factor = made.patch_size * made.merge_size
                width = max(1, factor * rng.randint(1, 20) // 2)
            if max(width, height) > 200 * min(width, height):
                continue
            patches = made.get_number_of_image_patches(height, width)
            rows, columns = smart_grid(made, height, width)
            assert rows * columns == patches
            grids.append([width, height, rows, columns])
        all_grids.append({"processor": processor, "grids": grids})
    assert sum(len(each["grids"]) for each in all_grids) >= 500
    write("grids.json", all_grids)


def smart_grid(processor, height, width):
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize
    h, w = smart_resize(height, width, processor.patch_size * processor.merge_size,
                        processor.size["shortest_edge"], processor.size["longest_edge"])
    return h // processor.patch_size, w // processor.patch_size


def make_patches():
    cases = [
        ("shrunk", "rgb.png", dict(patch_size=4, merge_size=2, temporal_patch_size=1,
                                   min_pixels=64, max_pixels=400)),
        ("stretched", "rgba.png", dict(patch_size=4, merge_size=2, temporal_patch_size=1,
                                       min_pixels=900, max_pixels=2000)),
        ("rounded", "interlaced.png", dict(patch_size=3, merge_size=3, temporal_patch_size=2,
                                           min_pixels=64, max_pixels=100000)),
        ("as-published", "lossless.webp", dict(temporal_patch_size=1)),
    ]
    listed = []
    for name, picture, options in cases:
        processor = Qwen2VLImageProcessor(**options)
        image = Image.fromarray(decoded((PICTURES / picture).read_bytes()))
        made = processor(images=[image], return_tensors="pt")
        (HERE / f"{name}.f32").write_bytes(made["pixel_values"].numpy().astype("<f4").tobytes())
        listed.append({"name": name, "picture": picture, "processor": options,
                       "grid": made["image_grid_thw"][0, 1:].tolist()})
    write("patches.json", listed)


def write(name, value):
    (HERE / name).write_text(json.dumps(value) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    make_pictures()
    make_grids()
    make_patches()
    write("versions.json", {"numpy": np.__version__, "Pillow": PIL.__version__,
                            "torch": torch.__version__, "torchvision": torchvision.__version__,
                            "transformers": transformers.__version__})
