#!/usr/bin/env bash
# Makes the environment .venv once, then runs BERT in it. `./launch.sh help` says how.
set -euo pipefail

root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
venv=${BERT_JAX_VENV:-$root/.venv}
every_extra=test,parity,ahead,report,beam,elmo,onnx # what some test needs

say() { printf '%s\n' "$*" >&2; }

fail() {
  say "error: $*"
  exit 2
}

usage() {
  cat >&2 <<END
usage: ./launch.sh                       trains the small BERT of configs/tiny.py
       ./launch.sh --config=FILE [...]   python -m bert_jax.main with these arguments
       ./launch.sh test [--all] [arguments of pytest]
                                         format, lint, imports, types and the quick tests
                                         (--all: every test, with every extra, in .venv.all)
       ./launch.sh local N [--devices=D] -- [arguments]
                                         runs N processes on this machine's CPU, each with D
                                         simulated devices (1)
       ./launch.sh tpu NAME ZONE [--dry-run] -- [arguments]
                                         copies this repository to every worker of a Cloud TPU
                                         slice and runs ./launch.sh [arguments] there

PYTHON                the interpreter to try first
BERT_JAX_VENV         the folder of the environment (default: $root/.venv)
BERT_JAX_ACCELERATOR  cpu, cuda12, cuda13 or tpu (default: CUDA where nvidia-smi finds a GPU)
END
  exit 2
}

find_python() {
  local candidate new='import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'
  for candidate in ${PYTHON:+"$PYTHON"} python3.13 python3.12 python3.11 python3; do
    if "$candidate" -c "$new" 2>/dev/null; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  return 1
}

find_accelerator() {
  local driver
  case ${BERT_JAX_ACCELERATOR:-} in
    cpu | cuda12 | cuda13 | tpu) echo "$BERT_JAX_ACCELERATOR" ;;
    ?*) fail "BERT_JAX_ACCELERATOR=$BERT_JAX_ACCELERATOR: cpu, cuda12, cuda13 or tpu" ;;
    *)
      driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null) || driver=
      case ${driver%%.*} in
        '' | *[!0-9]*) echo cpu ;;
        *) if [ "${driver%%.*}" -ge 580 ]; then echo cuda13; else echo cuda12; fi ;;
      esac
      ;;
  esac
}

install() { # ACCELERATOR EXTRAS, unless they are installed
  local accelerator=$1 extras=$2 installed=('' '' '') line python packages=(jax) pins
  local stamp=$venv/bert_jax.installed log=$venv/bert_jax.log
  pins="$(cat "$root/requirements.txt" "$root/pyproject.toml" | cksum) $root"
  if [ -f "$stamp" ] && "$venv/bin/python" -c '' 2>/dev/null; then
    installed=()
    while read -r line; do installed+=("$line"); done <"$stamp"
    # Whoever needs no accelerator or no extras takes what is there.
    [ "$accelerator" != cpu ] || accelerator=${installed[0]}
    [ "$extras" != none ] || extras=${installed[1]}
    [ "$accelerator $extras $pins" != "${installed[*]}" ] || return 0
  elif [ -e "$venv" ] && [ ! -f "$log" ] && [ -n "$(ls -A "$venv")" ]; then
    fail "$venv was not made by launch.sh: remove it, or set BERT_JAX_VENV to another path"
  fi
  say "setup: installing into $venv (jax for $accelerator); about a minute, once ..."
  if [ "${installed[0]}" != "$accelerator" ] || [[ ${installed[2]} != *" $root" ]]; then
    python=$(find_python) ||
      fail "no Python >= 3.11 with the venv module found: install one, or set PYTHON to its path"
    mkdir -p "$venv" && : >"$log" # first: launch.sh made this folder
    rm -rf "$venv/bin" "$venv"/[!b]*
    "$python" -m venv "$venv" || fail "cannot make an environment in $venv"
  fi
  rm -f "$stamp"
  "$venv/bin/python" "$root/launch/packages.py" "${extras#none}" >"$venv/bert_jax.packages" || exit 2
  [ "$accelerator" = cpu ] || packages=("jax[$accelerator]")
  [ "$accelerator" != tpu ] || packages+=(gcsfs) # where buckets are at home
  # pip before 25.3 would run some setup.py (seqeval's) with whatever setuptools is there.
  if ! PIP_USE_PEP517=1 "$venv/bin/python" -m pip install --no-input --disable-pip-version-check \
    --constraint "$root/requirements.txt" --requirement "$venv/bert_jax.packages" \
    "${packages[@]}" >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    fail "installing failed; pip's last lines are above, all of them in $log"
  fi
  printf '%s\n' "$accelerator" "$extras" "$pins" >"$stamp"
  say "setup: done in $SECONDS s"
}

set_up() { # EXTRAS: none, or a list with commas
  local accelerator
  accelerator=$(find_accelerator)
  # One at a time; some file systems have no locks, and then it is left to the user.
  (flock 9 2>/dev/null || true; install "$accelerator" "$1" 9<&-) 9<"$root/requirements.txt"
  [ "${BERT_JAX_ACCELERATOR:-}" != cpu ] || export JAX_PLATFORMS=${JAX_PLATFORMS:-cpu}
}

run_checks() {
  local status=0
  cd -- "$root"
  "$venv/bin/python" -m ruff format --check . || status=1
  "$venv/bin/python" -m ruff check . || status=1
  "$venv/bin/python" -c 'from importlinter import cli; cli.lint_imports_command()' || status=1
  "$venv/bin/python" -m mypy || status=1
  return $status
}

run_tests() { # [--all] [arguments of pytest]
  local argument extras=test given=() select=(-m "not slow") paths=(tests) status=0
  for argument in "$@"; do
    case $argument in
      --all) extras=$every_extra venv=$venv.all select=() && continue ;;
      -k* | -m* | --lf) select=() ;; # by name, or what failed last
      -*) ;;
      *) if [ -e "${argument%%::*}" ]; then select=() paths=(); fi ;;
    esac
    given+=("$argument")
  done
  set_up "$extras"
  run_checks >"$venv/bert_jax.checks" 2>&1 & # beside the tests
  trap 'kill $! 2>/dev/null || true' EXIT
  [ ${#paths[@]} -eq 0 ] || cd -- "$root"
  "$venv/bin/python" -m pytest --config-file="$root/pyproject.toml" --rootdir="$root" \
    --numprocesses=logical --maxprocesses=4 --dist=loadfile ${select[@]+"${select[@]}"} \
    ${given[@]+"${given[@]}"} ${paths[@]+"${paths[@]}"} || status=1
  wait $! || status=1
  cat "$venv/bert_jax.checks" >&2
  exit $status
}

case ${1-} in
  '') [ $# -eq 0 ] || usage && set_up none && set -- --config="$root/configs/tiny.py" ;;
  test) shift && run_tests "$@" ;;
  local) shift && set_up none && exec "$venv/bin/python" -m bert_jax.runtime.cluster.local "$@" ;;
  tpu) shift && exec "$root/launch/tpu.sh" "$@" ;;
  --help) usage ;;
  --*) set_up none ;;
  *) usage ;;
esac
exec "$venv/bin/python" -m bert_jax.main "$@"
