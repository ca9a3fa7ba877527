#!/usr/bin/env bash
# pictures.sh PACELINE: the embedded model reads what is drawn, and its digest is one over layouts. Pictures that are damaged, hostile, absent or too large are refused by check and by rollout, with
# the line and the file, or left out; strange ones that are whole are read. How pictures are processed is of the run.
source "$(dirname "$0")/lib.sh"
vision=$root/tests/models/parity_pictures/qwen2.5-vl
small=(--set model.path="$vision" --set prompts.samples=2 --set sampling.max_tokens=12 --set sampling.ignore_eos=true
  --set engine.threads=1)

# line FILE...: a prompt that shows these.
line() {
  local files=("$@") tokens="" names=""
  for file in "${files[@]}"; do tokens+="302,300,303," names+="${names:+, }\"$file\""; done
  echo "{\"prompt_tokens\": [5,${tokens}7], \"images\": [$names]}"
}
# refused WHAT PATTERN [ARG...]: check and a rollout on two ranks end with 65 within a minute, and say PATTERN once.
refused() {
  local what=$1 pattern=$2 code command pid
  shift 2
  for command in check rollout; do
    code=0
    rm -rf "$work/bad"
    at_once "$here/launch.sh" 2 "$paceline" $command "$config" --output "$work/bad" "${backend[@]}" "${small[@]}" "$@" \
      >"$work/bad.log" 2>&1 &
    pid=$!
    within_a_minute "$pid" || code=$?
    same "$what: $command" 65 "$code"
    if [ "$(grep -cE "^paceline: .*$pattern" "$work/bad.log" || true)" = 1 ]; then ok "$what: $command says why"
    else fail "$what: $command does not say '$pattern' once: $(cat "$work/bad.log")"; fi
  done
}

cp "$vision/picture-0.png" "$work/good.png"
python3 - "$root/tests/io/images/pictures" "$work" <<'PY'
import pathlib, struct, sys, zlib
of, work = map(pathlib.Path, sys.argv[1:])
jpeg, png = (of / "420.jpg").read_bytes(), (of / "rgb.png").read_bytes()
lossy, lossless = (of / "lossy.webp").read_bytes(), (of / "lossless.webp").read_bytes()

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

def segment(marker, data):
    return jpeg[:2] + bytes([0xFF, marker]) + struct.pack(">H", len(data) + 2) + data + jpeg[2:]

def header(width, height, depth=8, colour=2):
    return png[:8] + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))

frame = jpeg.index(b"\xff\xc0")
rubbish = bytes(i * 37 % 256 for i in range(3000))
files = {
    # Refused.
    "cut.jpg": jpeg[:len(jpeg) // 2], "cut.png": png[:900], "cut.webp": lossless[:900], "head.jpg": jpeg[:2],
    "empty.png": b"", "words.png": b"not a picture", "film.gif": b"GIF89a" + bytes(40),
    "huge.jpg": jpeg[:frame + 5] + struct.pack(">HH", 65500, 65500) + jpeg[frame + 9:],
    "huge.png": header(65535, 65535) + png[33:],
    "huge.webp": b"RIFF" + struct.pack("<I", 22 + len(lossy)) + b"WEBPVP8X" + struct.pack("<I", 10) + bytes(4)
                 + b"\xff\xff\x00\xff\xff\x00" + lossy[12:],
    "flat.png": header(65535, 1) + chunk(b"IDAT", zlib.compress(bytes(3 * 65535 + 1))) + chunk(b"IEND", b""),
    "none.png": header(0, 7) + png[33:],
    # Whole, with what a decoder must not trust.
    "icc.jpg": segment(0xE2, b"ICC_PROFILE\x00\x01\x01" + rubbish), "exif.jpg": segment(0xE1, b"Exif\x00\x00" + rubbish),
    "icc.png": png[:33] + chunk(b"iCCP", b"p\x00\x00" + zlib.compress(rubbish)) + png[33:],
    "exif.png": png[:33] + chunk(b"eXIf", rubbish) + png[33:],
    "plain.jpg": jpeg, "plain.png": png,
}
for name, data in files.items():
    (work / name).write_bytes(data)
for name in ("cmyk.jpg", "rgb-16.png", "grey-16.png", "rgba.png", "grey-alpha.png", "palette-transparent.png", "alpha.webp",
             "animated.webp", "animated.png", "lossy.webp", "lossless.webp", "progressive.jpg", "interlaced.png"):
    (work / name).write_bytes((of / name).read_bytes())
PY
prompts=(--set prompts.path="$work/p.jsonl")
hostile() {  # FILE PATTERN
  { line good.png; line good.png "$1"; } >"$work/p.jsonl"
  refused "$1" "p.jsonl:2:[0-9]+: 'images': picture 2: $work/$1: $2" "${prompts[@]}"
}
hostile cut.jpg "a JPEG that is cut off"
hostile head.jpg "expected a JPEG, PNG or WebP picture, found something else"
hostile cut.png "a PNG that is cut off"
hostile cut.webp "a WebP that is"
hostile empty.png "the file is empty"
hostile words.png "expected a JPEG, PNG or WebP picture, found something else"
hostile film.gif "expected a JPEG, PNG or WebP picture, found a GIF"
hostile huge.jpg "a picture of 65500 x 65500 pixels; expected at most 67108864 in all"
hostile huge.png "a picture of 65535 x 65535 pixels; expected at most 67108864 in all"
hostile huge.webp "a damaged WebP"
hostile flat.png "a picture of 65535 x 1 pixels; expected at most 200 times as many on one side as on the other"
hostile none.png "a damaged PNG"
hostile absent.png "cannot be read: No such file or directory"

# Places, and the context of 512.
{ line good.png; echo '{"prompt_tokens": [5,302,300,303,7], "images": ["good.png", "good.png"]}'; } >"$work/p.jsonl"
refused "more pictures than places" "p.jsonl:2:.*the prompt has 1 of token 300, which stands for pictures; expected 2" "${prompts[@]}"
echo '{"prompt_tokens": [5,302,300,303,302,300,7], "images": ["good.png"]}' >"$work/p.jsonl"
refused "more places than pictures" "p.jsonl:1:.*the prompt has 2 of token 300.*expected 1" "${prompts[@]}"
echo '{"prompt_tokens": [5,302,300], "images": ["good.png"]}' >"$work/p.jsonl"
refused "a picture at the end" "p.jsonl:1:.*the prompt ends with a picture; expected a token behind it" "${prompts[@]}"
full=()
for _ in $(seq 42); do full+=(good.png); done
{ line good.png; line "${full[@]}"; } >"$work/p.jsonl"
refused "pictures that the context has no room for" "p.jsonl:2:.*has [0-9]+ tokens, 504 of them its pictures' rows, the limit is 500" "${prompts[@]}"
refused "they are not truncated" "p.jsonl:2:.*a prompt with pictures is not truncated" "${prompts[@]}" --set prompts.overlong=truncate
rollout 1 "$work/skipped" "${prompts[@]}" --set prompts.overlong=skip || fail "overlong: skip: $(tail -n 3 "$work/skipped.log")"
same "they are left out" 1 "$("$paceline" show "$work/skipped" 2>/dev/null | grep -c '^0:')"

# What is strange and whole is read, with the same pixels whatever stands beside them.
for file in cmyk.jpg rgb-16.png grey-16.png rgba.png grey-alpha.png palette-transparent.png alpha.webp animated.webp animated.png \
  lossy.webp lossless.webp progressive.jpg interlaced.png; do line "$file"; done >"$work/p.jsonl"
rollout 2 "$work/strange" "${prompts[@]}" || fail "strange pictures: $(tail -n 3 "$work/strange.log")"
same "strange pictures are read" 13 "$("$paceline" show "$work/strange" 2>/dev/null | grep -c '^[0-9]')"
beside() {  # WHAT FILE...
  for file in "${@:2}"; do line "$file" | sed "s/^{/{\"uid\": \"one\", /"; done >"$work/p.jsonl"
  rm -rf "$work/beside"
  rollout 1 "$work/beside" "${prompts[@]}" || fail "$1: $(tail -n 3 "$work/beside.log")"
  digest "$work/beside"
}
jpeg=$(beside plain plain.jpg) png=$(beside plain plain.png)
same "rubbish as a JPEG's profile" "$jpeg" "$(beside icc icc.jpg)"
same "rubbish as a JPEG's EXIF" "$jpeg" "$(beside exif exif.jpg)"
same "rubbish as a PNG's profile" "$png" "$(beside icc icc.png)"
same "rubbish as a PNG's EXIF" "$png" "$(beside exif exif.png)"
if [ "$jpeg" = "$png" ]; then fail "another picture gives the same"; else ok "another picture differs"; fi

# A run goes on with the pictures that it began with, processed as then.
cp -r "$vision" "$work/model"
cp "$work/plain.png" "$work/mine.png"
{ line mine.png; line plain.jpg; } >"$work/p.jsonl"
begun=("${prompts[@]}" --set model.path="$work/model")
rollout 1 "$work/begun" "${begun[@]}" --set limits.wall_clock=60 --set limits.margin=59.99 || same "stopped at once" 75 "$?"
resumed() {  # WHAT CODE PATTERN
  local code=0
  at_once rollout 1 "$work/begun" "${begun[@]}" --resume || code=$?
  same "$1: exit code" "$2" "$code"
  if grep -qE "^paceline: .*$3" "$work/begun.log"; then ok "$1: $(grep -E "^paceline: .*$3" "$work/begun.log" | cut -c1-150)"
  else fail "$1: $(cat "$work/begun.log")"; fi
}
sed -i 's/^{/{"image_mean": [0.5, 0.5, 0.5], /' "$work/model/preprocessor_config.json"
resumed "resumed with other pixels" 64 "model_fingerprint"
cp "$vision/preprocessor_config.json" "$work/model"
cp "$work/good.png" "$work/mine.png"
resumed "resumed with another picture" 64 "prompts_fingerprint"
cp "$work/plain.png" "$work/mine.png"
rollout 2 "$work/begun" "${begun[@]}" --resume || fail "resumed: $(tail -n 3 "$work/begun.log")"
rollout 1 "$work/whole" "${begun[@]}" || fail "not stopped: $(tail -n 3 "$work/whole.log")"
same "resumed with what it began with" "$(digest "$work/whole")" "$(digest "$work/begun")"

# The embedded model: configs/pictures.yaml as it is, with a reward, and its digest.
config=$root/configs/pictures.yaml
small=(--set prompts.samples=4 --set engine.threads=1)
rollout 1 "$work/read" --set speculation.mode=plain || { cat "$work/read.log"; exit 1; }
reference=$(digest "$work/read")
"$paceline" report "$work/read" --json --html "$work/read.html" >"$work/json"
if python3 - "$work/json" <<'PY'
import json, sys
rewards = json.load(open(sys.argv[1]))["runs"][0]["rewards"]
print("mean reward", rewards["mean"], "of", rewards["scored"])
sys.exit(rewards["scored"] != 64 or not 0.4 < rewards["mean"] < 1)
PY
then ok "the embedded model reads pictures"; else fail "the embedded model does not read pictures"; fi
same "its pictures are in the report" 15 "$(grep -o '<img src="data:image/png' "$work/read.html" | wc -l)"
run "2 ranks, suffix drafts" 2
run "TP 2 on 4 ranks, batch 3, prefill chunk 7, KV blocks of 16" 4 --set layout.verifier_tp=2 --set engine.max_batch=3 \
  --set engine.prefill_chunk=7 --set engine.kv_block=16
run "chunks and moves between TP 1 and 2" 3 --set layout.verifier_tp=[2,1] --set schedule.chunk=8 --set test.shuffle=[moves] \
  --set schedule.move_kv=both
run "a drafter rank" 2 --set layout.drafters=1 --set speculation.policy=fixed --set speculation.max_length=3 \
  --set "speculation.drafters=[{method: model, path: $root/configs/models/pictures}]"
python3 "$here/random_head.py" "$work/head" "$root/configs/models/pictures" eagle_aux_hidden_state_layer_ids=[0,1,2]
run "TP 2, a head of EAGLE-3, which knows placeholders alone" 2 --set layout.verifier_tp=2 --set speculation.policy=fixed \
  --set speculation.max_length=3 --set "speculation.drafters=[{method: eagle3, path: $work/head}]"
finish
