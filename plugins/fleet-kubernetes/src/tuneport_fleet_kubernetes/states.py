"""What the objects of a job say of it, in Tuneport's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from tuneport.fleets.protocol import Status

from tuneport_fleet_kubernetes.names import ROLE

_RAY = {"SUCCEEDED": "SUCCEEDED", "FAILED": "FAILED", "STOPPED": "STOPPED"}
_TOLD = (137, 143)
"""Exit codes after KILL and TERM."""
_BAD_STARTS = frozenset(
    {"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "CreateContainerConfigError",
     "CreateContainerError", "RunContainerError", "ErrImageNeverPull"}
)  # fmt: skip


def status(kind: str, item: Mapping[str, Any], pods: Sequence[Mapping[str, Any]] | None) -> Status | None:
    """The status of a job by its main object and its pods.

    Args:
        pods: None where they were not asked for; the answer is None if it depends on them.
    """
    ended = _ray(item) if kind == "rayjob" else _conditions(item)
    if ended is not None and ended.state == "SUCCEEDED":
        return ended
    if ended is not None:
        return ended if pods is None and kind == "rayjob" else _with_reason(ended, pods)
    if item.get("metadata", {}).get("deletionTimestamp"):
        return Status("RUNNING", "is being deleted")
    begun = _begun(kind, item)
    if begun is not None:
        return begun
    if _suspended(item):
        queue = (item["metadata"].get("labels") or {}).get("kueue.x-k8s.io/queue-name")
        return Status("QUEUED", f"waits in queue {queue}" if queue else "is suspended")
    return None if pods is None else _by_pods(pods)


def _conditions(item: Mapping[str, Any]) -> Status | None:
    """How a Job, JobSet or TrainJob ended, None where it has not."""
    said = item.get("status") or {}
    for condition in said.get("conditions") or ():
        if condition.get("status") != "True" or condition.get("type") not in (
            "Complete",
            "Completed",
            "Failed",
        ):
            continue
        began = _time(said.get("startTime")) or _time(item["metadata"].get("creationTimestamp"))
        end = _time(said.get("completionTime")) or _time(condition.get("lastTransitionTime"))
        if condition["type"] != "Failed":
            return Status("SUCCEEDED", "ended with exit code 0", 0, began, end)
        text = ": ".join(str(condition[key]) for key in ("reason", "message") if condition.get(key))
        cause = "ran into its time limit" if condition.get("reason") == "DeadlineExceeded" else _short(text)
        return Status("FAILED", cause or "failed", None, began, end)
    return None


def _ray(item: Mapping[str, Any]) -> Status | None:
    said = item.get("status") or {}
    began, end = _time(said.get("startTime")), _time(said.get("endTime"))
    name, phase = str(said.get("jobStatus") or ""), str(said.get("jobDeploymentStatus") or "")
    message = _short(": ".join(str(said[key]) for key in ("reason", "message") if said.get(key)))
    if name == "SUCCEEDED":
        return Status("SUCCEEDED", "ended with exit code 0", 0, began, end)
    if name == "STOPPED":
        return Status("STOPPED", "stopped", None, began, end)
    if name == "FAILED" or phase == "Failed":
        late = "DeadlineExceeded" in message
        return Status("FAILED", "ran into its time limit" if late else message or "failed", None, began, end)
    return None


def _begun(kind: str, item: Mapping[str, Any]) -> Status | None:
    """RUNNING, where the main object says so by itself."""
    said = item.get("status") or {}
    if kind == "rayjob":
        running = said.get("jobStatus") == "RUNNING"
        return Status("RUNNING", "started", started=_time(said.get("startTime"))) if running else None
    if kind == "job":
        alive = int(said.get("ready") or 0) + int(said.get("succeeded") or 0)
        return Status("RUNNING", "started", started=_time(said.get("startTime"))) if alive else None
    alive = sum(
        int(part.get("ready") or 0) + int(part.get("succeeded") or 0)
        for part in said.get("replicatedJobsStatus") or said.get("jobsStatus") or ()
    )
    return Status("RUNNING", "started") if alive else None


def _suspended(item: Mapping[str, Any]) -> bool:
    said = item.get("status") or {}
    if said.get("jobDeploymentStatus") == "Suspended":
        return True
    flags = [c for c in said.get("conditions") or () if c.get("type") == "Suspended"]
    return any(c.get("status") == "True" for c in flags) or bool((item.get("spec") or {}).get("suspend"))


def _by_pods(pods: Sequence[Mapping[str, Any]]) -> Status:
    started = [_started(pod) for pod in pods if _phase(pod) in ("Running", "Succeeded", "Failed")]
    if started:
        known = [when for when in started if when is not None]
        return Status("RUNNING", "started", started=min(known, default=None))
    for pod in pods:
        why = _waits(pod)
        if why:
            return Status("QUEUED", why)
    return Status("QUEUED", "waits for its pods" if not pods else "its pods are being prepared")


def _waits(pod: Mapping[str, Any]) -> str:
    name = pod["metadata"]["name"]
    said = pod.get("status") or {}
    for state in (*(said.get("initContainerStatuses") or ()), *(said.get("containerStatuses") or ())):
        waiting = (state.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in _BAD_STARTS:
            return _short(
                f"{name} cannot start: {waiting['reason']}: {waiting.get('message') or ''}".rstrip(": ")
            )
    for condition in said.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _short(f"waits for nodes: {condition.get('message') or condition.get('reason') or ''}")
    return ""


def _with_reason(ended: Status, pods: Sequence[Mapping[str, Any]] | None) -> Status | None:
    """What failed first among the pods is why the job did."""
    if pods is None:
        return None
    # Times are whole seconds: of one second, what was told to end comes after what ended by itself.
    causes = sorted(filter(None, map(_failure, pods)), key=lambda found: (found[0], found[2] in _TOLD))
    if not causes:
        return ended
    _, cause, code = causes[0]
    limit = ended.cause == "ran into its time limit"
    return replace(ended, exit_code=code, cause=ended.cause if limit else cause)


def _failure(pod: Mapping[str, Any]) -> tuple[float, str, int | None] | None:
    """(when, why, exit code) of a pod that failed."""
    said = pod.get("status") or {}
    labels = pod["metadata"].get("labels") or {}
    who = str(labels.get(ROLE) or pod["metadata"]["name"])
    where = f" on {pod['spec']['nodeName']}" if (pod.get("spec") or {}).get("nodeName") else ""
    for state in said.get("containerStatuses") or ():
        done = (state.get("state") or {}).get("terminated") or {}
        code = done.get("exitCode")
        if code:
            when = _time(done.get("finishedAt")) or float("inf")
            if done.get("reason") == "OOMKilled":
                return when, f"{who} ran out of memory{where}", code
            return when, f"{who} ended with exit code {code}{where}", code
    if _phase(pod) == "Failed":
        text = ": ".join(str(said[key]) for key in ("reason", "message") if said.get(key))
        return float("inf"), _short(f"{who} was lost{where}: {text or 'its pod failed'}"), None
    return None


def _phase(pod: Mapping[str, Any]) -> str:
    return str((pod.get("status") or {}).get("phase") or "")


def _started(pod: Mapping[str, Any]) -> float | None:
    return _time((pod.get("status") or {}).get("startTime"))


def _time(text: Any) -> float | None:
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp() if text else None
    except (ValueError, OverflowError):
        return None


def _short(text: str) -> str:
    return " ".join(text.split())[:300]
