#!/bin/bash
#SBATCH --job-name=job-abc-1
#SBATCH --comment=tuneport:job-abc-1
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --no-requeue
#SBATCH --chdir=/shared/state/jobs/job-abc/1/work
#SBATCH --output=/shared/state/jobs/job-abc/1/logs/actor.log
#SBATCH --open-mode=append

# Job job-abc, attempt 1, of Tuneport: custom/custom on custom 1.
# Plan sha256:a7a2ce51cb04267763f065bca23800e0b58722559a2b395ce240ad61394594de
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
  export TUNEPORT_CLUSTER_MAIN_NODES=2 TUNEPORT_CLUSTER_MAIN_GPUS_PER_NODE=8
  export TUNEPORT_CLUSTER_MAIN_HEAD_ADDR="$tp_head_0"
  export TUNEPORT_CLUSTER_TEACH_NODES=1 TUNEPORT_CLUSTER_TEACH_GPUS_PER_NODE=8
  export TUNEPORT_CLUSTER_TEACH_HEAD_ADDR="$tp_head_1"
}

# on each of the 2 nodes of pool main
role_actor() {
  everywhere
  export A='b c'
  export TUNEPORT_ROLE=actor
  export TUNEPORT_CLUSTER_NODES=2 TUNEPORT_CLUSTER_GPUS_PER_NODE=8
  export TUNEPORT_CLUSTER_PROCESSES_PER_NODE=8
  export TUNEPORT_CLUSTER_NODE_RANK="$SLURM_NODEID" TUNEPORT_CLUSTER_HEAD_ADDR="$tp_head_0"
  export TUNEPORT_CLUSTER_HEAD_PORT="$tp_port"
  tp_rank=$((SLURM_NODEID + 0))
  train \
    "$tp_head"
}

# on the node of pool teach
role_teacher() {
  everywhere
  export TUNEPORT_ROLE=teacher
  export TUNEPORT_CLUSTER_NODES=1 TUNEPORT_CLUSTER_GPUS_PER_NODE=8
  export TUNEPORT_CLUSTER_PROCESSES_PER_NODE=8
  export TUNEPORT_CLUSTER_NODE_RANK="$SLURM_NODEID" TUNEPORT_CLUSTER_HEAD_ADDR="$tp_head_1"
  export TUNEPORT_CLUSTER_HEAD_PORT="$tp_port"
  tp_rank=$((SLURM_NODEID + 2))
  serve \
    "$tp_rank" \
    "$tp_head":1
}

start_roles() {
  step actor --nodes=2 --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=1 --label &
  pids+=("$!") names+=(actor)
  step teacher --nodes=1 --ntasks=1 --ntasks-per-node=1 --kill-on-bad-exit=1 --relative=2 >>/shared/state/jobs/job-abc/1/logs/teacher.log 2>&1 &
  pids+=("$!") names+=(teacher)
}

find_nodes() {
  tp_head_0=$(node_address "$SLURM_JOB_NODELIST" 1) && export tp_head_0
  tp_head_1=$(node_address "$SLURM_JOB_NODELIST" 3) && export tp_head_1
}

