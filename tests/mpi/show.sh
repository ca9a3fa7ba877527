#!/usr/bin/env bash
# show.sh PACELINE: prompts whose fields have names of their own, and what `paceline show` prints of their responses: an
# overview, one response, all of a prompt, of a run that was stopped too; nothing that a terminal obeys; errors.
source "$(dirname "$0")/lib.sh"

# says WHAT PATTERN FILE: a line of the file matches.
says() { if grep -qE -- "$2" "$3"; then ok "$1"; else fail "$1: no line is '$2':"; cat "$3"; fi; }
# show RUN [P:S...]: into $work/out and $work/err.
show() { "$paceline" show "$@" >"$work/out" 2>"$work/err"; }
# refused WHAT CODE PATTERN ARGS...
refused() {
  local what=$1 expected=$2 pattern=$3 code=0
  shift 3
  show "$@" || code=$?
  same "$what: exit code" "$expected" "$code"
  says "$what" "$pattern" "$work/err"
}

cat >"$work/questions.jsonl" <<'LINES'
{"question": "Sort these numbers: 41, 7, 23", "answer": "7, 23, 41", "id": "first"}
{"question": "What is \u001b[31m3 + 4\u009b0m?", "answer": "7", "id": "bad\u001b]0;title\u0007"}
LINES
keys=(--set prompts.path="$work/questions.jsonl" --set "prompts.keys={messages: question, ground_truth: answer, uid: id}"
  --set reward.method=match --set reward.rule=exact)
rollout 1 "$work/run" "${keys[@]}" || fail "a run of questions and answers: $(tail -n 3 "$work/run.log")"

show "$work/run" || fail "an overview: $(cat "$work/err")"
same "an overview: a line a prompt" 3 "$(wc -l <"$work/out")"
says "an overview: which is longest, lengths, responses, reward, prompt" \
  '^0:[0-2] +[0-9]+ +[0-9.]+ +3 +[01]\.[0-9]{3}  .*Sort these' "$work/out"
same "an overview: nothing on stderr" "" "$(cat "$work/err")"

# A system prompt that all begin with tells nothing: the last thing that the user says is shown.
cat >"$work/turns.jsonl" <<'LINES'
{"messages": [{"role": "system", "content": "You are a helpful assistant of many words, as all are."}, {"role": "user", "content": "first"}, {"role": "assistant", "content": "x"}, {"role": "user", "content": "Sort: 9, 4"}], "answer": "4, 9"}
{"prompt": "plain text", "answer": "1"}
{"prompt_tokens": [83, 111, 114], "answer": "1"}
LINES
rollout 1 "$work/turns" --set prompts.path="$work/turns.jsonl" --set prompts.samples=1 --set sampling.max_tokens=8 ||
  fail "a run of turns: $(tail -n 3 "$work/turns.log")"
show "$work/turns" || fail "an overview of turns: $(cat "$work/err")"
says "an overview: the last user message" '^0:0 +[0-9]+ +[0-9.]+ +1 +-  Sort: 9, 4$' "$work/out"
says "an overview: text" '  plain text$' "$work/out"
says "an overview: token ids, decoded" '^2:0 .*  [^ ]+$' "$work/out"

show "$work/run" 0:1 || fail "a response: $(cat "$work/err")"
says "a response: its prompt" '^prompt 0 \(first\), [0-9]+ tokens, ground truth 7, 23, 41$' "$work/out"
says "a response: the prompt's text, as the model has it" '^Sort these numbers: 41, 7, 23<\|im_end\|>$' "$work/out"
says "a response: length, end, reward, weights" \
  '^response 0:1, [0-9]+ tokens, ended by (stop_id|length), reward [01], weight version 0$' "$work/out"
says "a response: log-probabilities" '^log-probability: mean -?[0-9.]+ per sampled token, .* least -[0-9.]+, of token [0-9]+ \(' "$work/out"
same "a response: one of them" 1 "$(grep -c '^response ' "$work/out")"
show "$work/run" 1 0:2 || fail "all of a prompt, and one: $(cat "$work/err")"
same "all of a prompt, and one" "1:0,1:1,1:2,0:2," "$(sed -n 's/^response \([0-9:]*\),.*/\1/p' "$work/out" | tr '\n' ',')"
says "control characters are spelled" 'What is \\x1b\[31m3 \+ 4\\x9b0m\?' "$work/out"
says "those of a uid too" '^prompt 1 \(bad\\x1b\]0;title\\x07\)' "$work/out"
if LC_ALL=C grep -q $'[\x01-\x08\x0b-\x1f\x7f]\|\xc2\x9b' "$work/out"; then fail "a control character is printed"; else ok "none is printed"; fi

refused "no such prompt" 64 "2:0: there is no prompt 2: the run has 2 prompts, numbered from 0 to 1" "$work/run" 2:0
refused "no such sample" 64 "0:3: there is no sample 3: a prompt has 3 samples, numbered from 0 to 2" "$work/run" 0:3
refused "no response" 64 "'0;1': expected PROMPT:SAMPLE, such as 4:1" "$work/run" "0;1"
refused "half of one" 64 "'0:': expected PROMPT:SAMPLE" "$work/run" 0:
refused "no run" 64 "not a run directory" "$work"

# Pictures: their files and sizes, and in the report beside the responses, small ones as they are.
vision=$root/tests/models/parity_pictures/qwen2.5-vl
cp "$vision/picture-0.png" "$work/small.png"
cp "$vision/picture-1.png" "$work/other.png"
cp "$vision/picture-2.png" "$work/large.png"
head -c 70000 /dev/zero >>"$work/large.png"  # behind the end, which decoders leave alone
bytes=$(base64 -w0 "$vision/picture-2.png")
cat >"$work/pictures.jsonl" <<LINES
{"uid": "<b>one</b>", "answer": "a&b", "prompt_tokens": [5, 302, 300, 303, 7], "images": ["small.png"]}
{"uid": "none", "prompt_tokens": [5, 7, 9]}
{"uid": "two", "prompt_tokens": [302, 300, 303, 302, 300, 303, 7], "images": [{"bytes": "$bytes"}, "other.png"]}
{"uid": "large", "prompt_tokens": [302, 300, 303, 8], "images": ["large.png"]}
LINES
shown=(--set model.path="$vision" --set prompts.path="$work/pictures.jsonl" --set sampling.max_tokens=8 --set sampling.ignore_eos=true)
rollout 1 "$work/shown" "${shown[@]}" || fail "a run of pictures: $(tail -n 3 "$work/shown.log")"
show "$work/shown" 0:0 2:1 || fail "pictures: $(cat "$work/err")"
says "a picture" "^picture 1, 6 x 8 patches, from token 3 on: $work/small.png\$" "$work/out"
says "a picture's rows are one token" '^5 302 300 303 7$' "$work/out"
says "a picture in its prompt" "^picture 1, 2 x 16 patches, from token 2 on: in the prompt, $(stat -c %s "$vision/picture-2.png") bytes\$" "$work/out"
says "the next one" "^picture 2, [0-9]+ x [0-9]+ patches, from token [0-9]+ on: $work/other.png\$" "$work/out"
cp "$work/small.png" "$work/other.png"
"$paceline" report "$work/shown" --html "$work/report.html" >"$work/out" 2>"$work/err" || fail "a report of pictures: $(cat "$work/err")"
html=$work/report.html
same "pictures that are embedded" 2 "$(grep -o '<img src="data:image/png;base64,[A-Za-z0-9+/=]*" alt="">' "$html" | wc -l)"
same "as they are" 1 "$(grep -cF "<img src=\"data:image/png;base64,$(base64 -w0 "$work/small.png")\"" "$html" || true)"
same "one from the prompt" 1 "$(grep -cF "base64,$bytes\"" "$html" || true)"
says "one that changed" 'class="gone">[^<]*prompt 2: picture 2: .*other.png: the file is another one than when the run began<' "$html"
says "one that is too large" "class=\"gone\">not shown: [0-9]+ bytes; a report embeds at most 65536" "$html"
says "names are escaped" 'prompt 0 \(&lt;b&gt;one&lt;/b&gt;\)' "$html"
same "a prompt without pictures is left out" 3 "$(grep -c '<article>' "$html" || true)"
same "its responses" 6 "$(grep -cE '<h4>response [01], 8 tokens</h4>' "$html" || true)"
same "and how many there are beside" 3 "$(grep -c 'and 1 response more</p>' "$html" || true)"
if grep -o 'src="[^"]\{5\}\|href=\|<script\|url(' "$html" | grep -v '^src="data:$' >"$work/asked"; then fail "the HTML asks for other files: $(cat "$work/asked")"; else ok "the HTML stands alone"; fi

# A model that has gone leaves token ids.
cp -r "$root/configs/models/target" "$work/model"
rollout 1 "$work/gone" "${keys[@]}" --set model.path="$work/model" --set prompts.samples=1 || fail "a run of a model that goes"
rm -r "$work/model"
show "$work/gone" 0:0 || fail "a run without its model: $(cat "$work/err")"
says "token ids where there is no tokenizer" '^[0-9]+( [0-9]+){15}$' "$work/out"
says "and why" 'token ids are shown, because no tokenizer can be loaded: .*tokenizer.json' "$work/err"

# A run that was stopped: what is finished, and what is begun.
more=(--set prompts.samples=16 --set sampling.max_tokens=1500 --set sampling.ignore_eos=true --set engine.max_batch=2)
start 1 "$work/stopped" "${more[@]}" --set output.flush_seconds=0
until grep -qsE '^[^0-9]*[1-9][0-9]*/512 finished' "$work/stopped.log" || ! kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
kill -USR1 "$pid"
code=0; wait "$pid" || code=$?
same "stopped: exit code" 75 "$code"
show "$work/stopped" || fail "a stopped run: $(cat "$work/err")"
says "a stopped run: how much of it is there" '^paceline: [0-9]+ of 512 responses are finished' "$work/err"
says "a stopped run: a long overview is cut" '^\.\.\. and 2 prompts more' "$work/out"
partial=$("$paceline" show "$work/stopped" $(seq 0 31) 2>/dev/null | grep -c 'tokens\?, not finished')
same "a stopped run: what is begun is shown" 2 "$partial"
refused "a stopped run: no such prompt" 64 "the run has 32 prompts, numbered from 0 to 31" "$work/stopped" 32:0
show "$work/stopped" 31:15 || fail "a response that is to come: $(cat "$work/err")"
says "a response that is to come" '^31:15: no response yet$' "$work/out"

# A field that a line has not.
sed 's/"question"/"query"/' "$work/questions.jsonl" >"$work/queries.jsonl"
code=0; rollout 1 "$work/queries" "${keys[@]}" --set prompts.path="$work/queries.jsonl" || code=$?
same "a line without a named field: exit code" 65 "$code"
says "a line without a named field" "queries.jsonl:1:1: no 'question' \(prompts.keys.messages\); (did you mean|the line has) " "$work/queries.log"
finish
