#!/usr/bin/env bash
# Sets up .venv once, then runs BERT in it. `./launch.sh help` says how.
set -euo pipefail

case ${BASH_SOURCE[0]} in
  */*) root=$(CDPATH='' cd -- "${BASH_SOURCE[0]%/*}" && pwd -P) ;;
  *) root=$(pwd -P) ;;
esac
use_venv() {
  venv=${1%/}
  case $venv in /*) ;; *) venv=$PWD/$venv ;; esac
  log=$venv/bert_jax.log     # written first: launch.sh made this folder
  stamp=$venv/bert_jax.stamp # written last: the installation is finished
}
use_venv "${BERT_JAX_VENV:-$root/.venv}"

# The extras that some test needs.
every_extra=test,parity,ahead,report,clean,beam,elmo

# What pip says of an index that it cannot reach.
no_network='Name or service not known|Temporary failure in name resolution|getaddrinfo failed'
no_network+='|nodename nor servname provided|Network is unreachable|No route to host'
no_network+='|Connection refused|Connection timed out|ConnectTimeoutError|NewConnectionError'
no_network+='|Cannot connect to proxy'

say() { printf '%s\n' "$*" >&2; }

fail() {
  say "error: $*"
  exit 2
}

usage() {
  cat >&2 <<END
usage: ./launch.sh                              train the small BERT of configs/tiny.py
       ./launch.sh --config=FILE [...]          python -m bert_jax.main with these arguments
       ./launch.sh test [--quick | --all] [pytest arguments]
                                                format, lint, types, the quick tests and
                                                some twenty runs of the whole program
                                                (--quick: without these; --all: every
                                                test, with every extra, in .venv.all)
       ./launch.sh local N [--devices=D] -- [arguments]
                                                the same in N processes of this machine's CPU,
                                                each with D simulated devices (1)
       ./launch.sh tpu NAME ZONE [...] -- [arguments]
                                                the same on every worker of a Cloud TPU slice;
                                                \`./launch.sh tpu\` says more

PYTHON                the interpreter to try first when making the environment
BERT_JAX_VENV         where the environment goes (default: $root/.venv)
BERT_JAX_ACCELERATOR  cpu, cuda, cuda12, cuda13 or tpu (default: what is found)
END
  exit 2
}

# The first Python that runs, is new enough and can make environments, as a path.
# Each is really run: a pyenv shim is there for versions that are not active.
find_python() {
  local candidate found
  for candidate in ${PYTHON:+"$PYTHON"} python3.13 python3.12 python3.11 python3 python; do
    if found=$("$candidate" -c '
import sys, venv, ensurepip
if sys.version_info < (3, 11): sys.exit(1)
print(sys.executable)' 2>/dev/null); then
      printf '%s\n' "$found"
      return
    fi
  done
  return 1
}

# cpu, cuda (which one depends on the driver, asked only when installing) or tpu.
find_accelerator() {
  local device
  if [ -n "${BERT_JAX_ACCELERATOR:-}" ]; then
    case $BERT_JAX_ACCELERATOR in
      cpu | cuda | cuda12 | cuda13 | tpu) printf '%s\n' "$BERT_JAX_ACCELERATOR" ;;
      *) fail "BERT_JAX_ACCELERATOR=$BERT_JAX_ACCELERATOR: cpu, cuda, cuda12, cuda13 or tpu" ;;
    esac
    return
  fi
  for device in /dev/nvidia[0-9]*; do
    if [ -e "$device" ]; then
      echo cuda
      return
    fi
  done
  # The device ids by which jax itself knows TPUs (jax/_src/hardware_utils.py).
  for device in /sys/bus/pci/devices/*; do
    if [ -r "$device/vendor" ] && [ "$(<"$device/vendor")" = 0x1ae0 ]; then
      case $(<"$device/device") in
        0x0027 | 0x0056 | 0x005e | 0x0062 | 0x0063 | 0x006f | 0x0076)
          echo tpu
          return
          ;;
      esac
    fi
  done
  # WSL: one device file for every maker's GPU.
  if [ -e /dev/dxg ] && nvidia-smi -L >/dev/null 2>&1; then echo cuda; else echo cpu; fi
}

# CUDA 13 needs driver 580 and compute capability 7.5; CUDA 12 runs on newer ones too.
cuda_version() {
  local gpu
  gpu=$(nvidia-smi --query-gpu=driver_version,compute_cap --format=csv,noheader 2>/dev/null) ||
    gpu=
  if [[ ${gpu%%$'\n'*} =~ ^([0-9]+)[0-9.]*,\ *([0-9]+)\.([0-9]+) ]] &&
    ((BASH_REMATCH[1] >= 580 && BASH_REMATCH[2] * 10 + BASH_REMATCH[3] >= 75)); then
    echo cuda13
  else
    echo cuda12
  fi
}

# The environment that is there: its place, its Python and the pinned files, all as
# they are now; empty where the environment does not run.
identity() {
  local version
  version=$("$venv/bin/python" -c 'import sys; print(*sys.version_info[:3])' 2>/dev/null) ||
    return 0
  printf '%s|%s|%s\n' "$root" "$version" \
    "$(cat "$root/requirements.txt" "$root/pyproject.toml" | cksum)"
}

# Whether what is installed will do: `is_ready ACCELERATOR EXTRAS` sets `installed_*`.
is_ready() {
  installed_identity='' installed_accelerator='' installed_extras=''
  [ -f "$stamp" ] || return 1
  { read -r installed_identity && read -r installed_accelerator && read -r installed_extras; } \
    <"$stamp" || return 1
  [ "$installed_identity" = "$(identity)" ] || return 1
  [ "$2" = no ] || [[ ",$installed_extras," = *",$2,"* ]] || return 1
  case $1 in
    cpu | "$installed_accelerator") ;; # a CPU-only machine may share a GPU's environment
    cuda) [[ $installed_accelerator = cuda* ]] ;;
    *) return 1 ;;
  esac
}

install() { # ACCELERATOR EXTRAS
  local accelerator=$1 extras=$2 python here jax wanted=$venv/bert_jax.requirements
  is_ready "$accelerator" "$extras" && return # another call has just finished it

  [ "$accelerator" = cuda ] && accelerator=$(cuda_version)
  here=$(identity)
  if [ -z "$installed_identity" ] || [ "${here%|*}" != "${installed_identity%|*}" ] ||
    { [ "$installed_accelerator" != cpu ] && [ "$accelerator" != cpu ] &&
      [ "$accelerator" != "$installed_accelerator" ]; }; then
    # Nothing, an interrupted installation, or one for something else: start anew.
    python=$(find_python) ||
      fail "no Python >= 3.11 with the venv module found: install one, or set PYTHON to its path"
    if [ -e "$venv" ] && [ ! -f "$log" ] && [ -n "$(ls -A "$venv")" ]; then
      fail "$venv was not made by launch.sh: remove it, or set BERT_JAX_VENV to another path"
    fi
    say "setup: installing into $venv (jax for $accelerator); about a minute, once ..."
    mkdir -p "$venv" && : >"$log" && rm -f "$stamp" &&
      find "$venv" -mindepth 1 ! -name "${log##*/}" -delete &&
      "$python" -m venv "$venv" || fail "cannot make an environment in $venv"
  else
    # An older list of packages, or one more extra: what was installed stays.
    [ "$accelerator" = cpu ] && accelerator=$installed_accelerator
    if [ "$extras" = no ] || [[ ",$installed_extras," = *",$extras,"* ]]; then
      extras=$installed_extras
    fi
    rm -f "$stamp"
    say "setup: updating $venv (jax for $accelerator) ..."
  fi

  SECONDS=0
  "$venv/bin/python" "$root/launch/packages.py" list "${extras#no}" >"$wanted" || exit 2
  jax=(jax)
  [ "$accelerator" = cpu ] || jax=("jax[$accelerator]")
  [ "$accelerator" != tpu ] || jax+=(gcsfs) # where buckets are at home
  if ! "$venv/bin/python" -m pip install --no-input --disable-pip-version-check \
    --constraint "$root/requirements.txt" --requirement "$wanted" "${jax[@]}" >"$log" 2>&1; then
    if [[ $(<"$log") =~ $no_network ]]; then
      fail "no network: pip cannot reach the package index (${BASH_REMATCH[0]}; all it said is" \
        "in $log): connect, or name a proxy in HTTPS_PROXY or a mirror in PIP_INDEX_URL"
    fi
    tail -n 15 "$log" >&2
    fail "installing failed; pip's last lines are above, all of them in $log"
  fi
  "$venv/bin/python" "$root/launch/packages.py" link
  printf '%s\n' "$(identity)" "$accelerator" "$extras" >"$stamp.new"
  mv "$stamp.new" "$stamp"
  say "setup: done in $SECONDS s"
}

set_up() { # EXTRAS: no, or a list with commas
  local accelerator
  accelerator=$(find_accelerator)
  if [ "$accelerator" = cpu ] && [ "${BERT_JAX_ACCELERATOR:-}" = cpu ]; then
    export JAX_PLATFORMS=${JAX_PLATFORMS:-cpu}
  fi
  # As bert_jax/runtime/environment.py, which says why: for tests and the like.
  export GLIBC_TUNABLES=${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=268435456}
  # One at a time; some file systems have no locks, and then it is left to the user.
  is_ready "$accelerator" "$1" || (
    if command -v flock >/dev/null; then flock 9 2>/dev/null || true; fi
    install "$accelerator" "$1" 9<&-
  ) 9<"$root/requirements.txt"
  # The compilers of this extra look like devices, which JAX would try to use.
  if [ "$accelerator" = cpu ] && [[ ",$installed_extras,$1," = *,ahead,* ]]; then
    export JAX_PLATFORMS=${JAX_PLATFORMS:-cpu}
  fi
}

run_tests() { # [--quick | --all] [pytest arguments]
  local failed=() has_path=no argument name rest=() tier=--heart extras=test
  for argument in "$@"; do
    case $argument in
      --all)
        # In an environment of its own: compilers of TPUs and GPUs look like devices.
        extras=$every_extra tier=
        use_venv "$venv.all"
        continue
        ;;
      # By name or by what failed last: wherever they are.
      --quick | -k* | -m* | --lf | --last-failed) tier= ;;
      -*) ;;
      *) if [ -e "${argument%%::*}" ]; then has_path=yes tier=; fi ;;
    esac
    rest+=("$argument")
  done
  set -- ${tier:+"$tier"} ${rest[@]+"${rest[@]}"}
  set_up "$extras"

  check() { # NAME COMMAND...
    name=$1
    shift
    say "== $name"
    "$@" || failed+=("$name")
  }
  in_root() { (cd -- "$root" && "$venv/bin/python" -m "$@"); }
  check "ruff format" in_root ruff format --check .
  check "ruff check" in_root ruff check .
  check "mypy" in_root mypy
  if [ "$has_path" = yes ]; then
    check "pytest" "$venv/bin/python" -m pytest \
      --config-file="$root/pyproject.toml" --rootdir="$root" "$@"
  else
    # From there: pytest takes brackets in a path for a parameter. Each of so many
    # processes holds eight simulated devices, and runs files as a whole, in the order of
    # tests/conftest.py: what a file has trained is made once.
    check "pytest" in_root pytest --numprocesses=logical --maxprocesses=4 \
      --dist=loadfile --no-loadscope-reorder "$@" tests
  fi
  if [ ${#failed[@]} -gt 0 ]; then
    name=$(printf ', %s' "${failed[@]}")
    say "failed: ${name#, }"
    exit 1
  fi
}

check_local() { # as bert_jax/runtime/cluster/local.py
  local LC_ALL=C word numbers=0 devices=0
  local form='write ./launch.sh local N [--devices=D] -- [arguments], N and D from 1 to 9999'
  for word in "$@"; do
    case $word in
      --)
        if [ $numbers -ne 1 ] || [ $devices -gt 1 ]; then break; fi
        return
        ;;
      --devices=*) devices=$((devices + 1)) ;;
      *) numbers=$((numbers + 1)) ;;
    esac
    [[ ${word#--devices=} =~ ^[1-9][0-9]{0,3}$ ]] || fail "local: ${word:0:80}: no such number; $form"
  done
  [ "$word" = -- ] || fail "local: no -- before the arguments; $form"
  fail "local: N once and --devices=D at most once; $form"
}

run_on_tpu() {
  local python
  python=$(find_python) || fail "no Python >= 3.11 found: install one, or set PYTHON to its path"
  cd -- "$root"
  exec "$python" -m launch.tpu "$root" "$@"
}

case ${1-} in
  '')
    [ $# -eq 0 ] || usage
    set_up no
    exec "$venv/bin/python" -m bert_jax.main --config="$root/configs/tiny.py"
    ;;
  test)
    shift
    run_tests "$@"
    ;;
  local)
    shift
    [ $# -gt 0 ] || usage
    check_local "$@" # before it installs
    set_up no
    exec "$venv/bin/python" -m bert_jax.runtime.cluster.local "$@"
    ;;
  tpu)
    shift
    run_on_tpu "$@"
    ;;
  --help) usage ;;
  --*)
    set_up no
    exec "$venv/bin/python" -m bert_jax.main "$@"
    ;;
  *) usage ;;
esac
