"""Tuneport's adapter for NeMo-RL.
No manifest: it only marks the package; each module says why it is code.
"""
