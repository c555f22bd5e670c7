#!/bin/sh
# Makes .venv in this checkout from requirements.lock, with hashes, and the project in it.
# Says nothing and takes no time when that is already done.
set -eu

cd "$(dirname "$0")/../.."
wanted="$(cat requirements.lock pyproject.toml | cksum) $(pwd -P)"
made() { [ "$(cat .venv/.stamp 2>/dev/null)" = "$wanted" ] && [ -x .venv/bin/python ]; }
made && exit 0

say() { printf 'bootstrap: %s\n' "$*"; }
# Says what is missing and the line that installs it, for root or by sudo.
give_up() {
    how="$2"
    if [ "$(id -u)" != 0 ]; then
        if command -v sudo >/dev/null 2>&1; then how="sudo $how"; else how="su -c '$how'"; fi
    fi
    printf 'bootstrap: %s is missing, and could not be installed from here; type:\n  %s\n' "$1" "$how" >&2
    exit 1
}

# Two at once would write into one .venv; the second waits here and then finds it made.
mkdir -p .services
if command -v flock >/dev/null 2>&1; then
    exec 9>.services/bootstrap.lock
    flock 9
    made && exit 0
fi

# What to put before a command that needs root, or `no`.
as_root() {
    if [ "$(id -u)" = 0 ]; then echo env; elif sudo -n true 2>/dev/null; then echo 'sudo -n env'; else echo no; fi
}

apt_install() {
    prefix=$(as_root)
    if ! command -v apt-get >/dev/null 2>&1 || [ "$prefix" = no ]; then
        return 1
    fi
    say "installing $* with apt-get"
    for step in update "install -y $*"; do
        # shellcheck disable=SC2086 # both are lists of words
        $prefix DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 $step \
            >.services/bootstrap-apt.log 2>&1 </dev/null || { cat .services/bootstrap-apt.log >&2; return 1; }
    done
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    for candidate in "${PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11; do
        if is_new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

can_make_venv() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

python=$(find_python) || { apt_install python3 python3-venv && python=$(find_python); } ||
    give_up "Python 3.11 or newer" "apt-get install -y python3.11 python3.11-venv"
if ! can_make_venv "$python"; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    { apt_install python3-venv && can_make_venv "$python"; } ||
        give_up "venv of Python $version" "apt-get install -y python3-venv python$version-venv"
fi

# A virtual environment knows its own path: one that was moved or whose Python went is made anew.
clear=
if ! .venv/bin/python -c '' 2>/dev/null || ! grep -qsF "$(pwd -P)/.venv" .venv/bin/activate; then
    clear=--clear
fi
if [ -n "$clear" ]; then
    say "making .venv with $("$python" -c 'import sys; print(sys.executable)')"
    "$python" -m venv --clear .venv
fi
pip() { .venv/bin/python -m pip --quiet --disable-pip-version-check --no-input "$@"; }

say "installing requirements.lock into .venv"
pip install --require-hashes -r requirements.lock
say "installing the project itself"
pip install --no-build-isolation --no-deps -e .
printf '%s\n' "$wanted" >.venv/.stamp
