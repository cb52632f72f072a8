"""Tuneport's adapter for lm-eval and evalscope.
No manifest: it only marks the package; each module says why it is code.
"""
