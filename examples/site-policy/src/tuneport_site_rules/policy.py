"""What every job of this site must ask for, and what it gets.

A request is refused above LIMIT GPUs, without the variable COST_CENTRE (`env` of job.yaml or tuneport.yaml),
and with an image that is not pinned by its digest. Each plan gets a proxy, the shared scratch folder, and the
cost centre as a label.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import replace

from tuneport.hookspec import hookimpl
from tuneport.types import Context, Finding, LaunchPlan

LIMIT = 64
"""GPUs that one job may ask for."""
COST = "COST_CENTRE"
PROXY = "http://proxy.example:3128"
SCRATCH = "/scratch"


class Policy:
    @hookimpl
    def validate(self, context: Context) -> Iterable[Finding]:
        pools = context.topology.pools
        asked = sum(pool.nodes * pool.gpus_per_node for pool in pools if pool.series != "cpu")
        if asked > LIMIT:
            message = f"a job may use {LIMIT} GPUs here, and this one asks for {asked}"
            yield Finding("site-gpus", "error", message, "ask for fewer", "--profile")
        if not context.request.env.get(COST):
            message = "nobody is named who pays for this job"
            yield Finding("site-cost", "error", message, f"set env: {{{COST}: …}} in tuneport.yaml", COST)
        if "@sha256:" not in context.request.image:
            named = context.request.image or "none is named"
            message = f"jobs run in images that are pinned by digest here: {named}"
            yield Finding("site-image", "error", message, "give --image NAME@sha256:…", "--image")

    @hookimpl(wrapper=True)
    def launch(self, context: Context) -> Generator[None, LaunchPlan, LaunchPlan]:
        plan = yield
        commands = tuple(replace(one, env={"HTTPS_PROXY": PROXY, **one.env}) for one in plan.commands)
        labels = {**plan.labels, "cost-centre": context.request.env.get(COST, "")}
        return replace(plan, commands=commands, labels=labels, mounts=(*plan.mounts, SCRATCH))
