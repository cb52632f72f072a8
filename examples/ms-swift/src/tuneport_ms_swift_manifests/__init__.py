"""Manifests of ms-swift."""
