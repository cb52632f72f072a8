# ---- from here on the script is the same for every job

# What other nodes call the node in line $2 of the node list $1.
node_address() {
  local name address
  name=$(scontrol show hostnames "$1" | sed -n "$2p")
  address=$(scontrol show node "$name" -o 2>/dev/null | sed -n 's/.* NodeAddr=\([^ ]*\) .*/\1/p')
  printf '%s' "${address:-$name}"
}

# A port that is free on this node and the same for all: they are told.
choose_port() {
  tp_port=$((20000 + SLURM_JOB_ID % 12000))
  while (exec 3<>"/dev/tcp/127.0.0.1/$tp_port") 2>/dev/null; do
    tp_port=$((tp_port + 1))
  done
  export tp_port
}

# The record of how the job ended, for the time when Slurm has forgotten it: STATE CODE CAUSE.
record() {
  printf '{"state": "%s", "exit_code": %s, "cause": "%s", "started": %s, "ended": %s}\n' \
    "$1" "$2" "$3" "$begun" "$(date +%s)" >"$folder/.exit.draft" &&
    mv -f "$folder/.exit.draft" "$folder/exit.json"
}

# One start for a submission: the file slurm-job has the number of the job that may run. A requeued job has
# the same number and starts anew; a second job, sent because the first one's reply was lost, ends here.
claim() {
  local mine="$folder/.slurm-job-$SLURM_JOB_ID"
  printf '%s\n' "$SLURM_JOB_ID" >"$mine" || exit 74
  if ! ln "$mine" "$folder/slurm-job" 2>/dev/null && [ ! -e "$folder/slurm-job" ]; then
    mv -n "$mine" "$folder/slurm-job" # a file system without links
  fi
  rm -f "$mine"
  if [ "$(cat "$folder/slurm-job")" != "$SLURM_JOB_ID" ]; then
    echo "tuneport: $key runs as Slurm job $(cat "$folder/slurm-job"); this one has nothing to do"
    exit 0
  fi
  rm -f "$folder/exit.json" "$folder/failed" "$folder"/step-*
  if [ -e "$folder/stop.json" ]; then
    record STOPPED 143 "stopped before it started"
    exit 0
  fi
}

# Ends what runs, for the reason that the caller records.
end_roles() {
  local pid
  for pid in "${pids[@]}"; do
    kill -TERM "$pid" 2>/dev/null
  done
  wait
}

# Slurm's own word on why it sent TERM (cancelled, time limit, preempted) outlives this guess.
told_to_end() {
  trap '' TERM
  end_roles
  record "$([ -e "$folder/stop.json" ] && echo STOPPED || echo FAILED)" 143 "ended by Slurm"
  exit 143
}

# The first command that failed is the reason, not those that were ended because of it: ROLE CODE.
failed() {
  local role=$1 code=$2 node=""
  [ ! -s "$folder/failed" ] || read -r role code node <"$folder/failed"
  record FAILED "$code" "$role ended with exit code $code${node:+ on $node}"
  exit "$code"
}

# One role on all its nodes: ROLE OPTIONS OF SRUN…. A step that could not be made, because the controller was
# away for example, is tried once more when the controller is there: nothing has run yet.
step() {
  local role=$1 code again="" child=""
  shift
  trap '[ -z "$child" ] || kill -TERM "$child" 2>/dev/null' TERM
  while :; do
    srun "$@" "${step_options[@]}" bash "$folder/job.sh" node "$role" &
    child=$!
    wait "$child"
    code=$?
    while kill -0 "$child" 2>/dev/null; do # a signal interrupts `wait`
      wait "$child"
      code=$?
    done
    if [ "$code" -eq 0 ] || [ -e "$folder/step-$role" ] || [ -n "$again" ]; then
      exit "$code"
    fi
    again=yes
    until scontrol ping 2>/dev/null | grep -q ' UP'; do sleep 5; done
    sleep 15 # its nodes have to report to it first
  done
}

# What one node does for a role. The traps let the command answer a signal before this shell ends.
node() {
  local code
  trap : TERM INT USR1 USR2 HUP
  : >"$folder/step-$1"
  "role_$1"
  code=$?
  [ "$code" -eq 0 ] || (set -o noclobber && echo "$1 $code ${SLURMD_NODENAME:-}" >"$folder/failed") 2>/dev/null
  exit "$code"
}

main() {
  local left code=0 number
  begun=$(date +%s)
  claim
  trap told_to_end TERM
  find_nodes
  choose_port
  tp_head=$tp_head_0
  export tp_head
  export TUNEPORT_RESTARTS="${SLURM_RESTART_COUNT:-0}"
  unset SLURM_EXPORT_ENV # a step gets the environment of this script
  step_options=()
  [ -z "${SLURM_CPUS_PER_TASK:-}" ] || step_options+=("--cpus-per-task=$SLURM_CPUS_PER_TASK")
  # Before 20.11 steps shared nodes unasked; since then they have to ask.
  if srun --help 2>&1 | grep -q -e --overlap; then step_options+=(--overlap); fi
  pids=() names=()
  start_roles
  left=${#pids[@]}
  while [ "$left" -gt 0 ]; do
    for number in "${!pids[@]}"; do
      if ! kill -0 "${pids[$number]}" 2>/dev/null; then
        wait "${pids[$number]}"
        code=$?
        if [ "$code" -ne 0 ]; then
          unset "pids[$number]"
          end_roles
          failed "${names[$number]}" "$code"
        fi
        unset "pids[$number]"
        left=$((left - 1))
      fi
    done
    if [ "$left" -gt 0 ]; then
      sleep 1 &
      wait "$!"
    fi
  done
  record SUCCEEDED 0 "ended with exit code 0"
}

if [ "${1-}" = node ]; then
  node "$2"
else
  main
fi
