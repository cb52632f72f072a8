"""The adapter of PyTorch training scripts.
No manifest: it only marks the package; each module says why it is code.
"""
