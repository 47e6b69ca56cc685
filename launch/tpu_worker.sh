#!/usr/bin/env bash
# Runs on one worker of a Cloud TPU slice: starts a run that outlives the connection,
# prints its state, shows its log and stops it. launch/tpu.py calls it through ssh.
#
#   tpu_worker.sh start RUN [arguments of launch.sh]
#   tpu_worker.sh status RUN          bert_jax-state WORD BYTES [STATUS]
#   tpu_worker.sh follow RUN OFFSET   `RS bert_jax-log OFFSET`, then the log from that
#                                     byte on, until the run has ended
#   tpu_worker.sh tail RUN LINES
#   tpu_worker.sh stop RUN SECONDS    SIGTERM, and SIGKILL after SECONDS
#
# A run's folder, ~/bert_jax_runs/RUN, holds `log` (standard output and error), `pid`
# (also the process group), `boot`, `status` once it has ended, and `stopped`.
set -euo pipefail

root=$(CDPATH='' cd -- "${BASH_SOURCE[0]%/*}/.." && pwd -P)
verb=$1
run=$2
shift 2
folder=$HOME/bert_jax_runs/$run
boot=$(cat /proc/sys/kernel/random/boot_id)

same_boot() { [ "$(cat "$folder/boot" 2>/dev/null)" = "$boot" ]; }

alive() {
  [ -f "$folder/pid" ] && same_boot && kill -0 "$(cat "$folder/pid")" 2>/dev/null
}

group_lives() { kill -0 -- "-$1" 2>/dev/null; }

case $verb in
  start)
    if alive; then exit 0; fi
    rm -rf "$folder"
    mkdir -p "$folder"
    printf '%s\n' "$boot" >"$folder/boot"
    cd -- "$root"
    # Its own session: the end of a connection does not reach it.
    setsid nohup bash "$root/launch/tpu_worker.sh" supervise "$run" "$@" \
      </dev/null >"$folder/log" 2>&1 &
    printf '%s\n' $! >"$folder/pid"
    ;;
  supervise)
    # SIGTERM goes to the whole group; the run saves itself, this shell waits for it.
    trap : TERM INT
    status=0
    ./launch.sh "$@" || status=$?
    printf '%s\n' "$status" >"$folder/status.new"
    mv "$folder/status.new" "$folder/status"
    ;;
  status)
    bytes=$(stat -c %s "$folder/log" 2>/dev/null || echo 0)
    if alive; then
      echo "bert_jax-state running $bytes"
    elif [ -f "$folder/stopped" ]; then
      echo "bert_jax-state stopped $bytes"
    elif [ -f "$folder/status" ]; then
      echo "bert_jax-state ended $bytes $(cat "$folder/status")"
    elif [ ! -f "$folder/pid" ]; then
      echo "bert_jax-state none 0"
    elif same_boot; then
      echo "bert_jax-state killed $bytes"
    else
      echo "bert_jax-state rebooted $bytes"
    fi
    ;;
  follow)
    printf '\036bert_jax-log %s\n' "$1"
    exec tail --bytes="+$(($1 + 1))" --follow --pid="$(cat "$folder/pid")" \
      --sleep-interval=0.5 "$folder/log"
    ;;
  tail)
    tail --lines="$1" "$folder/log"
    ;;
  stop)
    if ! alive; then exit 0; fi
    pid=$(cat "$folder/pid")
    : >"$folder/stopped"
    kill -TERM -- "-$pid" || true
    for ((i = 0; i < 10 * $1; i++)); do
      if ! group_lives "$pid"; then exit 0; fi
      sleep 0.1
    done
    kill -KILL -- "-$pid" 2>/dev/null || true
    ;;
  *)
    echo "error: tpu_worker.sh $verb: no such verb" >&2
    exit 2
    ;;
esac
