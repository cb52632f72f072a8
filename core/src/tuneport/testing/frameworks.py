"""What every framework plugin must pass: subclass `FrameworkTests` and fill in two fields."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tuneport import api
from tuneport.compiler.plan import plan_from_json, plan_to_json
from tuneport.experiment.create import new_project
from tuneport.experiment.findings import findings_text
from tuneport.registry import catalog, plugins, vocabulary
from tuneport.registry.schemas import problems
from tuneport.testing.golden import golden_problems, write_golden
from tuneport.testing.purity import no_side_effects


class FrameworkTests:
    """Set `framework`, and `requests`: method id -> request keywords that must compile without an error.

    `golden` is a folder of plans to hold the compilation to; run once with TUNEPORT_WRITE_GOLDEN=1 to
    write them, and read the difference before committing it. `releases` are those that plans are compiled
    for; all that there are where it is empty.
    """

    framework: ClassVar[str]
    requests: ClassVar[Mapping[str, Mapping[str, Any]]]
    golden: ClassVar[Path | None] = None
    releases: ClassVar[Sequence[str]] = ()

    def test_manifests_are_sound(self) -> None:
        problems = catalog.problems(self.framework)
        assert not problems, findings_text(problems)

    def test_plugin_fits_the_hooks(self) -> None:
        plugins.Hooks(self.framework)

    def test_every_method_has_a_request(self) -> None:
        known = {row[0] for row in catalog.methods(self.framework)}
        assert known == set(self.requests)

    def test_every_parameter_is_in_the_vocabulary(self) -> None:
        words = vocabulary.words()
        for method_id in self.requests:
            unknown = [name for name in catalog.method(method_id).params if name not in words]
            assert not unknown, f"{method_id}: {unknown} are not canonical names"

    def test_every_default_is_one_that_a_user_could_set(self) -> None:
        """Also where one file has the schema and another the default."""
        for method_id in self.requests:
            for release in catalog.releases(self.framework):
                for param in catalog.method(method_id, release).params.values():
                    if param.has_default:
                        wrong = list(problems(param.default, dict(param.schema)))
                        assert not wrong, f"{method_id} on {release}: {param.name}: {wrong}"

    def test_requests_compile_the_same_way_every_time(self, tmp_path: Path) -> None:
        for experiment, request in self._experiments(tmp_path):
            report = experiment.validate(**request)
            assert report.ok, findings_text(report.findings)
            first, again = plan_to_json(experiment.plan(**request)), plan_to_json(experiment.plan(**request))
            assert first == again
            assert experiment.validate(**request).findings == report.findings
            assert plan_to_json(plan_from_json(first)) == first

    def test_hooks_are_pure(self, tmp_path: Path) -> None:
        for experiment, request in self._experiments(tmp_path):
            compiled = experiment.validate(**request).compiled
            assert compiled is not None
            hooks = plugins.Hooks(self.framework)
            hooks.launch(compiled.context)  # what it imports lazily is imported now
            with no_side_effects() as seen:
                list(hooks.validate(compiled.context))
                hooks.bind_args(compiled.context)
                hooks.topology(compiled.context)
                hooks.launch(compiled.context)
            assert not seen, seen

    def test_plans_are_the_golden_ones(self, tmp_path: Path) -> None:
        if self.golden is None:
            return
        for experiment, request in self._experiments(tmp_path):
            path = self.golden / f"{experiment.name}.json"
            plan = experiment.plan(**request)
            if os.environ.get("TUNEPORT_WRITE_GOLDEN"):
                write_golden(path, plan)
            problems = list(golden_problems(path, plan))
            assert not problems, "; ".join(problems)

    def _experiments(self, folder: Path) -> Iterator[tuple[api.Experiment, Mapping[str, Any]]]:
        """One fresh experiment for each method and each of its releases."""
        root = folder / "project"
        project = api.open_project(root if root.exists() else new_project(root))
        for method_id, request in self.requests.items():
            for release in self.releases or catalog.releases(self.framework):
                name = f"{method_id.replace('/', '-')}-{release}"
                known = project.folder.experiments / name
                yield (
                    (api.Experiment(str(known)) if known.exists() else project.new(name, method_id, release)),
                    request,
                )
