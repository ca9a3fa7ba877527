"""Write io/text/unicode_tables.inc: where the Unicode data of the reference tokenizer differs from PCRE2's and utf8proc's.

The `tokenizers` library matches patterns with newer Unicode categories than PCRE2 10.42 (14.0) and
normalizes with older data than utf8proc. Both differences are found by probing the library.

Usage: make_unicode_tables.py OUTPUT      (needs tokenizers, regex, and libpcre2-8 by ctypes)
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import regex
import tokenizers
from tokenizers import Regex, normalizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CATEGORIES = (
    "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn".split()
)
# Compositions newer than the reference's normalizer: both the composed and the second parts.
NEW_COMPOSITIONS = [
    0x11930, 0x11938, 0x105C9, 0x105E4, 0x11383, 0x11385, 0x1138E, 0x11391, 0x113B8, 0x113BB, 0x113C2, 0x113C5,
    0x113C7, 0x113C8, 0x113C9, 0x1611E, 0x1611F, 0x16120, 0x16121, 0x16122, 0x16123, 0x16124, 0x16125, 0x16126,
    0x16127, 0x16128, 0x1612F, 0x16D63, 0x16D67, 0x16D68, 0x16D69, 0x16D6A,
]  # fmt: skip
CCC_PROBES = [0x334, 0x345, 0x323, 0x301, 0x5B0, 0xF71, 0x302A, 0x3099, 0x94D]


def reference_categories() -> dict[int, str]:
    text = "".join(map(chr, CODE_POINTS))
    found = {}
    for category in CATEGORIES:
        rest = set(normalizers.Replace(Regex(rf"\p{{{category}}}"), "").normalize_str(text))
        found |= {c: category for c in CODE_POINTS if chr(c) not in rest}
    return found


def pcre2_categories() -> dict[int, str]:
    pcre2 = ctypes.CDLL("libpcre2-8.so.0")
    pcre2.pcre2_compile_8.restype = ctypes.c_void_p
    pcre2.pcre2_match_data_create_8.restype = ctypes.c_void_p
    pcre2.pcre2_get_ovector_pointer_8.restype = ctypes.POINTER(ctypes.c_size_t)
    data = ctypes.c_void_p(pcre2.pcre2_match_data_create_8(4, None))
    ovector = pcre2.pcre2_get_ovector_pointer_8(data)
    text = "".join(map(chr, CODE_POINTS)).encode()
    at = {}
    offset = 0
    for c in CODE_POINTS:
        at[offset] = c
        offset += len(chr(c).encode())
    found = {}
    for category in CATEGORIES:
        pattern = rf"\p{{{category}}}".encode()
        error, where = ctypes.c_int(), ctypes.c_size_t()
        utf_ucp = 0x00080000 | 0x00020000
        code = ctypes.c_void_p(
            pcre2.pcre2_compile_8(pattern, ctypes.c_size_t(len(pattern)), utf_ucp, ctypes.byref(error),
                                  ctypes.byref(where), None)
        )
        pcre2.pcre2_jit_compile_8(code, 1)
        start = 0
        while pcre2.pcre2_match_8(code, text, ctypes.c_size_t(len(text)), ctypes.c_size_t(start), 0x40000000, data, None) > 0:
            found[at[ovector[0]]] = category
            start = ovector[1]
    return found


def ranges(values: dict[int, str]) -> list[tuple[int, int, str]]:
    result: list[tuple[int, int, str]] = []
    for c, value in sorted(values.items()):
        if result and result[-1][1] == c - 1 and result[-1][2] == value:
            result[-1] = (result[-1][0], c, value)
        else:
            result.append((c, c, value))
    return result


def main() -> None:
    reference, pcre2 = reference_categories(), pcre2_categories()
    stand_in = {}
    for c in CODE_POINTS:
        if pcre2[c] == reference[c]:
            stand_in.setdefault((pcre2[c], len(chr(c).encode())), c)
    different = {c: reference[c] for c in CODE_POINTS if pcre2[c] != reference[c]}
    different[0x180E] = "Cf"  # PCRE2's \s has it, the White_Space property does not
    stand_in["Cf", 3] = 0x200B

    normalize = normalizers.NFC().normalize_str

    def reorders(c: int) -> bool:
        return any(
            normalize(text) != text for p in CCC_PROBES for text in ("q" + chr(p) + chr(c), "q" + chr(c) + chr(p))
        )

    marks = [c for c in CODE_POINTS if regex.fullmatch(r"\P{ccc=0}", chr(c)) and not reorders(c)]
    inert = dict.fromkeys(sorted(set(marks) | set(NEW_COMPOSITIONS)), "")

    lines = [
        "// Written by tests/io/text/make_unicode_tables.py against tokenizers "
        f"{tokenizers.__version__}; do not edit.",
        "// clang-format off",
        "",
        "// {first, last, category, a code point of that category with as many UTF-8 bytes}",
        "constexpr NewCategory new_categories[] = {",
    ]
    for first, last, category in ranges(different):
        size = len(chr(first).encode())
        assert size == len(chr(last).encode())
        lines.append(f"  {{0x{first:X}, 0x{last:X}, \"{category}\", 0x{stand_in[category, size]:X}}},")
    lines += ["};", "", "// {first, last}: the reference's normalizer leaves these as they are", "constexpr Inert inert_ranges[] = {"]
    lines += [f"  {{0x{first:X}, 0x{last:X}}}," for first, last, _ in ranges(inert)]
    lines += ["};", "// clang-format on", ""]
    Path(sys.argv[1]).write_text("\n".join(lines))


if __name__ == "__main__":
    main()
