#!/bin/bash
#SBATCH --job-name=job-abc-1
#SBATCH --comment=tuneport:job-abc-1
#SBATCH --account=team
#SBATCH --qos=high
#SBATCH --constraint="a&b"
#SBATCH --signal=TERM@120
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --requeue
#SBATCH --chdir=/shared/state/jobs/job-abc/1/work
#SBATCH --output=/shared/state/jobs/job-abc/1/logs/trainer.log
#SBATCH --open-mode=append

# Job job-abc, attempt 1, of Tuneport: custom/custom on custom 1.
# Plan sha256:87556c6ac27289ab0aa28bba265c51cb14c69c03daadfd6c92643f7b53cf1825
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

# on each of the 2 nodes of pool main
role_trainer() {
  everywhere
  export TUNEPORT_ROLE=trainer
  export TUNEPORT_CLUSTER_NODES=2 TUNEPORT_CLUSTER_GPUS_PER_NODE=8
  export TUNEPORT_CLUSTER_PROCESSES_PER_NODE=8
  export TUNEPORT_CLUSTER_NODE_RANK="$SLURM_NODEID" TUNEPORT_CLUSTER_HEAD_ADDR="$tp_head_0"
  export TUNEPORT_CLUSTER_HEAD_PORT="$tp_port"
  tp_rank=$((SLURM_NODEID + 0))
  sh \
    -c \
    'echo 1'
}

start_roles() {
  step trainer --nodes=2 --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=1 --label &
  pids+=("$!") names+=(trainer)
}

find_nodes() {
  tp_head_0=$(node_address "$SLURM_JOB_NODELIST" 1) && export tp_head_0
}

