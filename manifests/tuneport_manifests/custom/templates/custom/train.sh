#!/bin/sh
# What the job runs, started by sh in a copy of this folder. Put your own training in place of the last line.
#
#   CONFIG_*               keys of config.yaml: epochs is CONFIG_EPOCHS, optimizer.lr CONFIG_OPTIMIZER__LR
#   TUNEPORT_MODEL         --model; likewise TUNEPORT_TRAIN_DATA and TUNEPORT_VALIDATION_DATA, where given
#   TUNEPORT_OUTPUT_DIR    what is written here is kept
#   TUNEPORT_LOG_DIR       TensorBoard files written here become curves, as numbers given to tuneport_report do
#   TUNEPORT_CLUSTER_*     NODES, GPUS_PER_NODE, NODE_RANK, HEAD_ADDR of the hardware that was asked for
set -eu

exec "${PYTHON:-python3}" fit.py
