"""Tuneport's adapter for lm-eval and evalscope."""
