"""Tuneport's adapter for NeMo-RL."""
