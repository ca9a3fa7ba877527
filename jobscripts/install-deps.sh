#!/usr/bin/env bash
# Installs what paceline needs from Debian 12's own packages.
#
#   jobscripts/install-deps.sh            what building and running needs
#   jobscripts/install-deps.sh --tests    that and what the tests need
#   jobscripts/install-deps.sh --run      what running alone needs, of a paceline built elsewhere
#
# Where everything is present it changes nothing and touches no network. Exits 64, printing the
# command to run, where something is missing and it may not install.
set -euo pipefail

product=(
  g++ cmake ninja-build ccache pkg-config
  libopenmpi-dev openmpi-bin libucx-dev
  libhdf5-dev libxxhash-dev
  libyaml-cpp-dev nlohmann-json3-dev libcli11-dev libfmt-dev
  libpcre2-dev libutf8proc-dev
  libjpeg62-turbo-dev libpng-dev libwebp-dev
)
reader=(python3 python3-h5py python3-numpy)  # in io/python
run=(
  openmpi-bin libucx0 libhdf5-103-1 libxxhash0 libyaml-cpp0.7 libfmt9 libpcre2-8-0 libutf8proc2
  libjpeg62-turbo libpng16-16 libwebp7 libwebpdemux2
)
tests=(
  libgtest-dev zlib1g-dev hdf5-tools
  slurm-wlm munge procps
  python3-pip python3-setuptools python3-wheel python3-venv  # installing the reader
)

case "${1-}" in
  "") wanted=("${product[@]}" "${reader[@]}") ;;
  --tests) wanted=("${product[@]}" "${reader[@]}" "${tests[@]}") ;;
  --run) wanted=("${run[@]}" "${reader[@]}") ;;
  *) echo "usage: $0 [--tests | --run]" >&2; exit 64 ;;
esac

if ! command -v dpkg-query >/dev/null; then
  echo "install-deps: no Debian packages on this system; taking the compiler and libraries as it provides them."
  exit 0
fi

installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' | sed -n 's/^installed //p')
missing=()
for package in "${wanted[@]}"; do
  grep -qxF "$package" <<<"$installed" || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  exit 0
fi

root=()
if [[ $EUID -ne 0 ]]; then
  if command -v sudo >/dev/null && { [[ -t 0 ]] || sudo -n true 2>/dev/null; }; then
    root=(sudo)
  else
    echo "install-deps: packages are missing and installing them needs root. Run:" >&2
    echo "  apt-get update && apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 64
  fi
fi

echo "install-deps: installing with apt-get, which takes a minute or two: ${missing[*]}"
apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
"${apt[@]}" update
"${apt[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null >/dev/null
