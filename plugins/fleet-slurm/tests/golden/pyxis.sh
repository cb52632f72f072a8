#!/bin/bash
#SBATCH --job-name=job-abc-1
#SBATCH --comment=tuneport:job-abc-1
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=1
#SBATCH --no-requeue
#SBATCH --chdir=/shared/state/jobs/job-abc/1/work
#SBATCH --output=/shared/state/jobs/job-abc/1/logs/trainer.log
#SBATCH --open-mode=append

# Job job-abc, attempt 1, of Tuneport: custom/custom on custom 1.
# Plan sha256:10243abfcd08b0d39f06bb310c660ec7e3951ae39ef468109b49ec29ecc8797a
# Slurm starts this file once, on the first node. It calls itself on each node of each role: the
# functions role_… say what runs there.

set -u
key=job-abc-1
folder=/shared/state/jobs/job-abc/1

everywhere() {
  export PYTHONUNBUFFERED=1
  export TUNEPORT_JOB_ID=job-abc
  export TUNEPORT_ATTEMPT=1
  export TUNEPORT_OUTPUT_DIR=/shared/state/jobs/job-abc/1/output
  export TUNEPORT_LOG_DIR=/shared/state/jobs/job-abc/1/tensorboard
  export TUNEPORT_REPORT_FILE=/shared/state/jobs/job-abc/1/report.jsonl
  export PYTHONPATH=/shared/state/jobs/job-abc/1/modules"${PYTHONPATH:+:$PYTHONPATH}"
}

# on the node of pool main
role_trainer() {
  everywhere
  export TUNEPORT_ROLE=trainer
  export TUNEPORT_CLUSTER_NODES=1 TUNEPORT_CLUSTER_GPUS_PER_NODE=0
  export TUNEPORT_CLUSTER_PROCESSES_PER_NODE=1
  export TUNEPORT_CLUSTER_NODE_RANK="$SLURM_NODEID" TUNEPORT_CLUSTER_HEAD_ADDR="$tp_head_0"
  export TUNEPORT_CLUSTER_HEAD_PORT="$tp_port"
  tp_rank=$((SLURM_NODEID + 0))
  sh \
    -c \
    true
}

start_roles() {
  step trainer --nodes=1 --ntasks=1 --ntasks-per-node=1 --kill-on-bad-exit=1 '--container-image=reg.example.org#a/b:1' --container-mounts=/shared/state/jobs/job-abc:/shared/state/jobs/job-abc,/shared/state:/shared/state,/shared/cache:/shared/cache --container-workdir=/shared/state/jobs/job-abc/1/work &
  pids+=("$!") names+=(trainer)
}

find_nodes() {
  tp_head_0=$(node_address "$SLURM_JOB_NODELIST" 1) && export tp_head_0
}

