#!/usr/bin/env bash
# What `cmake --install` puts into an empty prefix is all that a user needs: program, configurations
# and embedded models, reader, job scripts, man page and completion.
#
#   installed.sh PACELINE BUILD
source "$(dirname "$0")/lib.sh" "$1"
build=$(realpath "$2")

prefix=$work/prefix
cmake --install "$build" --prefix "$prefix" >"$work/install.log" || { tail "$work/install.log"; exit 1; }
share=$prefix/share/paceline

rollout 2 "$work/source" || fail "the run from the source tree: $(tail -n 3 "$work/source.log")"
reference=$(digest "$work/source")

# From here on as a user who has the prefix alone.
cd "$work"
paceline=$prefix/bin/paceline
config=$share/configs/quickstart.yaml
run "the installed program, configuration and models" 2

python=$(command -v /usr/bin/python3 || command -v python3)
if "$python" -c 'import h5py' 2>/dev/null; then
  same "the installed reader" 96 \
    "$(PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$share/python "$python" -c 'import sys, paceline_reader as p; r = p.open_run(sys.argv[1]); print(len(r))' "$work/run")"
else
  echo "SKIP: the installed reader: no h5py"
fi

# Rewards as the pages and the example print them, with nothing set, beside a configuration of the user's own.
mkdir "$work/user"
cp "$share/configs/gsm8k_reward.py" "$work/user/my_reward.py"
echo '{"prompt": "two and two", "answer": "4", "data_source": "openai/gsm8k"}' >"$work/user/few.jsonl"
printf 'model: {path: %s}\nprompts: {path: few.jsonl}\noutput: {directory: none}\nsampling: {max_tokens: 100}\n' \
  "$share/configs/models/target" >"$work/user/base.yaml"
# in_order WHAT CONFIG [ARG...]: `check` finds all in order, the reward command tried.
in_order() {
  local what=$1 code=0
  shift
  (cd / && env -u PYTHONPATH "$paceline" check "$@" --output "$work/none" --set prompts.path="$work/user/few.jsonl" \
    "${backend[@]}") >"$work/check.log" 2>&1 || code=$?
  same "$what: $(tail -n 1 "$work/check.log" | cut -c1-200)" 0 "$code"
}
printed=0
while read -r line; do
  printed=$((printed + 1))
  { cat "$work/user/base.yaml"; echo "$line"; } >"$work/user/my.yaml"
  if [[ $line == *verl.* ]] && ! python3 -c 'import verl' 2>/dev/null; then echo "SKIP: $line: verl is not there"; continue; fi
  in_order "$line" "$work/user/my.yaml"
done < <(grep -rhE '^reward: \{method: (match|command)' "$prefix/share" --include='*.md' --include='*.yaml')
if [ "$printed" -ge 4 ]; then ok "$printed lines of rewards are printed"; else fail "$printed lines of rewards are printed"; fi
cp "$share/configs/cluster-example.yaml" "$work/user/example.yaml"
in_order "the example for a cluster" "$work/user/example.yaml" --set model.path="$share/configs/models/target" \
  --set "speculation.drafters=[{method: suffix}]" --set sampling.max_tokens=100

same "--version names first the instruction set that a run takes" \
  "$("$paceline" check "$config" --set engine.backend=cpu | sed -n 's/.*backend cpu (\(.*\))$/\1/p')" \
  "$("$paceline" --version | sed -n 's/^backend cpu  *\([a-z0-9_]*\).*/\1/p')"
same "and the libraries" "MPI UCX HDF5" "$("$paceline" --version | sed -nE 's/^(MPI|UCX|HDF5) .*[0-9]+\.[0-9]+\.[0-9]+, built with .*[0-9]+\.[0-9]+.*/\1/p' | xargs)"

help=$("$paceline" --help)
commands=$(sed -n '/^Subcommands:/,/^$/s/^  \([a-z]*\) .*/\1/p' <<<"$help")
same "the man page has a section for every command" "$commands" "$(sed -n 's/^\.SS //p' "$prefix/share/man/man1/paceline.1")"
if command -v groff >/dev/null; then
  same "groff finds no fault in it" "" "$(groff -man -Tutf8 -ww "$prefix/share/man/man1/paceline.1" 2>&1 >/dev/null)"
fi

# completes WORD...: what the last word may become, a space after each.
completes() {
  # shellcheck disable=SC2016
  bash -c 'compopt() { :; }; source "$1"; COMP_WORDS=(paceline "${@:2}"); COMP_CWORD=$(($# - 1))
           _paceline; echo "${COMPREPLY[*]}"' - "$prefix/share/bash-completion/completions/paceline" "$@"
}
same "commands complete" "rollout" "$(completes ro)"
same "options complete" "--nodes" "$(completes check --no)"
same "options of one command are not another's" "" "$(completes digest --no)"
same "keys complete" "sampling.top_k= sampling.top_p=" "$(completes rollout my.yaml --set sampling.top)"
same "every key completes" "$("$paceline" --help-config | grep -cE '^ *[a-z_0-9]+: .')" \
  "$(completes rollout my.yaml --set '' | wc -w)"

same "job scripts can be executed" "install-deps.sh rollout.sbatch" \
  "$(find "$share/jobscripts" -type f -executable -printf '%f\n' | sort | xargs)"
same "nothing but files of the product" "" \
  "$(find "$prefix" -name '*.pyc' -o -name '*.o' -o -name '__pycache__' -o -name 'CMake*')"
finish
