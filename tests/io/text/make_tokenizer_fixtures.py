"""Write fixtures/: four small tokenizers, a corpus of mixed scripts and what the `tokenizers` library makes of it.

The test (test_parity.cpp) needs no Python; this script is run when the fixtures should change:

    make_tokenizer_fixtures.py [FOLDER]

Files, all gzip, integers little-endian:
    NAME.json.gz     tokenizer.json of gpt2, qwen2, llama3: byte-level BPE with that pre-tokenizer; and of llama2: a BPE of
                     SentencePiece's with byte fallback, converted as Llama 2's is
    corpus.gz        lines as [u32 bytes][UTF-8]; a line may hold any character, newlines too; that of llama2 is
                     corpus_llama2.gz
    NAME.ids.gz      for each line [u16 count][u16 ids]
    NAME.decoded.gz  for every 8 lines u64: FNV-1a of the decoded ids, each text followed by 0xFF: first with special
                     tokens and then without
    NAME.cut.gz      sequences cut anywhere, so that UTF-8 breaks: [u16 count][u16 ids][u16 bytes][decoded text]
gpt2_prefix.* is gpt2 with add_prefix_space, on every fourth line. llama2_NAME.* is llama2 with a Metaspace pre-tokenizer in
place of its normalizer: first as Mistral 0.3 has it, and cut and never, on every fourth line; their decoders are llama2's.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import struct
import sys
import unicodedata
from pathlib import Path

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SEED = 20
LINES = 12_000
LLAMA2_LINES = 3000
VOCABULARY = 2000
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)

WORDS = """the of and to in a is that for it as was with be by on not he his but at are this have from or had an they
which one you were all her she there would their we him been has when who will no more if out so up said what its about
than into them can only other time new some could these two may first then do any like my now over such our man me even
most made after also did many off before must well back through years much where your way down should because each just
state people those too how little good world make very year still own see work men day get here between both life under
never same another know while last might us great old since against go came right used take three
l'été garçon naïve Größe Straße façade año niño São coração Žluťoučký kůň Łódź İstanbul ığdır fjord Ångström œuvre
Привет мир который может быть человек время году Україна їжак ёлка Ελλάδα και το ένα ότι λόγος ἄνθρωπος Ὀδυσσεύς
مرحبا العالم اللغة العربية ١٢٣ سلام דור שלום עולם בְּרֵאשִׁית हिन्दी नमस्ते दुनिया क्षेत्र १२३ বাংলা தமிழ் తెలుగు
สวัสดีชาวโลก ภาษาไทย กำลัง ๑๒๓ 中文 世界 你好 漢字 的 一 是 不 了 在 人 有 我 日本語 こんにちは カタカナ ひらがな です 한국어 안녕하세요
세계 가나다 ქართული հայերեն አማርኛ བོད་ ខ្មែរ မြန်မာ ລາວ ᠮᠣᠩᠭᠣᠯ ᏣᎳᎩ ⵜⴰⵎⴰⵣⵉⵖⵜ Tiếng Việt đường phố
don't it's we're you'll I'd they've I'm DON'T IT'S WE'RE 'S 'sS o'clock rock'n'roll ''ll 'ſ Kelvin""".split()

CODE = [
    "def f(x):\n    return x**2  # square\n", "for (int i = 0; i < n; ++i) { a[i] += b[i]; }\r\n", "\t\tif x != None:\n",
    "SELECT * FROM t WHERE a >= 10 AND b LIKE '%x%';", "<div class=\"a\">&nbsp;</div>", "std::vector<int> v{1,2,3};",
    "x = 3.14159e-10 + 0xFF00 - 1_000_000", "https://example.org/a?b=c&d=%20#e", "user.name+tag@example.com",
    "$\\frac{a}{b} = \\sqrt{2}$", "```python\nprint('hi')\n```", "{\"k\": [1, 2, null]}", "a->b::c<d>&&e||!f", "#!/bin/sh\n\n\n",
]  # fmt: skip
EMOJI = ["😀", "👩‍👩‍👧‍👦", "👍🏽", "🇩🇪🇫🇷", "❤️", "🏳️‍🌈", "✈️", "🧑‍🚀", "☕", "5️⃣", "🫠", "🪿"]
SPACES = [" ", "  ", "   ", "\n", "\r\n", "\r", "\t", "\u00a0", "\u2003", "\u3000", "\u2028", "\u2029", "\u0085", "\u200b",
          "\u180e", "\u202f", "\u1680", "\v", "\f", " \n ", "\n\n\n", "\t \t", "\x1c", "\ufeff", "        "]  # fmt: skip
ODD = ["\x00", "\x01", "\x07", "\x1b[0m", "\x7f", "\u200d", "\u200e", "\u202e", "\ufffd", "\ufffe", "\uffff", "\ue000", "\U0010ffff",
       "\U000e0041", "\u00ad", "\u2060", "e\u0301", "a\u0308\u0323", "\u212b", "\u2126", "\ufb01", "\ufb05", "\u1e9b\u0323", "\u0958",
       "\u0344", "\u1100\u1161\u11a8", "\uac00\u11a8", "q\u0307\u0323", "\u0f71\u0f72\u0f74", "\u2adc", "\U0001d15e", "\uf900",
       "\U0002f800", "\u0340", "\u0387", "\u2329", "\u3099", "\u304b\u3099"]  # fmt: skip
DIGITS = ["0123456789", "٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "๐๑๒๓๔๕๖๗๘๙", "０１２３４５６７８９", "𝟎𝟏𝟐𝟑", "½⅓²³①②ⅣⅫ〇"]
# Letters, marks and digits that Unicode 9 to 16 added: engines of different age disagree on them.
NEW = [*range(0x8BE, 0x8D4), *range(0x1C80, 0x1C8B), *range(0xA7C0, 0xA7DD), *range(0x10D40, 0x10D66), *range(0x11F00, 0x11F5A),
       *range(0x16D40, 0x16D7A), *range(0x1E030, 0x1E090), *range(0x1E4D0, 0x1E4FA), *range(0x31350, 0x31360), *range(0x2EBF0, 0x2EC00),
       *range(0x10EFA, 0x10F00), *range(0x10D69, 0x10D6E), *range(0x11930, 0x11945), *range(0x1CC00, 0x1CC20), 0x1ACE, 0x1DFA,
       0xECE, 0xCF3, 0x897, 0x2FFC, 0x1171E, 0xA7F2, 0x61D, 0x20C0]  # fmt: skip

COMMON = [
    AddedToken("<|endoftext|>", special=True, normalized=False),
    AddedToken("<|im_start|>", special=True, normalized=False),
    AddedToken("<|im_end|>", special=True, normalized=False),
    AddedToken("<tool>", special=False, normalized=False),
    AddedToken("<tool>s", special=False, normalized=False),
    AddedToken("<left>", special=True, normalized=False, lstrip=True),
    AddedToken("<right>", special=True, normalized=False, rstrip=True),
    AddedToken("<both>", special=False, normalized=False, lstrip=True, rstrip=True),
    AddedToken("word", special=False, normalized=False, single_word=True),
    AddedToken("café", special=False, normalized=True),
    AddedToken("cafe\u0301s", special=False, normalized=True),
    AddedToken("\u6e2c\u8a66", special=True, normalized=False),
    AddedToken("    ", special=False, normalized=False),
]
LLAMA_ONLY = [
    AddedToken(t, special=True, normalized=False)
    for t in ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
]
LLAMA2_ONLY = [
    AddedToken("[INST]", special=True, normalized=False),
    AddedToken("\u2581\u2581", special=False, normalized=False),
    AddedToken("<0x41>b", special=False, normalized=True),
]
LLAMA2_MARKERS = [t.content for t in LLAMA2_ONLY] + ["<s>", "</s>", "<0x41>", "\u2581", " \u2581a"]
MARKERS = [t.content for t in COMMON + LLAMA_ONLY] + ["cafe\u0301", "cafés", "<|im_start", "|>", "wordword", "word\u0301", "<tool", " word "]


def long_word(rng: random.Random) -> str:
    n = rng.choice([24, 25, 26, 60, 100, 300])
    pool = rng.choice(["ab", "abcdefghij", "xyz-_", "аб", "漢字", "é", "=", "\u0301", "a\u0301"])
    return "".join(rng.choice(pool) for _ in range(n))


def piece(rng: random.Random) -> str:
    kind = rng.randrange(100)
    if kind < 42:
        word = rng.choice(WORDS)
        return rng.choice([word, word, word, word.upper(), word.capitalize(), unicodedata.normalize("NFD", word)])
    if kind < 58:
        return rng.choice(SPACES)
    if kind < 64:
        return "".join(rng.choice(rng.choice(DIGITS)) for _ in range(rng.randint(1, 6)))
    if kind < 70:
        return "".join(rng.choice(".,;:!?-–—…'\"()[]{}<>/\\|@#$%^&*+=~`«»“”‘’„¿¡§¶†•。、，！？「」") for _ in range(rng.randint(1, 4)))
    if kind < 74:
        return rng.choice(EMOJI)
    if kind < 79:
        return rng.choice(ODD)
    if kind < 84:
        return rng.choice(MARKERS)
    if kind < 87:
        return chr(rng.choice(NEW))
    if kind < 90:  # any code point of the first planes; surrogates, as Python's lone ones, become U+FFFD
        return chr(rng.randrange(0x20000)).encode("utf-8", "replace").decode()
    if kind < 91:
        return chr(rng.randrange(0x110000)).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if kind < 96:
        return chr(rng.choice([0x300, 0x301, 0x308, 0x323, 0x327, 0x345, 0x5B0, 0x64B, 0x93C, 0x94D, 0xE38, 0x3099, 0x1DCE, 0x20D0]))
    if kind < 98:
        return rng.choice(CODE)
    return long_word(rng)


def line(rng: random.Random) -> str:
    parts = []
    spaced = rng.random() < 0.7
    for _ in range(rng.randint(1, 9)):
        parts.append(piece(rng))
        if spaced and rng.random() < 0.8:
            parts.append(" ")
    return "".join(parts)


def texts_for(name: str) -> list[str]:
    rng = random.Random(f"{SEED} {name}")
    return [" ".join(rng.choice(WORDS) for _ in range(12)) for _ in range(2000)] + CODE * 40


def train_sentencepiece() -> Tokenizer:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts_for("llama2")), model_writer=model, model_type="bpe", vocab_size=VOCABULARY,
        byte_fallback=True, character_coverage=0.98, normalization_rule_name="identity", remove_extra_whitespaces=False,
        split_digits=True, allow_whitespace_only_pieces=True, num_threads=1, minloglevel=2,
    )  # fmt: skip
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    vocab = {pieces.id_to_piece(i): i for i in range(pieces.get_piece_size())}
    # Whatever two tokens make a third may merge to it, the likeliest of these first.
    merges = [
        (-pieces.get_score(merged), vocab[left], vocab[right], left, right)
        for token, merged in vocab.items()
        for left, right in ((token[:i], token[i:]) for i in range(1, len(token)))
        if left in vocab and right in vocab
    ]
    merges = [(left, right) for *_, left, right in sorted(merges)]
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", vocab["<s>"])]
    )
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ("<unk>", "<s>", "</s>")])
    tokenizer.add_tokens(COMMON + LLAMA2_ONLY)
    return tokenizer


def train(name: str) -> Tokenizer:
    texts = texts_for(name)
    tokenizer = Tokenizer(models.BPE(ignore_merges=name == "llama3"))
    if name == "gpt2":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(QWEN2 if name == "qwen2" else LLAMA3), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ])  # fmt: skip
    if name == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens(COMMON)
    if name == "llama3":
        tokenizer.add_tokens(LLAMA_ONLY)
        bos = tokenizer.token_to_id("<|begin_of_text|>")
        template = processors.TemplateProcessing(
            single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
            special_tokens=[("<|begin_of_text|>", bos)],
        )  # fmt: skip
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), template])
    else:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def as_json(tokenizer: Tokenizer, name: str) -> str:
    document = json.loads(tokenizer.to_str())
    model = document["model"]
    model["merges"] = [list(m) if isinstance(m, list) else m.split(" ") for m in model["merges"]]
    if name == "gpt2":  # the older form
        model["merges"] = [" ".join(m) for m in model["merges"]]
    if name == "llama3":  # tokens that the merges cannot reach, which ignore_merges alone gives
        assert model["ignore_merges"]
        model["merges"] = [m for i, m in enumerate(model["merges"]) if i % 10 != 9]
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def fnv(data: bytes, state: int) -> int:
    for byte in data:
        state = ((state ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return state


def write(path: Path, data: bytes) -> None:
    path.write_bytes(gzip.compress(data, 9, mtime=0))


def bytes_of(name: str) -> list[str]:
    if name == "llama2":
        return [f"<0x{byte:02X}>" for byte in range(256)]
    return sorted(pre_tokenizers.ByteLevel.alphabet())


def metaspaced(text: str, scheme: str, split: bool) -> Tokenizer:
    tokenizer = Tokenizer.from_str(text)
    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme=scheme, split=split)
    return Tokenizer.from_str(tokenizer.to_str())  # added tokens keep their old forms until they are read anew


def write_corpus(folder: Path, name: str, lines: list[str]) -> None:
    encoded = [text.encode() for text in lines]
    write(folder / f"{name}.gz", b"".join(struct.pack("<I", len(e)) + e for e in encoded))


def expect_ids(folder: Path, name: str, tokenizer: Tokenizer, lines: list[str]) -> list[list[int]]:
    ids = [e.ids for e in tokenizer.encode_batch(lines, add_special_tokens=False)]
    write(folder / f"{name}.ids.gz", b"".join(struct.pack(f"<H{len(i)}H", len(i), *i) for i in ids))
    return ids


def expect(folder: Path, name: str, tokenizer: Tokenizer, lines: list[str]) -> None:
    ids = expect_ids(folder, name, tokenizer, lines)
    digests = []
    for start in range(0, len(ids), 8):
        state = 0xCBF29CE484222325
        for i in ids[start : start + 8]:
            for skip in (False, True):
                state = fnv(tokenizer.decode(i, skip_special_tokens=skip).encode() + b"\xff", state)
        digests.append(state)
    write(folder / f"{name}.decoded.gz", struct.pack(f"<{len(digests)}Q", *digests))
    rng = random.Random(SEED)
    cuts = b""
    for _ in range(1500):
        i = rng.choice(ids)
        start = rng.randint(0, len(i))
        cut = i[start : start + rng.randint(0, 8)]
        if rng.random() < 0.3:
            cut = [rng.randrange(tokenizer.get_vocab_size() + 3) for _ in range(rng.randint(1, 6))]
        if rng.random() < 0.2:
            cut = [tokenizer.token_to_id(c) for c in rng.choices(bytes_of(name), k=5)]
        text = tokenizer.decode(cut, skip_special_tokens=True).encode()
        cuts += struct.pack(f"<H{len(cut)}HH", len(cut), *cut, len(text)) + text
    write(folder / f"{name}.cut.gz", cuts)


def write_llama2(folder: Path) -> None:
    rng = random.Random(SEED + 1)
    lines = [line(rng) for _ in range(LLAMA2_LINES)] + ["", " ", "  ", "\u2581"]
    for i in range(0, LLAMA2_LINES, 8):
        marker = rng.choice(LLAMA2_MARKERS)
        lines[i] = rng.choice([marker + lines[i], lines[i] + marker, f"{lines[i]}{marker} {lines[i + 1]}"])
    write_corpus(folder, "corpus_llama2", lines)
    text = as_json(train_sentencepiece(), "llama2")
    write(folder / "llama2.json.gz", text.encode())
    expect(folder, "llama2", Tokenizer.from_str(text), lines)
    expect_ids(folder, "llama2_first", metaspaced(text, "first", False), lines)
    expect_ids(folder, "llama2_cut", metaspaced(text, "always", True), lines[::4])
    expect_ids(folder, "llama2_never", metaspaced(text, "never", False), lines[::4])


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "fixtures"
    folder.mkdir(exist_ok=True)
    rng = random.Random(SEED)
    lines = [line(rng) for _ in range(LINES - 2)] + ["", " "]
    write_corpus(folder, "corpus", lines)
    for name in ("gpt2", "qwen2", "llama3"):
        text = as_json(train(name), name)
        write(folder / f"{name}.json.gz", text.encode())
        expect(folder, name, Tokenizer.from_str(text), lines)
        if name == "gpt2":
            spaced = text.replace('"type":"ByteLevel","add_prefix_space":false', '"type":"ByteLevel","add_prefix_space":true')
            assert spaced != text
            expect(folder, "gpt2_prefix", Tokenizer.from_str(spaced), lines[::4])
    write_llama2(folder)


if __name__ == "__main__":
    main()
