"""Reads a shell script for the commands that it starts, without running any of it.

`reader.read` is the way in. A value that only the running script knows is a gap (see `gaps`): what depends
on it stays open, and whoever asks is told which variable would settle it.
"""
