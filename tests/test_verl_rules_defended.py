"""Every warning about an invocation that verl itself publishes is listed, with its reason, in the docs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tuneport import linter
from tuneport.errors import TuneportError
from tuneport.experiment.command_line import Invocation

ROOT = Path(__file__).resolve().parents[1]
CORPUS = Path(os.environ.get("TUNEPORT_CORPUS") or ROOT.parent / "shared" / "corpus") / "accept" / "verl"


@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no corpus of invocations in {CORPUS}")
def test_each_warning_is_defended() -> None:
    page = (ROOT / "docs/verl-warnings.md").read_text("utf-8")
    missing = set()
    for path in sorted(CORPUS.glob("*.json")):
        record = json.loads(path.read_text("utf-8"))
        if record["upstream_check"]["result"] != "ok":
            continue
        run = Invocation(module=record["entry"], arguments=record["args"], env=record["env"])
        try:
            found = linter.check_arguments(run, linter.Asked("verl", record["version"])).findings
        except TuneportError:
            continue
        for finding in found:
            section = f"`{finding.key.partition('.')[0]}.*`"
            listed = (f"`{finding.key}`", section) if finding.code == "inert-key" else (f"`{finding.code}`",)
            if finding.severity == "warning" and not any(word in page for word in listed):
                missing.add(f"{finding.code} {finding.key}")
    assert not missing, sorted(missing)
