"""Plans as jobs of a Ray cluster that somebody else keeps running.

What makes a request is imported where it is needed: who looks at jobs makes none.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuneport.errors import Invalid, Unavailable
from tuneport.fleets import disk
from tuneport.fleets.failure import NotStarted
from tuneport.fleets.layout import Folder, split_key
from tuneport.fleets.protocol import TERMINAL, Capabilities, LogLine, Probe, Status
from tuneport.fleets.record import read_exit
from tuneport.settings import private_dir, state_dir

from tuneport_fleet_ray.api import TOKEN, JobsApi, Missing
from tuneport_fleet_ray.logs import lines
from tuneport_fleet_ray.states import status

if TYPE_CHECKING:
    from tuneport.types import Command, Json, LaunchPlan, Pool, Value

_TEXT = {"type": "string", "minLength": 1}


class RayFleet:
    """See `tuneport.fleets.protocol.Fleet`. The submission's key is Ray's `submission_id`, and the handle."""

    name = "ray"
    SETTINGS: Mapping[str, Any] = {
        "address": None,
        "storage": None,
        "environment": None,
        "images": None,
        "python": _TEXT,
        "token_env": _TEXT,
        "timeout": {"type": "integer", "minimum": 1},
    }

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = dict(settings)
        address = settings.get("address") or os.environ.get("RAY_API_SERVER_ADDRESS", "")
        if not address:
            raise Invalid(
                "a fleet of kind ray needs `address`, the URL of the cluster's dashboard",
                code="fleet-setting",
                hint="declare it in fleets.yaml: {kind: ray, address: http://head-node:8265}",
            )
        timeout = float(settings.get("timeout", 30))
        self._api = JobsApi(str(address), timeout, str(settings.get("token_env", TOKEN)))

    def capabilities(self) -> Capabilities:
        from tuneport_fleet_ray.check import nodes

        cards = sum(int(node.get("GPU", 0)) for node in nodes(self._api))
        return Capabilities(self.name, "ray", True, cards, ("cluster",))

    def probes(self) -> Iterator[Probe]:
        from tuneport_fleet_ray.check import probes

        return probes(self._api, self._settings, self._root())

    def refuse(self, plan: LaunchPlan) -> None:
        """Say, before anything is recorded, why this plan cannot run here.

        Raises:
            Invalid: Ray cannot carry what the plan holds, or a file must not be uploaded.
            Unavailable: it needs an image. NotFound, Untrusted: what it refers to is missing, or was changed.
        """
        from tuneport.fleets.resolve import refuse_unusable

        refuse_unusable(plan)
        if plan.runtime.image:
            raise Unavailable(
                f"jobs run in the cluster's own environment, not in the image {plan.runtime.image}",
                code="runtime-image-form",
                hint="start the cluster from that image, and leave --image out",
            )
        self.render(plan, "refuse-1")

    def render(self, plan: LaunchPlan, key: str) -> Mapping[str, Any]:
        """`job` is what is posted; `package` what is uploaded before it, unless the cluster has it.

        Raises:
            Invalid: a secret would be in it.
        """
        from tuneport.compiler.plan import plan_digest
        from tuneport.compiler.ray_cluster import works_on_ray
        from tuneport.fleets import stage
        from tuneport.fleets.files import render as file_bytes
        from tuneport.fleets.resolve import at_submit, refuse_late, resolve_all
        from tuneport.types import REFS

        from tuneport_fleet_ray import package

        stage.refuse_secrets(plan.source)
        stage.refuse_secret_values(plan, self._settings.get("environment", {}))
        job, attempt = split_key(key)
        late = frozenset(REFS) - {"dataset", "run_output"}
        commands = resolve_all(plan.commands, at_submit(Folder.of(key), job, attempt, "", late))
        refuse_late(commands)
        launch = {
            "on_ray": works_on_ray(plan),
            "python": self._settings.get("python", ""),
            "env": dict(self._settings.get("environment", {})),
            "pools": [self._pool(pool) for pool in plan.pools if pool.name in {c.pool for c in commands}],
            "commands": [_command(command) for command in commands],
        }
        written = {name: file_bytes(spec).decode() for item in commands for name, spec in item.files.items()}
        texts = package.texts(launch, written)
        name = package.name(plan.source, texts)
        return {
            "fleet": self.name,
            "key": key,
            "url": f"{self._api.address}/api/jobs/",
            "job": {
                "submission_id": key,
                "entrypoint": f"python {package.DRIVER}",
                "runtime_env": {
                    "working_dir": f"gcs://{name}",
                    "env_vars": {
                        "TUNEPORT_JOB_ID": job,
                        "TUNEPORT_ATTEMPT": str(attempt),
                        "TUNEPORT_ROOT": str(self._root() / job / str(attempt)),
                    },
                },
                "metadata": {
                    "tuneport_plan": plan_digest(plan),
                    "tuneport_method": plan.method,
                    "tuneport_roles": ",".join(command.role for command in commands),
                },
            },
            "package": {"name": name, "experiment": dict(plan.source), "texts": texts},
        }

    def show(self, request: Mapping[str, Any]) -> str:
        """The request, and what is uploaded with it."""
        job = json.dumps(request["job"], indent=2, ensure_ascii=False)
        content = request["package"]
        source = Path(request.get("source") or "/nonexistent")
        found = []
        for name in sorted({*content["experiment"], *content["texts"]}):
            own = content["texts"].get(name)
            path = source / name
            size = len(own.encode()) if own is not None else path.stat().st_size if path.is_file() else None
            found.append((name, size))
        total = sum(size or 0 for _, size in found)
        listed = [f"  {name}  {'' if size is None else f'{size:,} bytes'}".rstrip() for name, size in found]
        head = f"package {content['name']}: {len(found)} files, {total:,} bytes"
        return "\n".join([f"POST {request['url']}", job, head, *listed])

    def submit(self, request: Mapping[str, Any], key: str) -> str:
        """Upload what the cluster has not got, and post the job; one with this key is this one.

        Raises:
            NotStarted: the cluster cannot be asked; try again. Unavailable: it refuses the job.
            Untrusted: the experiment changed since planning.
        """
        from tuneport.fleets import stage

        from tuneport_fleet_ray import package

        content = request["package"]
        folder = Folder.of(key)
        private_dir(state_dir())
        disk.folder(folder.path, "job-folder")
        with disk.locked(folder.claim):
            try:
                if self.find(key) is not None or folder.stop.exists():
                    return key
                stage.refuse_secrets(content["experiment"])
                origin = request.get("source")
                stage.keep_source(folder, Path(origin) if origin else None, content["experiment"])
                place = f"/api/packages/gcs/{content['name']}"
                if not self._api.has(place):
                    self._api.put(
                        place, package.build(folder.source, content["experiment"], content["texts"])
                    )
                self._api.send("/api/jobs/", request["job"])
                with contextlib.suppress(
                    OSError
                ):  # a full disk here does not undo what the cluster has taken
                    disk.publish_json(_posted(folder), {"time": time.time()}, "launch-record")
            except Missing:
                raise Unavailable(
                    f"{self._api.address} has no Jobs API",
                    code="fleet-answer",
                    hint="Ray 2.9 or newer has it",
                ) from None
            except Unavailable as error:
                if error.code not in ("fleet-unreachable", "fleet-answer"):
                    raise
                raise NotStarted(error.message, code=error.code, hint=error.hint) from error
        return key

    def find(self, key: str) -> str | None:
        if _posted(Folder.of(key)).exists():
            return key
        return None if self._info(key) is None else key

    def poll(self, handles: Sequence[str]) -> Mapping[str, Status]:
        if len(handles) > 3:
            known = {job.get("submission_id"): job for job in self._api.ask("/api/jobs/")}
        else:
            known = {handle: self._info(handle) for handle in handles}
        return {handle: self._status(handle, known.get(handle)) for handle in handles}

    def logs(self, handle: str, *, role: str, since: int = 0, follow: bool = False) -> Iterator[LogLine]:
        info = self._info(handle) or {}
        roles = str((info.get("metadata") or {}).get("tuneport_roles", role)).split(",")

        def text() -> str:
            try:
                return str(self._api.ask(f"/api/jobs/{handle}/logs").get("logs") or "")
            except Missing:
                return ""

        def over() -> bool:
            return not follow or self.poll([handle])[handle].state in (*TERMINAL, "UNKNOWN")

        return lines(text, over, role, roles, since)

    def cancel(self, handle: str) -> None:
        folder = Folder.of(handle)
        private_dir(state_dir())
        disk.folder(folder.path, "job-folder")
        disk.publish_json(folder.stop, {"time": time.time()}, "stop-mark")
        patience, asked = time.monotonic() + 90, 0.0
        while (info := self._info(handle)) is not None and info.get("status") in ("PENDING", "RUNNING"):
            if time.monotonic() > patience:
                raise Unavailable(f"job {handle} has been told to end and still runs", code="job-not-ended")
            if time.monotonic() - asked > 10:
                self._api.send(f"/api/jobs/{handle}/stop", {})
                asked = time.monotonic()
            time.sleep(0.5)

    def output_dir(self, handle: str) -> Path:
        """Raises:
        Unavailable: the cluster's storage is not to be seen from here.
        """
        return self._there(handle) / "output"

    def metric_files(self, handle: str) -> list[Path]:
        place = self._there(handle)
        return [place / "tensorboard", place / "report.jsonl"]

    def _there(self, handle: str) -> Path:
        job, attempt = split_key(handle)
        place = self._root() / job / str(attempt)
        if not place.is_dir():
            raise Unavailable(
                f"the files of {handle} are in {place} on the cluster's nodes",
                code="fleet-remote-files",
                hint="set `storage` of the fleet to a folder that the nodes and this machine share",
            )
        return place

    def _root(self) -> Path:
        return Path(self._settings.get("storage", "/tmp/tuneport")) / "jobs"  # noqa: S108 - on the nodes

    def _pool(self, pool: Pool) -> dict[str, Json]:
        shape = self._settings.get("nodes", {}).get(pool.series, {})
        return {
            "name": pool.name,
            "series": pool.series,
            "nodes": pool.nodes,
            "gpus_per_node": pool.gpus_per_node,
            "resources": dict(shape.get("resources", {})),
        }

    def _info(self, key: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self._api.ask(f"/api/jobs/{key}")
        except Missing:
            return None
        return found

    def _status(self, handle: str, info: Mapping[str, Any] | None) -> Status:
        if info is not None:
            return status(info)
        job, attempt = split_key(handle)
        ran = read_exit(Folder(f"{self._root()}/{job}/{attempt}"))
        if ran is not None:
            return ran
        folder = Folder.of(handle)
        if _posted(folder).exists():
            return Status("UNKNOWN", f"{self._api.address} has forgotten it: its head was started anew")
        if folder.stop.exists():
            return Status("STOPPED", "stopped before it started")
        return Status("ACCEPTED", "nothing has been started yet")


def _posted(folder: Folder) -> Path:
    """Exists once the cluster has taken the job, after which nobody posts it again, whatever the cluster
    remembers."""
    return folder.path / "posted.json"


def _command(command: Command) -> dict[str, Json]:
    from tuneport.compiler.plan import ref_to_json

    def value(item: Value) -> Json:
        return item if isinstance(item, str) else ref_to_json(item)

    return {
        "role": command.role,
        "pool": command.pool,
        "argv": [value(item) for item in command.argv],
        "env": {name: value(item) for name, item in command.env.items()},
    }
