"""One project with an experiment for each method and release, and compiled requests from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tuneport import api
from tuneport.compiler.compile import Compiled
from tuneport.experiment.create import new_project

HERE = Path(__file__).parent


class Workshop:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.project = api.open_project(new_project(root / "project"))

    def experiment(self, method: str, release: str, files: dict[str, str]) -> api.Experiment:
        """A fresh one for every call with files of its own; without files it may be shared."""
        name = f"{method.partition('/')[2]}-{release}-{len(list(self.project.folder.experiments.glob('*')))}"
        made = self.project.new(name, method, release)
        for file, text in files.items():
            (made.path / file).write_text(text, "utf-8")
        return made

    def compile(
        self,
        method: str = "verl/grpo",
        release: str = "0.9.0",
        files: dict[str, str] | None = None,
        **request: Any,
    ) -> Compiled:
        given: dict[str, Any] = {
            "model": "org/model",
            "train_data": "/data/train.parquet",
            "validation_data": "/data/test.parquet",
            "profile": "h200:8",
            **request,
        }
        if "resources" in given:
            del given["profile"]
        compiled = self.experiment(method, release, files or {}).validate(**given).compiled
        assert compiled is not None
        return compiled


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("verl"))
