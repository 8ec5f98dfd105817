#!/bin/sh
# Install the locked dependencies into a virtual environment: setup.sh DIRECTORY
# The directory is complete when it holds `.ready`; anything less is made anew. Works without network from a warm cache.
set -eu

venv=$1
python=${PYTHON:-python3.11}
uv_version=0.13.9

say() { printf '%s\n' "$*"; }

command -v "$python" >/dev/null 2>&1 || {
    say "setup: '$python' was not found; Python 3.11 with venv is needed (Debian: apt-get install python3.11-venv)" >&2
    exit 1
}
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
[ "$version" = 3.11 ] || {
    say "setup: '$python' is Python $version, expected 3.11; name another one: make PYTHON=/path/to/python3.11" >&2
    exit 1
}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/spillway
mkdir -p "$cache/wheels"

say "setup: creating $venv"
"$python" -m venv --clear "$venv" || {
    say "setup: the virtual environment could not be created (Debian: apt-get install python3.11-venv)" >&2
    exit 1
}
if ! "$venv/bin/pip" install --quiet --no-index --find-links "$cache/wheels" "uv==$uv_version" 2>/dev/null; then
    "$venv/bin/pip" download --quiet --no-deps --dest "$cache/wheels" "uv==$uv_version"
    "$venv/bin/pip" install --quiet --no-index --find-links "$cache/wheels" "uv==$uv_version"
fi
say "setup: installing $(grep -c '==' requirements.txt) locked packages, about a minute"
# Compiled once here: every Airflow process would compile it again otherwise.
export UV_COMPILE_BYTECODE="${UV_COMPILE_BYTECODE:-1}"
install() { "$venv/bin/uv" pip install --python "$venv/bin/python" --require-hashes "$@" -r requirements.txt; }
install --quiet --offline 2>/dev/null || install
date -u > "$venv/.ready"
say "setup: done"
