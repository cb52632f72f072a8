"""The adapter of PyTorch training scripts."""
