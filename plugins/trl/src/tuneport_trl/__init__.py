"""Tuneport's adapter for Hugging Face TRL.
No manifest: it only marks the package; each module says why it is code.
"""
