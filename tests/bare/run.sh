#!/usr/bin/env bash
# Proves the README's two commands on a machine that has nothing: makes a minimal Debian 12 in a
# folder, copies the repository there and runs both, saying how long each took. Then installs the
# program, and runs the first of its jobs on another such machine, that has what was installed and
# the libraries it needs alone. Not part of the test suite: it downloads some hundred megabytes and
# builds all from scratch.
#
#   tests/bare/run.sh [--working-tree] [--no-tests] [--keep] [DIR]
#
# Takes the last commit, or with --working-tree the files as they are. Works in DIR (default: a
# temporary folder), removed at the end unless --keep. Needs root, debootstrap and the package
# mirrors that this machine's apt uses.
set -euo pipefail

tree=commit keep=false tests=true work=
while [[ $# -gt 0 ]]; do
  case "$1" in
    --working-tree) tree=files ;;
    --no-tests) tests=false ;;
    --keep) keep=true ;;
    -*) echo "usage: $0 [--working-tree] [--no-tests] [--keep] [DIR]" >&2; exit 64 ;;
    *) work=$(realpath -m "$1") ;;
  esac
  shift
done
cd "$(dirname "$0")/../.."
if [[ $EUID -ne 0 ]] || ! command -v debootstrap >/dev/null; then
  echo "needs root and the package debootstrap" >&2
  exit 64
fi
if [[ -n $work ]]; then mkdir "$work"; else work=$(mktemp -d /var/tmp/paceline-bare.XXXXXX); fi
if [[ $keep == false ]]; then trap 'rm -rf "$work"' EXIT; fi
root=$work/root

echo "== a minimal Debian 12 in $root"
# shellcheck disable=SC2016  # apt-get's own placeholder
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | sed -n 1p)
debootstrap --variant=minbase bookworm "$root" "$mirror" >"$work/debootstrap.log" ||
  { tail "$work/debootstrap.log"; exit 1; }

# This machine's way to the mirrors, proxies included; no service may start in a chroot.
rm -f "$root/etc/apt/sources.list"
(shopt -s nullglob && tar -c /etc/apt/sources.list* /etc/apt/keyrings /usr/share/keyrings 2>/dev/null) | tar -x -C "$root"
apt-config dump | grep '^Acquire' >"$root/etc/apt/apt.conf.d/00host"
cp /etc/resolv.conf /etc/hosts /etc/hostname "$root/etc/"
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod +x "$root/usr/sbin/policy-rc.d"

user=$work/user
cp -a "$root" "$user"
mkdir "$user/paceline"

mkdir "$root/paceline"
if [[ $tree == commit ]]; then
  git archive HEAD | tar -x -C "$root/paceline"
else
  git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -x -C "$root/paceline"
fi

# In namespaces of its own, so that neither mounts nor daemons outlive the command.
in_bare() {  # ROOT COMMAND
  # shellcheck disable=SC2016
  unshare --mount --pid --fork --kill-child bash -euc '
    root=$1
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/dev/shm"
    exec chroot "$root" /usr/bin/env -i "${@:2}"' bash "$1" \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
    ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
    bash -c "cd /paceline && $2" </dev/null
}

failed=0
try() {  # ROOT COMMAND
  echo "== $2"
  local begin=$SECONDS rc=0
  in_bare "$1" "$2" || rc=$?
  [[ $rc -eq 0 ]] || failed=1
  summary+=$(printf '%s: exit code %d after %d min %02d s' "$2" "$rc" \
    $(((SECONDS - begin) / 60)) $(((SECONDS - begin) % 60)))$'\n'
}

try "$root" jobscripts/quickstart.sh
if [[ $tests == true ]]; then try "$root" tests/run.sh; fi
try "$root" "cmake --build --preset release && cmake --install build/release --prefix /opt/paceline --strip"
mkdir -p "$user/opt"
cp -a "$root/opt/paceline" "$user/opt/" || failed=1
share=/opt/paceline/share/paceline
try "$user" "$share/jobscripts/install-deps.sh --run"
try "$user" "export PATH=/opt/paceline/bin:\$PATH PYTHONPATH=$share/python OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  mpirun -n 4 --oversubscribe --bind-to none paceline rollout $share/configs/quickstart.yaml --output out &&
  paceline digest out && python3 -m paceline_reader out"

printf '\n== on a bare machine, %d cores\n%s' "$(nproc)" "$summary"
exit "$failed"
