"""What the policy refuses and adds."""

import pytest
from tuneport.testing import try_policy
from tuneport.types import Request
from tuneport_site_rules.policy import LIMIT, PROXY, SCRATCH, Policy

IMAGE = "registry.example/train@sha256:" + "0" * 64
GOOD = Request(image=IMAGE, env={"COST_CENTRE": "42"})


@pytest.mark.parametrize(
    ("gpus", "request_", "code"),
    [
        (LIMIT + 8, GOOD, "site-gpus"),
        (8, Request(image=IMAGE), "site-cost"),
        (8, Request(image="registry.example/train:latest", env={"COST_CENTRE": "42"}), "site-image"),
        (8, Request(env={"COST_CENTRE": "42"}), "site-image"),
    ],
)
def test_what_is_refused(gpus: int, request_: Request, code: str) -> None:
    findings, _ = try_policy(Policy(), gpus=gpus, request=request_)
    assert [finding.code for finding in findings] == [code]


def test_what_every_plan_gets() -> None:
    findings, plan = try_policy(Policy(), gpus=LIMIT, request=GOOD)
    assert not findings
    assert plan.commands[0].env["HTTPS_PROXY"] == PROXY
    assert tuple(plan.mounts) == (SCRATCH,)
    assert plan.labels["cost-centre"] == "42"
