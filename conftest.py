"""For every test."""

from __future__ import annotations

import signal

# A shell's background job, and many a CI runner, ignores Ctrl-C, and children inherit that: those that a
# test interrupts would never hear it.
signal.signal(signal.SIGINT, signal.default_int_handler)
