#!/usr/bin/env bash
# A real Slurm on one machine, for tests: slurmctld, some slurmd, and munge, all below one folder.
#
#   slurm.sh install      installs Debian's packages, where they are missing
#   slurm.sh up DIR       starts it and prints the environment to use, as `export` lines
#   slurm.sh down DIR     ends its jobs and itself
#
# NODES (2) nodes of GPUS (8) cards that do not exist, on ports from PORT (16817) on, of the loopback
# interface only. Needs root: slurmd becomes the user of a job. Every wait is bounded, and only processes
# whose number and start time were written down are ever ended.
set -Eeuo pipefail

NODES=${NODES:-2} GPUS=${GPUS:-8} PORT=${PORT:-16817}

say() { echo "slurm.sh: $*" >&2; }
fail() { say "$*"; exit 1; }

packages() {
  local tool missing=0
  for tool in slurmctld slurmd sbatch munged; do command -v "$tool" >/dev/null || missing=1; done
  [ "$missing" = 1 ] || return 0
  [ "$(id -u)" = 0 ] || fail "not root: install slurmctld, slurmd, slurm-client and munge yourself"
  command -v apt-get >/dev/null || fail "no apt-get: install Slurm and munge yourself"
  local wanted=(slurmctld slurmd slurm-client munge slurm-wlm-basic-plugins)
  export DEBIAN_FRONTEND=noninteractive
  apt-get install -y -qq --no-install-recommends "${wanted[@]}" >/dev/null 2>&1 ||
    { apt-get update -qq >/dev/null && apt-get install -y -qq --no-install-recommends "${wanted[@]}" >/dev/null; }
}

stamp() { awk '{ print $22 }' "/proc/$1/stat" 2>/dev/null; }
running() { # NAME: it is still the process that was started, and no zombie
  local pid began
  read -r pid began 2>/dev/null <"$DIR/pids/$1" || return 1
  [ -n "$pid" ] && [ "$(stamp "$pid")" = "$began" ] && [ "$(awk '{ print $3 }' "/proc/$pid/stat" 2>/dev/null)" != Z ]
}
launch() { # NAME COMMAND…
  local name=$1
  shift
  setsid "$@" </dev/null >"$DIR/log/$name.out" 2>&1 &
  echo "$! $(stamp "$!")" >"$DIR/pids/$name"
}
end() { # NAME
  local pid tries=0
  running "$1" || return 0
  read -r pid _ <"$DIR/pids/$1"
  kill -TERM "$pid" 2>/dev/null || :
  while running "$1" && [ $((tries += 1)) -lt 50 ]; do sleep 0.2; done
  ! running "$1" || kill -KILL "$pid" 2>/dev/null || :
}
within() { # SECONDS COMMAND…
  local until=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$until" ] || return 1
    sleep 0.2
  done
}

configure() {
  local host number
  host=$(hostname -s)
  cat <<END
ClusterName=tuneport
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$PORT
SlurmUser=root
SlurmdUser=root
AuthInfo=socket=$DIR/munge/socket,cred_expire=5
StateSaveLocation=$DIR/state
SlurmdSpoolDir=$DIR/spool/%n
SlurmctldPidFile=$DIR/state/slurmctld.pid
SlurmdPidFile=$DIR/state/slurmd-%n.pid
SlurmctldLogFile=$DIR/log/slurmctld.log
SlurmdLogFile=$DIR/log/slurmd-%n.log
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
SchedulerParameters=bf_interval=1,sched_interval=2,batch_sched_delay=0,requeue_delay=1
GresTypes=gpu
ReturnToService=2
KillWait=3
MinJobAge=3600
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MailProg=/bin/true
END
  for number in $(seq "$NODES"); do
    echo "NodeName=sn$number NodeHostname=$host NodeAddr=127.0.0.1 Port=$((PORT + number))" \
      "CPUs=16 RealMemory=65536 Gres=gpu:$GPUS State=UNKNOWN"
  done
  echo "PartitionName=main Nodes=sn[1-$NODES] Default=YES MaxTime=INFINITE State=UP"
}

up() {
  local number
  [ "$(id -u)" = 0 ] || fail "needs root"
  [ ! -d "$DIR/pids" ] || down
  [ ! -e "$DIR" ] || [ -e "$DIR/.slurm.sh" ] || [ -z "$(ls -A "$DIR")" ] || fail "$DIR is somebody else's"
  rm -rf "$DIR"
  mkdir -p "$DIR"/{state,log,pids,spool,dev}
  : >"$DIR/.slurm.sh"
  install -d -o munge -g munge -m 755 "$DIR/munge"
  chmod 755 "$DIR"
  trap 'say "it did not come up"; tail -n 5 "$DIR"/log/* >&2; down' ERR
  head -c 1024 /dev/urandom >"$DIR/munge/key"
  chown munge:munge "$DIR/munge/key"
  chmod 400 "$DIR/munge/key"
  configure >"$DIR/slurm.conf"
  # Slurm counts character devices only: each card is a clone of /dev/null.
  for number in $(seq 0 $((GPUS - 1))); do mknod -m 666 "$DIR/dev/nvidia$number" c 1 3; done
  printf 'AutoDetect=off\nName=gpu File=%s\n' "$DIR/dev/nvidia[0-$((GPUS - 1))]" >"$DIR/gres.conf"
  printf 'CgroupAutomount=no\n' >"$DIR/cgroup.conf"
  launch munged setpriv --reuid=munge --regid=munge --init-groups munged --foreground --force \
    --key-file="$DIR/munge/key" --socket="$DIR/munge/socket" --pid-file="$DIR/munge/pid" \
    --log-file="$DIR/munge/log" --seed-file="$DIR/munge/seed"
  within 15 munge --no-input --socket="$DIR/munge/socket"
  controller
  for number in $(seq "$NODES"); do
    mkdir -p "$DIR/spool/sn$number"
    launch "slurmd-$number" slurmd -D -N "sn$number" -f "$SLURM_CONF"
  done
  within 60 all_idle
  trap - ERR
  echo "export SLURM_CONF=$SLURM_CONF"
}
controller() {
  launch slurmctld slurmctld -D -f "$SLURM_CONF"
  within 30 sh -c 'scontrol ping | grep -q UP'
}
all_idle() { [ "$(sinfo -h -N -t idle -o %N | sort -u | wc -l)" = "$NODES" ]; }


nothing_left() { [ -z "$(timeout 5 squeue -h -t R,CG,PD -o %i || echo unknown)" ]; }

down() {
  local file
  if running slurmctld; then
    timeout 10 scancel --user="$(id -un)" 2>/dev/null || :
    within 15 nothing_left || :
  fi
  for file in "$DIR"/pids/slurmd-* "$DIR/pids/slurmctld" "$DIR/pids/munged"; do
    [ ! -e "$file" ] || end "${file##*/}"
  done
  rm -rf "$DIR/pids"
}

verb=${1:-}
[ "$verb" != install ] || { packages; exit; }
[ -n "${2:-}" ] || fail "usage: slurm.sh install | up DIR | down DIR | controller-stop DIR | controller-start DIR"
DIR=$(realpath -m "$2")
export SLURM_CONF="$DIR/slurm.conf"
case $verb in
  up | down) "$verb" ;;
  controller-stop) end slurmctld ;;
  controller-start) controller ;;
  *) fail "no verb $verb" ;;
esac
