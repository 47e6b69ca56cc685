#!/usr/bin/env bash
# ./launch.sh tpu NAME ZONE [--dry-run] -- [arguments]
#
# Copies this repository to every worker of a Cloud TPU slice and runs ./launch.sh there,
# with the outputs of all on this terminal. A run lasts no longer than the connection; the
# same command resumes it. launch/sky.yaml needs no connection and recovers by itself.
set -euo pipefail

[ $# -ge 3 ] || { echo 'usage: ./launch.sh tpu NAME ZONE [--dry-run] -- [arguments]' >&2 && exit 2; }
name=$1 zone=$2
shift 2
run() { "$@"; }
if [ "$1" = --dry-run ]; then
  shift
  run() { printf '%q ' "$@" && echo; }
fi
[ "${1-}" = -- ] || { echo 'error: no -- before the arguments of ./launch.sh' >&2 && exit 2; }
shift

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
archive=${TMPDIR:-/tmp}/bert_jax.$$.tar.gz
trap 'rm -f "$archive"' EXIT
command="mkdir -p bert_jax && tar -xzf bert_jax.tar.gz -C bert_jax && cd bert_jax &&"
command+=" BERT_JAX_ACCELERATOR=tpu ./launch.sh$(printf ' %q' "$@")"
# The files that git tracks or would not ignore.
run bash -c "git ls-files -z -co --exclude-standard | tar -czf '$archive' --null -T -"
run gcloud compute tpus tpu-vm scp "$archive" "$name:bert_jax.tar.gz" --zone="$zone" --worker=all
run gcloud compute tpus tpu-vm ssh "$name" --zone="$zone" --worker=all --command="$command"
