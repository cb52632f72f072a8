"""Tuneport's adapter for verl.
No manifest: it only marks the package; each module says why it is code.
"""
