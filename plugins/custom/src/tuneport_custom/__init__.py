"""The adapter of trainers that users bring along as a shell script."""
