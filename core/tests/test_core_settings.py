"""The shortcut to the folders of a Linux user, against platformdirs."""

from __future__ import annotations

import itertools
import sys

import platformdirs
import pytest
from tuneport import settings


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere platformdirs is asked")
def test_the_folders_are_those_of_platformdirs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TUNEPORT_STATE_DIR", "TUNEPORT_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    bases = (None, "", "relative/x", "/srv/x", "/srv/x y/")
    for home, base in itertools.product((None, "/home/a", "/home/a b/", "/"), bases):
        for variable, value in (("HOME", home), ("XDG_STATE_HOME", base), ("XDG_CACHE_HOME", base)):
            if value is None:
                monkeypatch.delenv(variable, raising=False)
            else:
                monkeypatch.setenv(variable, value)
        state = platformdirs.user_state_path("tuneport", appauthor=False)
        cache = platformdirs.user_cache_path("tuneport", appauthor=False)
        assert (settings.state_dir(), settings.cache_dir()) == (state, cache), (home, base)
