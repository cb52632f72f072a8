"""Plans as objects of a Kubernetes cluster, which its own controllers run.

What makes those objects is imported where it is needed: who looks at jobs makes none.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuneport.errors import Unavailable
from tuneport.fleets import disk
from tuneport.fleets.failure import NotStarted
from tuneport.fleets.layout import Folder, jobs_root, split_key
from tuneport.fleets.protocol import TERMINAL, Capabilities, LogLine, Probe, Status
from tuneport.settings import private_dir, state_dir

from tuneport_fleet_kubernetes import kinds, kubeconfig
from tuneport_fleet_kubernetes.api import Api, Missing, Taken
from tuneport_fleet_kubernetes.names import JOB, KEY, ROLE, STORAGE, fitting, name_of
from tuneport_fleet_kubernetes.settings import SETTINGS
from tuneport_fleet_kubernetes.states import status

if TYPE_CHECKING:
    from tuneport.types import LaunchPlan

_LOOK = 3.0
"""Seconds between two questions about a job whose log is followed."""
_SILENT = Status("UNKNOWN", "it says nothing of itself")


class KubernetesFleet:
    """See `tuneport.fleets.protocol.Fleet`. The objects of a submission are named by its key; a handle is
    `key@kind`, or the key alone where the kind of workload is not known."""

    name = "kubernetes"
    SETTINGS = SETTINGS

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = dict(settings)
        self._found: Api | None = None
        self._kinds: frozenset[str] | None = None

    @property
    def api(self) -> Api:
        if self._found is None:
            access = kubeconfig.find(self._settings.get("context", ""), self._settings.get("namespace", ""))
            self._found = Api(access, float(self._settings.get("timeout", 30)))
        return self._found

    @staticmethod
    def shown_folders(settings: Mapping[str, Any], _image: str, _mounts: Sequence[str]) -> list[str]:
        """What pods see by `mounts` and the claim; what a policy mounts has to be among that."""
        return [*settings.get("mounts", ()), STORAGE]

    def capabilities(self) -> Capabilities:
        from tuneport_fleet_kubernetes import check

        return Capabilities(self.name, "kubernetes", True, check.cards(self.api, self._settings), ("oci",))

    def probes(self) -> Iterator[Probe]:
        from tuneport_fleet_kubernetes import check

        return check.probes(lambda: self.api, self._settings)

    def refuse(self, plan: LaunchPlan) -> None:
        """Say, before anything is recorded, why this plan cannot run here.

        Raises:
            Invalid: no object can carry what the plan holds, or a file must not be uploaded.
            Unavailable: it has no image that this fleet takes, or the cluster lacks the kind of workload.
            NotFound, Untrusted: what it refers to is missing, or was changed.
        """
        from tuneport.fleets.resolve import refuse_unusable

        from tuneport_fleet_kubernetes.request import made

        refuse_unusable(plan)
        self._refuse_secrets(plan)
        try:
            kind = self._kind(plan)
        except NotStarted:  # it is accepted all the same, and begins when the cluster is back
            kind = "jobset"
        made(self._settings, plan, "refuse-1", kind)

    def _refuse_secrets(self, plan: LaunchPlan) -> None:
        from tuneport.fleets import stage

        stage.refuse_secrets(plan.source)
        given, held = self._settings.get("environment", {}), self._settings.get("secrets", {})
        stage.refuse_secret_values(plan, given, held)

    def render(self, plan: LaunchPlan, key: str) -> Mapping[str, Any]:
        """`objects` in the order in which they are created. The experiment's files are put into the first
        when it is shown or sent, under the keys that `files` has for them.

        Raises:
            NotStarted: the cluster has to say which kinds of workload it has, and cannot be asked.
            Invalid: a secret would be in it.
        """
        from tuneport_fleet_kubernetes.request import made

        self._refuse_secrets(plan)
        return made(self._settings, plan, key, self._kind(plan))

    def show(self, request: Mapping[str, Any]) -> str:
        """What `kubectl create -f -` takes, and how large the job's files are."""
        from tuneport_fleet_kubernetes.request import shown

        return shown(self._settings, request)

    def submit(self, request: Mapping[str, Any], key: str) -> str:
        """Create the objects; those of this key that are there are these.

        Raises:
            NotStarted: the cluster cannot be asked; try again. Unavailable: it refuses the job.
            Untrusted: the experiment changed since planning.
        """
        folder = Folder.of(key)
        private_dir(state_dir())
        disk.folder(folder.path, "job-folder")
        with disk.locked(folder.claim):
            try:
                known = self.find(key)
                if folder.stop.exists() or _posted(folder).exists():
                    return known or key
                if known is None:
                    self._create(request, key, folder)
                kind = known.rpartition("@")[2] if known else str(request["kind"])
                self._adopt(request, key, kind)
            except Unavailable as error:
                if error.code not in ("fleet-unreachable", "fleet-answer"):
                    raise
                raise NotStarted(error.message, code=error.code, hint=error.hint) from error
            with contextlib.suppress(OSError):  # a full disk here does not undo what the cluster has taken
                disk.publish_json(_posted(folder), {"time": time.time(), "kind": kind}, "launch-record")
        return f"{key}@{kind}"

    def find(self, key: str) -> str | None:
        record = disk.read_json(_posted(Folder.of(key)))
        if isinstance(record, dict) and record.get("kind") in kinds.API:
            return f"{key}@{record['kind']}"
        for kind in kinds.API:
            if self._get(kind, key) is not None:
                return f"{key}@{kind}"
        return None

    def poll(self, handles: Sequence[str]) -> Mapping[str, Status]:
        """As few calls as names fit into for each kind, and for those of which only their pods can tell: of
        usual names one call holds 250 and more."""
        found: dict[str, Status] = {}
        unsure: dict[str, tuple[str, Mapping[str, Any]]] = {}
        by_kind: dict[str, list[str]] = {}
        for handle in handles:
            by_kind.setdefault(self._placed(handle), []).append(handle)
        for kind, mine in by_kind.items():
            for handle, item in self._items(kind, mine).items():
                said = self._gone(handle) if item is None else status(kind, item, None)
                if said is not None:
                    found[handle] = said
                elif item is not None:
                    unsure[handle] = kind, item
        own: dict[str, list[Mapping[str, Any]]] = {}
        for pod in self._listed(f"/api/v1/namespaces/{self.api.access.namespace}/pods", unsure):
            own.setdefault(str((pod["metadata"].get("labels") or {}).get(JOB)), []).append(pod)
        for handle, (kind, main) in unsure.items():
            pods = own.get(name_of(handle.partition("@")[0]), [])
            found[handle] = status(kind, main, pods) or _SILENT
        return found

    def _items(self, kind: str, handles: Sequence[str]) -> dict[str, dict[str, Any] | None]:
        """The main object of each submission of a kind; None where the cluster has none."""
        items: list[dict[str, Any]] = []
        if kind:
            with contextlib.suppress(Missing):
                items = self._listed(kinds.place(kind, self.api.access.namespace), handles)
        known = {str((item.get("metadata") or {}).get("name")): item for item in items}
        return {handle: known.get(name_of(handle.partition("@")[0])) for handle in handles}

    def _listed(self, place: str, handles: Iterable[str]) -> list[dict[str, Any]]:
        """The objects of these submissions at a path."""
        names = (name_of(handle.partition("@")[0]) for handle in handles)
        return [item for some in fitting(names) for item in self.api.objects(place, JOB, some)]

    def logs(self, handle: str, *, role: str, since: int = 0, follow: bool = False) -> Iterator[LogLine]:
        from tuneport_fleet_kubernetes import logs

        name = name_of(handle.partition("@")[0])
        place = f"/api/v1/namespaces/{self.api.access.namespace}/pods"
        selector = f"{JOB}={name},{ROLE}={role}"

        def pods() -> list[dict[str, Any]]:
            items: list[dict[str, Any]] = self.api.get(place, labelSelector=selector).get("items") or []
            return sorted(items, key=lambda pod: str(pod["metadata"]["name"]))

        over = self._over(handle) if follow else lambda: True
        return logs.lines(pods, logs.read(self.api, self.api.access.namespace), over, role, since)

    def cancel(self, handle: str) -> None:
        key = handle.partition("@")[0]
        name, namespace = name_of(key), self.api.access.namespace
        folder = Folder.of(key)
        private_dir(state_dir())
        disk.folder(folder.path, "job-folder")
        kind = self._placed(handle)
        item = self._get(kind, key) if kind else None
        ended = status(kind, item, []) if item is not None else None
        if ended is not None and ended.state in TERMINAL:
            return
        disk.publish_json(folder.stop, {"time": time.time()}, "stop-mark")
        patience, asked = time.monotonic() + 180, 0.0
        while True:
            left = (self._get(kind, key) is not None) if kind else False
            pods = self.api.objects(f"/api/v1/namespaces/{namespace}/pods", JOB, [name])
            if not left and not pods:
                break
            if time.monotonic() > patience:
                raise Unavailable(
                    f"{name} in namespace {namespace} has been told to end and still does",
                    code="job-not-ended",
                    hint=f"kubectl describe pods --selector {JOB}={name} says what it waits for",
                )
            if left and time.monotonic() - asked > 10:
                self.api.delete(kinds.place(kind, namespace, name))
                asked = time.monotonic()
            time.sleep(0.3)
        for plural in ("configmaps", "services"):  # what a crash left without an owner
            place = f"/api/v1/namespaces/{namespace}/{plural}"
            for item in self.api.objects(place, JOB, [name]):
                self.api.delete(f"{place}/{item['metadata']['name']}")

    def output_dir(self, handle: str) -> Path:
        """Raises:
        Unavailable: the fleet's claim is not to be seen from here.
        """
        return self._there(handle) / "output"

    def metric_files(self, handle: str) -> list[Path]:
        place = self._there(handle)
        return [place / "tensorboard", place / "report.jsonl"]

    def _there(self, handle: str) -> Path:
        from tuneport_fleet_kubernetes.request import storage

        job, attempt = split_key(handle.partition("@")[0])
        claim = storage(self._settings)
        place = (claim or Path(STORAGE)) / "jobs" / job / str(attempt)
        if claim is None or not place.is_dir():
            raise Unavailable(
                f"the files of {job} are in {place} of its pods",
                code="fleet-remote-files",
                hint="set `claim` of the fleet to a volume claim, `storage` to where this machine sees it",
            )
        return place

    def _kind(self, plan: LaunchPlan) -> str:
        """The kind of workload: the fleet's word, else what the cluster has, the most able first."""
        from tuneport.compiler.ray_cluster import works_on_ray

        from tuneport_fleet_kubernetes import check

        if works_on_ray(plan):
            return "rayjob"
        declared = self._settings.get("workload")
        if declared:
            return str(declared)
        try:
            if self._kinds is None:
                self._kinds = frozenset(check.kinds(self.api))
        except Unavailable as error:
            hint = error.hint or "declare `workload` of the fleet, and the cluster need not be asked"
            raise NotStarted(error.message, code=error.code, hint=hint) from error
        order = ("jobset", "job") if len(plan.commands) > 1 else ("jobset", "trainjob", "job")
        return next(kind for kind in order if kind in self._kinds or kind == "job")

    def _placed(self, handle: str) -> str:
        """The kind of a submission's workload; "" if it has none."""
        key, _, kind = handle.partition("@")
        if kind not in kinds.API:
            kind = (self.find(key) or "").rpartition("@")[2]
        return kind

    def _create(self, request: Mapping[str, Any], key: str, folder: Folder) -> None:
        from tuneport.fleets import stage

        from tuneport_fleet_kubernetes import check
        from tuneport_fleet_kubernetes.request import filled, storage

        stage.refuse_secrets(request["experiment"])
        claim, (job, attempt) = storage(self._settings), split_key(key)
        if claim is not None:
            folder = Folder(f"{claim}/jobs/{job}/{attempt}")
            disk.folder(folder.path, "job-folder")
            link = jobs_root() / job / str(attempt) / "output"  # where jobs that read it look
            if not link.is_symlink():
                link.symlink_to(folder.output)
        origin = request.get("source")
        stage.keep_source(folder, Path(origin) if origin else None, request["experiment"])
        *beside, main = filled(request, folder.source)
        for item in beside:
            try:
                self.api.create(_path(self.api.access.namespace, item, name=False), item)
            except Taken:  # the first half of a submission that was cut short, or a stranger's
                there = self.api.get(_path(self.api.access.namespace, item))
                if (there["metadata"].get("labels") or {}).get(JOB) != item["metadata"]["name"]:
                    raise _strange(item) from None
            except Missing as error:
                raise Unavailable(
                    str(error), code="fleet-refused", hint="correct `namespace` of the fleet"
                ) from None
        place = kinds.place(request["kind"], self.api.access.namespace)
        try:
            self.api.create(place, main)
        except Missing:
            raise Unavailable(
                f"the cluster has no {main['kind']} ({main['apiVersion']})",
                code="fleet-kind-missing",
                hint=check.ADVICE[request["kind"]],
            ) from None
        except Taken:
            if self._get(request["kind"], key) is None:
                raise _strange(main) from None

    def _adopt(self, request: Mapping[str, Any], key: str, kind: str) -> None:
        """Make the workload the owner of what was created for it, so that both are deleted together."""
        made = self._get(kind, key)
        if made is None:  # it has ended and was cleaned up already
            return
        owner: dict[str, str] = {name: made[name] for name in ("apiVersion", "kind") if name in made}
        owner |= {"name": made["metadata"]["name"], "uid": made["metadata"]["uid"]}
        for item in request["objects"][:-1]:
            path = _path(self.api.access.namespace, item)
            try:
                self.api.merge(path, {"metadata": {"ownerReferences": [owner]}})
            except (Unavailable, Missing):
                continue  # it is only cleaned up by `cancel` then

    def _get(self, kind: str, key: str) -> dict[str, Any] | None:
        """The main object of a submission, if it is of this kind."""
        try:
            item = self.api.get(kinds.place(kind, self.api.access.namespace, name_of(key)))
            known = (item["metadata"].get("annotations") or {}).get(KEY)
        except Missing:
            return None
        except (KeyError, TypeError, AttributeError):
            raise Unavailable(
                f"{self.api.access.server} does not answer as Kubernetes does", code="fleet-answer"
            ) from None
        return item if known == key else None

    def _gone(self, handle: str) -> Status:
        """A submission of which the cluster has nothing."""
        key, _, kind = handle.partition("@")
        folder = Folder.of(key)
        if folder.stop.exists():
            return Status("STOPPED", "stopped")
        if kind or _posted(folder).exists():
            place = f"namespace {self.api.access.namespace}"
            return Status(
                "UNKNOWN",
                f"{name_of(key)} is no longer in {place}: somebody, or its time to live, removed it",
            )
        return Status("ACCEPTED", "nothing has been started yet")

    def _over(self, handle: str) -> Any:
        """Whether a job has ended, asked at most every few seconds."""
        asked, ended = float("-inf"), False

        def over() -> bool:
            nonlocal asked, ended
            if not ended and time.monotonic() - asked > _LOOK:
                ended = self.poll([handle])[handle].state in (*TERMINAL, "UNKNOWN")
                asked = time.monotonic()
            return ended

        return over


def _strange(item: Mapping[str, Any]) -> Unavailable:
    name = item["metadata"]["name"]
    return Unavailable(f"{item['kind']} {name} is there already and is somebody else's", code="fleet-refused")


def _posted(folder: Folder) -> Path:
    """Exists once the cluster has taken the job, after which nobody posts it again."""
    return folder.path / "posted.json"


def _path(namespace: str, item: Mapping[str, Any], *, name: bool = True) -> str:
    plural = {"ConfigMap": "configmaps", "Service": "services"}[item["kind"]]
    return f"/api/v1/namespaces/{namespace}/{plural}" + (f"/{item['metadata']['name']}" if name else "")
