#!/usr/bin/env bash
# A real Ray cluster on one machine, for tests, in a network and process namespace of its own.
#
#   ray.sh install        makes the environment CACHE/engines/ray-VERSION, where it is missing
#   ray.sh up DIR         starts a head and WORKERS (1) more nodes; prints RAY_API_SERVER_ADDRESS as an `export` line
#   ray.sh down DIR       ends all of it
#
# Each node has GPUS (8) cards that do not exist. Ray's daemons listen on every interface whatever they are
# told: in the namespace there is only the loopback one, and a forwarder offers the Jobs API on PORT (18265)
# of the machine's own. When the namespace's first process ends the kernel ends the rest. Needs root.
set -Eeuo pipefail

VERSION=${RAY_VERSION:-2.60.0}
WORKERS=${WORKERS:-1} GPUS=${GPUS:-8} PORT=${PORT:-18265} WAIT=${WAIT:-180}
CACHE=${TUNEPORT_CACHE_DIR:-/var/tmp/tuneport-cache}
VENV=$CACHE/engines/ray-$VERSION
HERE=$(cd "$(dirname "$0")" && pwd)

say() { echo "ray.sh: $*" >&2; }
fail() { say "$*"; exit 1; }

environment() {
  [ ! -e "$VENV/ready" ] || return 0
  rm -rf "$VENV"
  "${PYTHON:-python3}" -m venv "$VENV"
  "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check "ray[default]==$VERSION"
  : >"$VENV/ready"
}

stamp() { awk '{ print $22 }' "/proc/$1/stat" 2>/dev/null; }
running() {
  local pid began
  read -r pid began 2>/dev/null <"$DIR/pids/$1" || return 1
  [ -n "$pid" ] && [ "$(stamp "$pid")" = "$began" ] && [ "$(awk '{ print $3 }' "/proc/$pid/stat" 2>/dev/null)" != Z ]
}
launch() { # NAME COMMAND…
  local name=$1
  shift
  setsid "$@" </dev/null >"$DIR/log/$name" 2>&1 &
  echo "$! $(stamp "$!")" >"$DIR/pids/$name"
}
end() { # NAME
  local pid tries=0
  running "$1" || return 0
  read -r pid _ <"$DIR/pids/$1"
  kill -KILL "$pid" 2>/dev/null || :
  while running "$1" && [ $((tries += 1)) -lt 50 ]; do sleep 0.2; done
}

# The first process of the namespace: starts the nodes and collects what ends.
inside() {
  ip link set lo up
  export RAY_USAGE_STATS_ENABLED=0 PATH="$VENV/bin:$PATH"
  unset CUDA_VISIBLE_DEVICES RAY_ADDRESS
  local common=(--num-cpus=8 "--num-gpus=$GPUS" --object-store-memory=100000000 --node-ip-address=127.0.0.1
    --min-worker-port=0 --max-worker-port=0 --disable-usage-stats --block)
  "$VENV/bin/ray" start --head --port=6379 --dashboard-port=8265 --temp-dir="$DIR/t" \
    --resources='{"big": 1}' "${common[@]}" >"$DIR/log/head" 2>&1 &
  until (exec 3<>/dev/tcp/127.0.0.1/6379) 2>/dev/null; do sleep 0.2; done
  for number in $(seq "$WORKERS"); do
    "$VENV/bin/ray" start --address=127.0.0.1:6379 --temp-dir="$DIR/w$number" --resources='{"small": 1}' "${common[@]}" \
      >"$DIR/log/worker-$number" 2>&1 &
  done
  while :; do sleep 3600 & wait "$!" || :; done
}

up() {
  [ "$(id -u)" = 0 ] || fail "needs root"
  [ -x "$VENV/bin/ray" ] || fail "$VENV is missing: ray.sh install"
  [ "${#DIR}" -le 40 ] || fail "$DIR is too long for Ray's sockets"
  [ ! -d "$DIR/pids" ] || down
  [ ! -e "$DIR" ] || [ -e "$DIR/.ray.sh" ] || [ -z "$(ls -A "$DIR")" ] || fail "$DIR is somebody else's"
  rm -rf "$DIR"
  mkdir -p "$DIR"/{log,pids}
  : >"$DIR/.ray.sh"
  trap 'say "it did not come up"; tail -n 5 "$DIR"/log/* >&2; down' ERR
  WORKERS=$WORKERS GPUS=$GPUS launch namespace \
    unshare --net --pid --fork --kill-child=KILL --mount-proc "$HERE/ray.sh" inside "$DIR"
  local first="" pid tries=0
  read -r pid _ <"$DIR/pids/namespace"
  while [ -z "$first" ] && [ $((tries += 1)) -lt 50 ]; do
    sleep 0.1
    first=$(tr -d ' ' <"/proc/$pid/task/$pid/children")
  done
  launch forward python3 "$HERE/forward.py" "$PORT" "$first" 8265
  local until=$((SECONDS + WAIT))
  until "$VENV/bin/python" "$HERE/forward.py" ask "$PORT" $((WORKERS + 1)); do
    running namespace || false
    [ "$SECONDS" -lt "$until" ] || false
    sleep 1
  done
  trap - ERR
  echo "export RAY_API_SERVER_ADDRESS=http://127.0.0.1:$PORT"
}

down() {
  end forward
  end namespace
  rm -rf "$DIR/pids"
}

verb=${1:-}
[ "$verb" != install ] || { environment; exit; }
[ -n "${2:-}" ] || fail "usage: ray.sh install | up DIR | down DIR"
DIR=$(realpath -m "$2")
case $verb in
  up | down | inside) "$verb" ;;
  *) fail "no verb $verb" ;;
esac
