"""The adapter of trainers that users bring along as a shell script.
No manifest: it only marks the package; each module says why it is code.
"""
