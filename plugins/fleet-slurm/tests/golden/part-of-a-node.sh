#!/bin/bash
#SBATCH --job-name=job-abc-1
#SBATCH --comment=tuneport:job-abc-1
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=l40:2
#SBATCH --cpus-per-task=8
#SBATCH --mem=64G
#SBATCH --no-requeue
#SBATCH --mail-type=END
#SBATCH --chdir=/shared/state/jobs/job-abc/1/work
#SBATCH --output=/shared/state/jobs/job-abc/1/logs/trainer.log
#SBATCH --open-mode=append

# Job job-abc, attempt 1, of Tuneport: custom/custom on custom 1.
# Plan sha256:7d2550d852e83d1b4e00b30b04814e347b369127c83908ba275323ca12446643
# Slurm starts this file once, on the first node. It calls itself on each node of each role: the
# functions role_… say what runs there.

set -u
key=job-abc-1
folder=/shared/state/jobs/job-abc/1

everywhere() {
  module load cuda
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
  export TUNEPORT_CLUSTER_NODES=1 TUNEPORT_CLUSTER_GPUS_PER_NODE=2
  export TUNEPORT_CLUSTER_PROCESSES_PER_NODE=2
  export TUNEPORT_CLUSTER_NODE_RANK="$SLURM_NODEID" TUNEPORT_CLUSTER_HEAD_ADDR="$tp_head_0"
  export TUNEPORT_CLUSTER_HEAD_PORT="$tp_port"
  tp_rank=$((SLURM_NODEID + 0))
  sh \
    -c \
    'echo 1'
}

start_roles() {
  step trainer --nodes=1 --ntasks=1 --ntasks-per-node=1 --kill-on-bad-exit=1 &
  pids+=("$!") names+=(trainer)
}

find_nodes() {
  tp_head_0=$(node_address "$SLURM_JOB_NODELIST" 1) && export tp_head_0
}

