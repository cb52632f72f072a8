"""Tuneport's adapter for OpenRLHF.
No manifest: it only marks the package; each module says why it is code.
"""
