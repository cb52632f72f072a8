"""Places that run plans."""
