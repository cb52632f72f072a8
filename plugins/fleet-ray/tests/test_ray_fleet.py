"""The Ray fleet without a cluster: what it sends, what it makes of answers, and what it refuses."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tuneport.compiler.ray_cluster import works_on_ray
from tuneport.errors import Invalid, TuneportError, Unavailable
from tuneport.fleets import stage
from tuneport.fleets.failure import NotStarted
from tuneport.registry import catalog
from tuneport.types import Command, FileSpec, Pool, Ref, RuntimeNeed
from tuneport_fleet_ray import driver, package, states
from tuneport_fleet_ray.fleet import RayFleet
from tuneport_fleet_ray.logs import lines

sys.path.insert(0, str(Path(__file__).parent))
from ray_support import plan, shell


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_API_SERVER_ADDRESS", "RAY_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TUNEPORT_STATE_DIR", str(tmp_path / "state"))


class Answers(BaseHTTPRequestHandler):
    """Canned replies by (method, path): (status, body). What came in is in `seen`."""

    canned: ClassVar[dict[tuple[str, str], tuple[int, bytes]]] = {}
    seen: ClassVar[list[tuple[str, str, bytes, str]]] = []

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        token = self.headers.get("Authorization", "")
        self.seen.append((self.command, self.path, body, token))
        code, text = self.canned.get((self.command, self.path), (404, b"no"))
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = answer  # noqa: N815 - named by http.server

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Answers.canned, Answers.seen = {}, []
    running = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{running.server_address[1]}"
    running.shutdown()
    running.server_close()


def fleet(address: str = "http://127.0.0.1:9", **more: Any) -> RayFleet:
    return RayFleet({"address": address, **more})


def test_the_request_is_pure_and_its_package_is_named_by_content() -> None:
    made = fleet()
    source = {"a.py": "sha256:" + "0" * 64}
    request = made.render(plan(shell("true"), source=source), "job-abc-1")
    assert request == made.render(plan(shell("true"), source=source), "job-abc-1")
    assert json.loads(json.dumps(request)) == request
    again = made.render(plan(shell("true"), source=source), "job-xyz-2")
    assert again["package"] == request["package"], "another job of the same content uploads nothing"
    for other in (
        plan(shell("false"), source=source),
        plan(shell("true"), source={"a.py": "sha256:" + "1" * 64}),
    ):
        assert made.render(other, "job-abc-1")["package"]["name"] != request["package"]["name"]
    assert request["job"]["submission_id"] == "job-abc-1"
    assert request["job"]["entrypoint"] == "python tuneport-driver.py", "no text of a user is ever in a shell"
    shown = made.show(request)
    assert "POST http://127.0.0.1:9/api/jobs/" in shown and "bytes" in shown


def test_an_experiment_is_uploaded_once_and_posted_as_shown(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "t0ken")
    source = tmp_path / "exp"
    source.mkdir()
    (source / "ü.py").write_text("1")
    digests = {"ü.py": "sha256:" + hashlib.sha256(b"1").hexdigest()}
    made = fleet(server, token_env="MY_TOKEN")
    files = {"conf/x.yaml": FileSpec("yaml", {"a": "é"})}
    what = plan(Command("trainer", ("true",), {}, files), source=digests)
    request = {**made.render(what, "job-abc-1"), "source": str(source)}
    place = f"/api/packages/gcs/{request['package']['name']}"
    Answers.canned = {("PUT", place): (200, b""), ("POST", "/api/jobs/"): (200, b"{}")}
    assert made.submit(request, "job-abc-1") == "job-abc-1"
    sent = {(method, path): body for method, path, body, _ in Answers.seen}
    assert json.loads(sent["POST", "/api/jobs/"]) == request["job"]
    assert {token for *_, token in Answers.seen} == {"Bearer t0ken"}
    with zipfile.ZipFile(io.BytesIO(sent["PUT", place])) as uploaded:
        assert uploaded.read("ü.py") == b"1" and "é" in uploaded.read("conf/x.yaml").decode()
        assert {"tuneport-driver.py", "tuneport-launch.json", "tuneport_report.py"} < set(uploaded.namelist())
    count = len(Answers.seen)
    assert made.submit(request, "job-abc-1") == "job-abc-1" and len(Answers.seen) == count, "once is enough"
    Answers.canned["GET", place] = (200, b"")
    made.submit({**made.render(what, "job-abc-2"), "source": str(source)}, "job-abc-2")
    assert [path for method, path, *_ in Answers.seen[count:] if method == "PUT"] == []


def test_secrets_and_what_is_too_large_are_not_uploaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (".env", "sub/.env.local", "id_rsa", "certs/server.pem", ".netrc", "credentials.json"):
        with pytest.raises(Invalid) as caught:
            fleet().refuse(plan(shell("true"), source={name: "sha256:0"}))
        assert caught.value.code == "upload-secret"
    with pytest.raises(Invalid) as caught:
        fleet().refuse(plan(shell("true", HF_TOKEN="hf_0123456789abcdef")))
    assert caught.value.code == "request-secret" and "0123456789" not in caught.value.message
    fleet().refuse(plan(shell("true", PAD_TOKEN="<pad>", MAX_TOKENS="1")))
    stage.refuse_secrets(dict.fromkeys(("train.py", "environment.py", "keys.json", "env"), ""))
    (tmp_path / "big").write_bytes(os.urandom(4096))
    monkeypatch.setattr(package, "MAX_BYTES", 1000)
    with pytest.raises(Invalid) as caught:
        package.build(tmp_path, {"big": ""}, {})
    assert caught.value.code == "upload-too-large"


def test_what_ray_cannot_carry_is_refused() -> None:
    late = {"a.json": FileSpec("json", {"x": Ref("head_addr")})}
    imaged = plan(shell("true"))
    for what, code in (
        (plan(Command("trainer", ("a\0",))), "value-unusable"),
        (plan(Command("trainer", ("a",), {}, late)), "plan-ref"),
        (
            type(imaged)(**{**vars_of(imaged), "runtime": RuntimeNeed("x-1", image="i:1")}),
            "runtime-image-form",
        ),
    ):
        with pytest.raises(TuneportError) as caught:
            fleet().refuse(what)
        assert caught.value.code == code
    for address in ("head:8265", "ray://head:10001", "ftp://x"):
        with pytest.raises(Invalid):
            fleet(address)
    with pytest.raises(Invalid):
        RayFleet({})


def vars_of(item: Any) -> dict[str, Any]:
    return {name: getattr(item, name) for name in item.__dataclass_fields__}


ANSWERS: list[tuple[int, bytes, str]] = [
    (500, b"Traceback\n  x\nValueError: no room", "fleet-refused"),
    (400, b"bad", "fleet-refused"),
    (401, b"who", "fleet-auth"),
    (403, b"", "fleet-auth"),
    (429, b"slow", "fleet-unreachable"),
    (503, b"", "fleet-unreachable"),
    (200, b"<html>", "fleet-answer"),
    (200, b"\xff\xfe", "fleet-answer"),
]


@pytest.mark.parametrize(("code", "body", "said"), ANSWERS)
def test_odd_answers_are_lost_contact_and_never_an_end(
    server: str, code: int, body: bytes, said: str
) -> None:
    Answers.canned = {("GET", "/api/jobs/job-abc-1"): (code, body)}
    with pytest.raises(Unavailable) as caught:
        fleet(server).poll(["job-abc-1"])
    assert caught.value.code == said and caught.value.message
    if said in ("fleet-unreachable", "fleet-answer"):
        with pytest.raises(NotStarted):
            fleet(server).submit(fleet(server).render(plan(shell("true")), "job-abc-1"), "job-abc-1")


def test_many_jobs_are_one_question(server: str) -> None:
    jobs = [{"submission_id": f"job-{n}-1", "status": "RUNNING"} for n in range(50)]
    Answers.canned = {("GET", "/api/jobs/"): (200, json.dumps(jobs).encode())}
    found = fleet(server).poll([f"job-{n}-1" for n in range(51)])
    assert len(Answers.seen) == 1
    assert found["job-3-1"].state == "RUNNING" and found["job-50-1"].state == "ACCEPTED"


def test_states() -> None:
    def state(**info: Any) -> tuple[str, str, int | None]:
        found = states.status(info)
        return found.state, found.cause, found.exit_code

    assert state(status="PENDING", message="waits\n for x") == ("QUEUED", "waits for x", None)
    assert state(status="RUNNING") == ("RUNNING", "started", None)
    assert state(status="SUCCEEDED", driver_exit_code=0) == ("SUCCEEDED", "ended with exit code 0", 0)
    assert state(status="STOPPED") == ("STOPPED", "stopped", None)
    log = "x" * 20_000
    assert state(status="FAILED", driver_exit_code=3, message=log) == ("FAILED", "ended with exit code 3", 3)
    failed = state(status="FAILED", error_type="RUNTIME_ENV_SETUP_FAILURE", message=log)
    assert failed[1].startswith("runtime env setup failure: x") and len(failed[1]) < 400
    assert state(status="new")[0] == state()[0] == "UNKNOWN"
    times = states.status({"status": "SUCCEEDED", "start_time": 1500, "end_time": 2500})
    assert (times.started, times.ended) == (1.5, 2.5)


def test_a_log_is_cut_into_the_lines_of_its_roles_and_goes_on_where_it_stopped() -> None:
    whole = "ray says\nactor| a 1\nteacher| t 1\nactor| é 2\n"
    parts = [whole[:12], whole[:30], "away", whole, whole + "actor| end"]

    def text() -> str:
        part = parts.pop(0)
        if part == "away":
            raise Unavailable("away", code="fleet-unreachable")
        return part

    roles = ["actor", "teacher"]
    found = list(lines(text, lambda: len(parts) <= 1, "actor", roles, 0))
    assert [line.text for line in found] == ["ray says", "a 1", "é 2", "end"]
    again = list(lines(lambda: whole, lambda: True, "actor", roles, found[1].offset))
    assert [line.text for line in again] == ["é 2"]
    assert [line.text for line in lines(lambda: whole, lambda: True, "teacher", roles, 0)] == ["t 1"]


def test_methods_that_work_on_ray_are_those_that_bring_a_cluster_up() -> None:
    """The manifests' word for one node is the adapters' deed for several."""
    checked = 0
    for framework in ("openrlhf", "verl", "nemo-rl"):
        methods = {name.partition("/")[2] for name, *_ in catalog.methods(framework)}
        listed = set(catalog.framework_spec(framework)["ray"])
        assert listed <= methods
        torch = {
            name
            for name in methods
            if json.dumps(catalog.method(f"{framework}/{name}", "").spec["launch"]).find("torchrun") >= 0
            or json.dumps(catalog.method(f"{framework}/{name}", "").spec["launch"]).find("deepspeed") >= 0
        }
        assert not torch & listed
        checked += len(listed)
    assert checked > 15
    one = plan(shell("true"))
    assert not works_on_ray(one)
    assert works_on_ray(type(one)(**{**vars_of(one), "method": "verl/grpo"}))
    assert not works_on_ray(type(one)(**{**vars_of(one), "method": "verl/sft"}))
    assert not works_on_ray(type(one)(**{**vars_of(one), "method": "unknown/x"}))


ANY = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)


@settings(
    max_examples=int(os.environ.get("TUNEPORT_TEST_INJECTIONS", "20")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(ANY, min_size=8, max_size=8))
def test_any_value_reaches_the_command_exactly(values: list[str]) -> None:
    """Through the package's JSON and what the driver makes of it; the command prints what it was given."""
    show = r'printf "%s\0" "$@" "$V"'
    words = ("/bin/sh", "-c", show, "show", *values, Ref("job_id", values[0], prefix=values[1]))
    request = fleet().render(plan(Command("trainer", words, {"V": values[2]})), "job-abc-1")
    launch = json.loads(request["package"]["texts"]["tuneport-launch.json"])
    (command,) = launch["commands"]
    argv = [driver.text(value, {"job_id": "J"}) for value in command["argv"]]
    env = {**os.environ, **{name: driver.text(value, {}) for name, value in command["env"].items()}}
    done = subprocess.run(argv, env=env, capture_output=True, check=True)
    assert done.stdout.decode().split("\0") == [*values, f"{values[1]}J{values[0]}", values[2], ""]


def test_ray_is_not_imported_here() -> None:
    words = "import sys, tuneport_fleet_ray.fleet as f; f.RayFleet({'address': 'http://h:1'}); "
    words += "print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_bundles_are_the_nodes_of_a_pool() -> None:
    pool = Pool("main", "h200", 1, 8)
    made = fleet(nodes={"h200": {"gpus_per_node": 8, "resources": {"x": 0.5}}})._pool(pool)
    assert driver.bundle(made) == {"CPU": 1, "GPU": 8, "x": 0.5}
    assert driver.bundle(fleet()._pool(Pool("main", "cpu", 2, 3))) == {"CPU": 3}
