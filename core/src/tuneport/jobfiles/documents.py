"""The YAML documents of a job file, each with the lines of the whole file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tuneport.errors import Invalid
from tuneport.experiment.yamlread import Document, parse_yaml, read_text
from tuneport.types import Finding, Json

MAX_DOCUMENTS = 200
Place = tuple[str | int, ...]
_MARK = re.compile(r"^---(?=\s|$)", re.M)
_TEMPLATE = re.compile(r"\{\{|\{%")
FILLED = re.compile(r"\$\{?[A-Za-z_]|\{\{|\{%|\A[A-Z]{3,}\Z|(?<![a-z])[A-Z][A-Z0-9]*_[A-Z0-9]")
"""What somebody fills in before the engine sees the file."""


@dataclass(slots=True)
class Object:
    """One document that holds a mapping, and what was said of it. `template`: values are to be filled in."""

    document: Document
    findings: list[Finding] = field(default_factory=list)
    template: bool = False

    @property
    def data(self) -> Mapping[str, Json]:
        assert isinstance(self.document.data, dict)
        return self.document.data

    @property
    def kind(self) -> str:
        """`GROUP/VERSION KIND`, empty where the document is no object of Kubernetes."""
        version, kind = self.data.get("apiVersion"), self.data.get("kind")
        return f"{version} {kind}" if isinstance(version, str) and isinstance(kind, str) else ""

    def say(
        self, code: str, severity: str, place: Place, message: str, hint: str = "", source: str = ""
    ) -> None:
        """Add a finding about a part of the document."""
        line = self.document.line(place)
        key = ".".join(map(str, place))
        self.findings.append(Finding(code, severity, message, hint, key, self.document.file, line, source))  # type: ignore[arg-type]


def read(path: Path) -> tuple[list[Object], list[Finding]]:
    """(the documents that hold a mapping, what is wrong with the others).

    Raises:
        Invalid, NotFound: the file cannot be read, holds too many documents, or is a template.
    """
    text = read_text(path)
    starts = [0, *(match.start() for match in _MARK.finditer(text))]
    if len(starts) > MAX_DOCUMENTS:
        raise Invalid(f"{path} holds more than {MAX_DOCUMENTS} documents", code="yaml-documents")
    found, problems = [], list[Finding]()
    for document in _documents(text, starts, str(path)):
        problems += document.findings
        if isinstance(document.data, dict):
            found.append(Object(document))
    lines = text.split("\n")
    for problem in problems:
        # A mark that opens a mapping is complained of where it stands, or on the line below.
        near = "".join(lines[max(problem.line - 2, 0) : problem.line])
        if _TEMPLATE.search(near):
            message = f"{path} is a template, not YAML: {problem.message}, on line {problem.line}"
            raise Invalid(message, code="job-file", hint="render it first, as `helm template` does")
    return found, problems


def _documents(text: str, starts: list[int], file: str) -> Iterator[Document]:
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        part = text[start:end]
        if part.strip("- \n"):
            yield parse_yaml("\n" * text.count("\n", 0, start) + part, file)
