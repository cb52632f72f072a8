"""Runs plans on a Slurm cluster: one batch script per plan."""
