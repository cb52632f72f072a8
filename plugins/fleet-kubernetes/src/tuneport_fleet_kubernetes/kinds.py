"""The kinds of objects that run plans, and where the API has them."""

from __future__ import annotations

API = {
    "rayjob": ("ray.io/v1", "RayJob", "rayjobs"),
    "jobset": ("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets"),
    "trainjob": ("trainer.kubeflow.org/v1alpha1", "TrainJob", "trainjobs"),
    "job": ("batch/v1", "Job", "jobs"),
}
"""Kind of workload -> apiVersion, kind, and the plural of its path."""


def place(kind: str, namespace: str, name: str = "") -> str:
    """The path of the objects of a kind of workload, or of one of them."""
    version, _, plural = API[kind]
    return f"/apis/{version}/namespaces/{namespace}/{plural}" + (f"/{name}" if name else "")
