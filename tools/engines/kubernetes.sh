#!/usr/bin/env bash
# A real Kubernetes API on one machine, for tests: etcd, kube-apiserver and kube-controller-manager, no nodes.
#
#   kubernetes.sh install         builds them into CACHE/engines/kubernetes-HASH, where they are missing
#   kubernetes.sh up DIR           starts them on PORT (26443) and the two ports after it, of the loopback interface;
#                                  prints KUBECONFIG as an `export` line
#   kubernetes.sh down DIR         ends them
#
# HASH is that of kubernetes-build.sh without its comments: a build is made anew when the way of building changes.
# Every wait is bounded, and only processes whose number and start time were written down are ever ended.
set -Eeuo pipefail

PORT=${PORT:-26443}
CACHE=${TUNEPORT_CACHE_DIR:-/var/tmp/tuneport-cache}
HERE=$(cd "$(dirname "$0")" && pwd)
BIN=$CACHE/engines/kubernetes-$(grep -v '^ *#' "$HERE/kubernetes-build.sh" | sha256sum | cut -c 1-12)

say() { echo "kubernetes.sh: $*" >&2; }
fail() { say "$*"; exit 1; }

install_servers() {
  [ ! -e "$BIN/ready" ] || return 0
  mkdir -p "$CACHE/engines"
  (
    flock 9 # somebody may be building it already
    [ -e "$BIN/ready" ] || "$HERE/kubernetes-build.sh" "$BIN"
  ) 9>"$BIN.lock"
}

stamp() { awk '{ print $22 }' "/proc/$1/stat" 2>/dev/null; }
running() {
  local pid began
  read -r pid began 2>/dev/null <"$DIR/pids/$1" || return 1
  [ -n "$pid" ] && [ "$(stamp "$pid")" = "$began" ] && [ "$(awk '{ print $3 }' "/proc/$pid/stat" 2>/dev/null)" != Z ]
}
launch() { # NAME OPTION…
  local name=$1
  shift
  setsid "$BIN/$name" "$@" </dev/null >"$DIR/log/$name" 2>&1 &
  echo "$! $(stamp "$!")" >"$DIR/pids/$name"
}
end() { # NAME
  local pid tries=0
  running "$1" || return 0
  read -r pid _ <"$DIR/pids/$1"
  kill -KILL "$pid" 2>/dev/null || : # nothing of it is kept
  while running "$1" && [ $((tries += 1)) -lt 50 ]; do sleep 0.1; done
}
answers() {
  curl --silent --fail --noproxy '*' --max-time 5 --cacert "$DIR/pki/apiserver.crt" --header "Authorization: Bearer $1" \
    "https://127.0.0.1:$PORT/api/v1/namespaces/default" >/dev/null 2>&1
}

server() {
  launch kube-apiserver --etcd-servers="http://127.0.0.1:$((PORT + 1))" --cert-dir="$DIR/pki" --secure-port="$PORT" \
    --bind-address=127.0.0.1 --advertise-address=127.0.0.1 --endpoint-reconciler-type=none \
    --service-cluster-ip-range=10.0.0.0/24 --token-auth-file="$DIR/tokens" --authorization-mode=RBAC \
    --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$DIR/pki/key" \
    --service-account-signing-key-file="$DIR/pki/key" --disable-admission-plugins=ServiceAccount
}
wait_for_server() {
  local until=$((SECONDS + 90))
  until answers "$(cut -d , -f 1 "$DIR/tokens" | head -n 1)"; do
    running kube-apiserver || fail "kube-apiserver ended: $(tail -n 3 "$DIR/log/kube-apiserver")"
    [ "$SECONDS" -lt "$until" ] || fail "kube-apiserver does not answer"
    sleep 0.2
  done
}

up() {
  local admin guest
  [ -e "$BIN/ready" ] || fail "$BIN is missing: kubernetes.sh install"
  [ ! -d "$DIR/pids" ] || down
  [ ! -e "$DIR" ] || [ -e "$DIR/.kubernetes.sh" ] || [ -z "$(ls -A "$DIR")" ] || fail "$DIR is somebody else's"
  rm -rf "$DIR"
  mkdir -p "$DIR"/{etcd,log,pids,pki}
  : >"$DIR/.kubernetes.sh"
  trap 'say "it did not come up"; down' ERR
  openssl genrsa -out "$DIR/pki/key" 2048 2>/dev/null
  admin=$(openssl rand -hex 16) guest=$(openssl rand -hex 16)
  (umask 077 && printf '%s\n' "$admin,admin,admin,system:masters" "$guest,guest,guest" >"$DIR/tokens")
  launch etcd --data-dir "$DIR/etcd" --unsafe-no-fsync --listen-client-urls "http://127.0.0.1:$((PORT + 1))" \
    --advertise-client-urls "http://127.0.0.1:$((PORT + 1))" --listen-peer-urls "http://127.0.0.1:$((PORT + 2))" \
    --initial-advertise-peer-urls "http://127.0.0.1:$((PORT + 2))" \
    --initial-cluster "default=http://127.0.0.1:$((PORT + 2))"
  server
  (umask 077 && cat >"$DIR/kubeconfig") <<END
apiVersion: v1
kind: Config
clusters:
- {name: test, cluster: {server: "https://127.0.0.1:$PORT", certificate-authority: pki/apiserver.crt}}
users:
- {name: admin, user: {token: "$admin"}}
- {name: guest, user: {token: "$guest"}}
contexts:
- {name: test, context: {cluster: test, user: admin, namespace: ns}}
- {name: guest, context: {cluster: test, user: guest, namespace: ns}}
current-context: test
END
  wait_for_server
  # Only what objects need that belong to others, and Jobs.
  launch kube-controller-manager --kubeconfig="$DIR/kubeconfig" --leader-elect=false --port=0 --secure-port=0 \
    --cert-dir="$DIR/pki" --controllers=garbagecollector,namespace,job
  trap - ERR
  echo "export KUBECONFIG=$DIR/kubeconfig"
}

down() {
  end kube-controller-manager
  end kube-apiserver
  end etcd
  rm -rf "$DIR/pids"
}

verb=${1:-}
[ "$verb" != install ] || { install_servers; exit; }
[ -n "${2:-}" ] || fail "usage: kubernetes.sh install | up DIR | down DIR | server-stop DIR | server-start DIR"
DIR=$(realpath -m "$2")
case $verb in
  up | down) "$verb" ;;
  server-stop) end kube-apiserver ;;
  server-start) server && wait_for_server ;;
  *) fail "no verb $verb" ;;
esac
