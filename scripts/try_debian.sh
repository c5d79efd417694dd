#!/usr/bin/env bash
# Tries the README's two commands on a Debian without anything installed; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'HELP'
usage: bash scripts/try_debian.sh [--suite SUITE] [--root DIR] [--quick] [--keep] [PYTEST ARGUMENT...]

Makes a minimal Debian with debootstrap, installs the packages that the README names, and runs bash
scripts/quickstart.sh and bash scripts/test.sh there, as an ordinary user and in a clone whose path has a space. Run it
before a release: it needs root, a network and 8 GB; on 2 cores the quick start took 22 minutes and the tests 15.

  --suite SUITE  Debian suite (default: trixie, Debian 13; testing is the next one)
  --root DIR     folder of the Debian (default: a new folder in $TMPDIR, which is removed at the end); an existing
                 one is used with its environment
  --quick        the set-up, the quick start with --smoke and the tests of tests/compat and tests/cli, in a quarter of
                 an hour
  --keep         keep the new folder
  --help         this text

Every other argument is passed to scripts/test.sh. Environment variables PIP_* and the certificates of this machine are
passed on. pip's cache is not used, so everything is built again.
HELP
}

suite=trixie
root=
quick=
keep=
pytest_arguments=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --suite) require_value "$@"; suite=$2; shift 2 ;;
    --root) require_value "$@"; root=$2; shift 2 ;;
    --quick) quick=yes; shift ;;
    --keep) keep=yes; shift ;;
    --help | -h) usage; exit 0 ;;
    *) pytest_arguments+=("$1"); shift ;;
  esac
done
[[ $suite =~ ^[a-z]+$ ]] || die "--suite is '$suite': give the name of a suite of Debian, for instance trixie or testing"
[[ $EUID -eq 0 ]] || die "a Debian in a folder is made by root alone: run it with sudo"
require_command debootstrap "apt-get install debootstrap"
require_command git "apt-get install git"
if [[ -z $root ]]; then
  root=$(mktemp -d -t "fairseq_mega-$suite-XXXXXX")
  [[ -n $keep ]] || trap 'rm -rf --one-file-system "$root"' EXIT
fi

if [[ ! -e $root/etc/debian_version ]]; then
  log "debootstrap of $suite in $root"
  debootstrap --variant=minbase --include=ca-certificates "$suite" "$root" >&2
fi
home=/home/somebody
clone="$home/a b/fairseq_mega"
# shellcheck disable=SC2016 # the words are expanded by the inner bash
inside() { # COMMAND...: as root inside, with what a login has
  unshare --mount --propagation private bash -c '
    root=$1; shift
    mount -t proc proc "$root/proc"
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    mount -t devpts devpts "$root/dev/pts"
    exec chroot "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "$@"
  ' bash "$root" "$@"
}
handed_on=(PIP_NO_CACHE_DIR=1)
while IFS= read -r -d '' variable; do
  [[ $variable == PIP_* ]] && handed_on+=("$variable")
done < <(env -0)
user() { # COMMAND...: as an ordinary user in the clone
  inside setpriv --reuid 1000 --regid 1000 --clear-groups env -C "$clone" HOME="$home" USER=somebody "${handed_on[@]}" "$@"
}

cp /etc/resolv.conf "$root/etc/resolv.conf"
[[ ! -e /etc/ssl/certs/ca-certificates.crt ]] || cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
mkdir -p "$root/dev/shm" "$root/dev/pts"
log "the packages that the README names"
inside apt-get -o Acquire::Check-Valid-Until=false update -q >&2 # a mirror may lag behind
inside env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends python3 python3-venv python3-dev g++ >&2
grep -q '^somebody:' "$root/etc/passwd" || inside useradd --uid 1000 --create-home --home-dir "$home" somebody

log "the clone"
mkdir -p "$root$clone"
git -C "$repo_root" archive HEAD | tar -x -C "$root$clone"
inside chown -R somebody:somebody "$home"

log "$(cat "$root/etc/debian_version"), $(inside python3 --version): bash scripts/quickstart.sh"
user bash scripts/quickstart.sh ${quick:+--smoke}
log "bash scripts/test.sh"
if [[ -n $quick && ${#pytest_arguments[@]} -eq 0 ]]; then
  pytest_arguments=(--skip-lint tests/compat tests/cli)
fi
user bash scripts/test.sh "${pytest_arguments[@]}"
log "$suite: both commands passed"
