"""The policy site-rules."""
