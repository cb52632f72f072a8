"""The version of tuneport-core, where the build and the command both read it."""

__version__ = "0.1.0"
