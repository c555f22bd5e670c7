#!/bin/sh
# Makes .venv in this checkout from requirements.lock, with hashes, and the project in it.
# Says nothing and takes no time when that is already done.
set -eu

cd "$(dirname "$0")/../.."
wanted="$(cat requirements.lock pyproject.toml | cksum) $(pwd -P)"
made() { [ "$(cat .venv/.stamp 2>/dev/null)" = "$wanted" ] && [ -x .venv/bin/python ]; }
made && exit 0

# Two at once would write into one .venv; the second waits here and then finds it made.
mkdir -p .services
if command -v flock >/dev/null 2>&1; then
    exec 9>.services/bootstrap.lock
    flock 9
    made && exit 0
fi

say() { printf 'bootstrap: %s\n' "$*"; }
# The first Python that is new enough and can make a virtual environment.
find_python() {
    for candidate in "${PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    return 1
}
install_python() {
    root=; [ "$(id -u)" = 0 ] || root='sudo -n'
    say "installing python3-venv with apt-get"
    for step in update 'install -y python3 python3-venv'; do
        # shellcheck disable=SC2086 # both are lists of words
        $root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 $step \
            >.services/bootstrap-apt.log 2>&1 </dev/null || return 1
    done
}
python=$(find_python) || { install_python && python=$(find_python); } || {
    cat .services/bootstrap-apt.log >&2
    printf 'bootstrap: Python 3.11 or newer with venv is missing; as root, type:\n  %s\n' \
        'apt-get install -y python3.11 python3.11-venv' >&2
    exit 1
}

# A virtual environment knows its own path: one that was moved or lost its Python is replaced.
if ! .venv/bin/python -c '' 2>/dev/null || ! grep -qsF "$(pwd -P)/.venv" .venv/bin/activate; then
    say "making .venv with $("$python" -c 'import sys; print(sys.executable)')"
    [ ! -L .venv ] || rm .venv  # a link to the environment of another checkout, which stays
    "$python" -m venv --clear .venv
fi
pip() { .venv/bin/python -m pip --quiet --disable-pip-version-check --no-input "$@"; }
# The lock file's lines of one package, and those of all others.
only() { awk -v name="$1==" '/^[a-z]/ { on = index($0, name) == 1 } on' requirements.lock; }
except() { awk -v name="$1==" '/^[a-z]/ { on = index($0, name) != 1 } on' requirements.lock; }
install() {  # the lock file is complete: pip has nothing to resolve
    pip install --require-hashes --no-deps --no-compile -r "$1"
}

say "installing requirements.lock into .venv"
only pip >.services/pip.lock
only pyspark >.services/pyspark.lock
except pyspark >.services/others.lock
install .services/pip.lock  # first: an older one takes twice as long
install .services/pyspark.lock &  # beside the others, as pip has to build it
pyspark=$!
install .services/others.lock
wait "$pyspark"
.venv/bin/python -m compileall -q -j 0 -x '/tests?/' "$(echo .venv/lib/python*/site-packages)" || true
say "installing the project itself"
pip install --no-build-isolation --no-deps -e .
printf '%s\n' "$wanted" >.venv/.stamp
