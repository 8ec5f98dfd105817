#!/bin/sh
# Install the locked dependencies of requirements.txt into a virtual environment: setup.sh DIRECTORY
# The directory is complete when it holds `.ready`; anything less is made anew, so that a run that was cut off or had no
# disk or network left is healed by the next one. Works without network from a warm cache.
set -eu

venv=$1
python=${PYTHON:-python3.11}
uv_version=0.13.9

say() { printf '%s\n' "$*"; }
fail() { say "setup: $*" >&2; exit 1; }

# Run a step; where it fails, one message with what to do, and the end of what the program said.
step() {
    what=$1; shift
    if "$@" >"$log" 2>&1; then return; fi
    case $(cat "$log") in
        *"No space left"* | *"not enough space"* | *"quota exceeded"*) fix="free some space on the disks of $venv, $cache and ${TMPDIR:-/tmp}" ;;
        *"Permission denied"* | *"Read-only file system"* | *"Not a directory"*) fix="see that this user may write there" ;;
        *"No module named ensurepip"* | *"ensurepip is not"*) fix="install it (Debian: apt-get install python3.11-venv)" ;;
        *"Hash mismatch"* | *"DO NOT MATCH THE HASHES"*) fix="see why the package index, or a proxy before it, gives another file than the one that was locked" ;;
        *) fix="check that this machine reaches its package index (network, proxy)" ;;
    esac
    fail "$what failed; $fix and run it again. It said:
$(tail -n 8 "$log")"
}

# What is made anew is emptied first, and through a link that would be another tree's environment.
[ ! -L "${venv%/}" ] ||
    fail "'$venv' is a symbolic link to '$(readlink "${venv%/}")', which may be another tree's environment; remove the link and run it again"

command -v "$python" >/dev/null 2>&1 ||
    fail "'$python' was not found; Python 3.11 with venv is needed (Debian: apt-get install python3.11-venv)"
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
[ "$version" = 3.11 ] ||
    fail "'$python' is Python $version, expected 3.11; name another one: make PYTHON=/path/to/python3.11"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/spillway
{ mkdir -p "$cache/wheels" && [ -w "$cache/wheels" ] && touch "$cache/setup.lock"; } 2>/dev/null ||
    fail "the cache '$cache' cannot be written; name another directory: XDG_CACHE_HOME=/path make setup"

# One at a time: two would install into each other's half-made directory.
exec 9>>"$cache/setup.lock"
if ! flock --nonblock 9; then
    say "setup: another set-up is running, waiting for it"
    flock 9
fi
if [ "$venv/.ready" -nt requirements.txt ] && [ "$venv/.ready" -nt "$0" ]; then
    say "setup: $venv is complete"
    exit 0
fi

log=$(mktemp) || fail "no temporary file can be made in ${TMPDIR:-/tmp}; free some space there and run it again"
new=$cache/wheels.new
trap 'rm -rf "$log" "$new"' EXIT
trap 'exit 130' INT TERM HUP

say "setup: creating $venv"
rm -f "$venv/.ready"
step "creating the virtual environment" "$python" -m venv --clear --without-pip "$venv"
step "installing pip" "$venv/bin/python" -m ensurepip --default-pip
if ! "$venv/bin/python" -m pip install --quiet --no-index --find-links "$cache/wheels" "uv==$uv_version" >/dev/null 2>&1; then
    # Moved to its place when it is whole.
    rm -rf "$new"
    step "downloading uv" "$venv/bin/python" -m pip download --quiet --no-deps --dest "$new" "uv==$uv_version"
    mv "$new"/* "$cache/wheels/"
    step "installing uv" "$venv/bin/python" -m pip install --quiet --no-index --find-links "$cache/wheels" "uv==$uv_version"
fi

say "setup: installing $(grep -c '==' requirements.txt) locked packages, about a minute"
# Compiled once here: every Airflow process would compile it again otherwise.
export UV_COMPILE_BYTECODE="${UV_COMPILE_BYTECODE:-1}"
install() { "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --require-hashes "$@" -r requirements.txt; }
install --offline 2>/dev/null || step "installing the locked packages" install
date -u >"$venv/.ready"
say "setup: done"
