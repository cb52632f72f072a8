"""What another client of the same frameworks offers by native key is a parameter here, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tuneport.registry import catalog, surfaces

LISTED = Path(__file__).resolve().parents[2] / "shared/research/anchor-params.json"
# Keys of the release that are no parameter, each for a reason.
NOT_OFFERED = {
    "policy.generation_batch_size": "no code of NeMo-RL 0.7.0 reads it",
    "custom_reward_function.path": "moved to reward.custom_reward_function.path: reward_function",
    "custom_reward_function.name": "moved to reward.custom_reward_function.name",
    "actor_rollout_ref.actor.grad_clip": "verl's engines read actor.optim.clip_grad, which grad_clip writes",
    "critic.grad_clip": "verl's engines read critic.optim.clip_grad, which critic_grad_clip writes",
}


def offered(name: str) -> tuple[set[str], set[str]]:
    """(native keys that parameters, or Tuneport itself, write on any release; those that a release knows)."""
    written: set[str] = set()
    known: set[str] = set()
    framework = name.partition("/")[0]
    for version in catalog.releases(framework):
        method = catalog.method(name, version)
        spec = method.spec
        written |= {key for param in method.params.values() for key in param.keys}
        cases = spec.get("variants", {}).get("cases", {}).values()
        written |= {key for case in cases for keys in case.values() for key in keys}
        written |= {binding["key"] for binding in spec.get("bind", {}).values()}
        written |= {*spec.get("identity", {}), *spec.get("platform", {}), *spec.get("defaults", {})}
        known |= set(surfaces.release(framework, version, str(spec.get("entry", ""))).keys)
    return written, known


@pytest.mark.skipif(not LISTED.exists(), reason="the research beside the repository is not here")
def test_every_native_key_of_the_other_client_is_covered() -> None:
    methods: dict[str, Any] = json.loads(LISTED.read_text("utf-8"))["methods"]
    ours = {name for name, _, _ in catalog.methods()}
    missing = []
    for name in sorted(ours & methods.keys()):
        written, known = offered(name)
        for word, param in (methods[name].get("params") or {}).items():
            key = param.get("upstream_path", "").lstrip("+-")
            if key in known and key not in written and key not in NOT_OFFERED:
                missing.append(f"{name}: {word} ({key})")
    assert not missing, missing
    assert len(ours & methods.keys()) == 34
