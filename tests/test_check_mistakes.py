"""`tp check` on what people get wrong around a command: line ends, quotes, backslashes, names, special files."""
# ruff: noqa: E501 - the scripts stand as people write them

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tuneport import workflow
from tuneport.cli.options import _variables
from tuneport.errors import Invalid, NotFound, TuneportError, UsageError
from tuneport.experiment.command_line import take_apart
from tuneport.experiment.create import new_project
from tuneport.shell.complaints import unclosed_quote
from tuneport.shell.gaps import shown
from tuneport.shell.reader import Reading, read
from tuneport.text import guess_anew
from tuneport.types import Finding

PPO = ["python3", "-m", "verl.trainer.main_ppo"]
RUN = "python3 -m verl.trainer.main_ppo"
BASH = shutil.which("bash")
needs_bash = pytest.mark.skipif(BASH is None, reason="no bash here")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    guess_anew()  # each test is a command of its own


def script(text: str | bytes) -> list[str]:
    Path("train.sh").write_bytes(text.encode("utf-8") if isinstance(text, str) else text)
    return ["bash", "train.sh"]


def said(report: workflow.Report, code: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.code == code]


def words(reading: Reading) -> list[list[str]]:
    return [[shown(word) for word in one.arguments] for one in reading.programs]


@pytest.mark.parametrize(
    "text",
    ["echo " + "\\\n" * 50_000, "echo " + "\\\n" * 50_000 + "a\n", " " * 100_000 + "x\n", "echo a" + "\\" * 100_000,
     "echo " + "{a:" * 3000 + "1" + "}" * 3000, "echo " + "{a," * 3000 + "1" + "}" * 3000, "+a.b=1\n" * 15_000,
     "echo '\n" * 20_001, 'echo "$(' * 20_000, "<<E " * 30_000, "$((" * 40_000],
    ids=range(11),
)  # fmt: skip
def test_no_script_takes_long(text: str) -> None:
    read(["bash", "-c", "true"], {})
    start = time.process_time()
    try:
        read(script(text), {})
    except TuneportError as error:
        assert error.code.startswith("script-")
    assert time.process_time() - start < 4  # 1 s on an idle machine; what grows faster takes minutes


@pytest.mark.parametrize("depth", [1000, 3000])
@pytest.mark.parametrize("scripted", [False, True])
def test_a_value_nested_too_deep_is_refused_at_once(depth: int, scripted: bool) -> None:
    value = "+x=" + "{a:" * depth + "1" + "}" * depth
    workflow.check(PPO)
    start = time.process_time()
    report = workflow.check([" ".join([*PPO, value])] if scripted else [*PPO, value])
    (found,) = said(report, "hydra-syntax")
    assert (found.key, found.severity) == ("x", "error")
    assert "nested too deeply" in found.message
    assert "x=" in found.message
    assert time.process_time() - start < 1


@pytest.mark.parametrize("sign", ["", "+"])
def test_thousands_of_unknown_keys_are_counted(sign: str) -> None:
    workflow.check(PPO)
    start = time.process_time()
    report = workflow.check([*PPO, *(f"{sign}nope.k{number}=1" for number in range(6000))])
    assert time.process_time() - start < 4  # 9 s where each was looked up
    found = [finding for finding in report.findings if finding.code in ("key-unknown", "key-unread")]
    assert len(found) == 501
    assert sum(" more keys that" in finding.message for finding in found) == 1


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        (f"{RUN} \\\n  trainer.nnodes=1\n  trainer.save_freq=5 \\\n  trainer.test_freq=5\n", 3, "a backslash is missing at the end of line 2"),
        (f"{RUN} \\\n  trainer.nnodes=1 \\\n  # why\n  +trainer.save_freq=5 \\\n  trainer.test_freq=5\n", 4, "the comment in line 3 ends"),
        (f"{RUN} \\\n  trainer.nnodes=1 \\ \n  trainer.save_freq=5\n", 3, "in line 2 blanks follow the backslash"),
        (f"{RUN} \\\n  trainer.nnodes=1 \\\n\n  trainer.save_freq=5\n", 4, "the empty line 3 ends"),
        (f"{RUN} \\\n  trainer.nnodes=1\n  n=2 trainer.save_freq=5\n", 3, "a backslash is missing at the end of line 2"),
        (f"{RUN} \\\n  trainer.nnodes=1\n  'data.train_files=[a]' | tee log\n", 3, "a backslash is missing at the end of line 2"),
        (f"{RUN} \\\n  trainer.nnodes=1\n  --config-name=x\n", 3, "a backslash is missing at the end of line 2"),
        (f"if true; then\n{RUN} \\\n  trainer.nnodes=1\n  a.b=$X\nfi\n", 4, "a backslash is missing at the end of line 3"),
    ],
)  # fmt: skip
def test_an_override_that_is_a_command_of_its_own_is_said(text: str, line: int, why: str) -> None:
    (found,) = said(workflow.check(script(text)), "script-override")
    assert (found.file, found.line, found.severity) == ("train.sh", line, "warning")
    assert why in found.message


def test_what_is_a_command_is_not_called_an_override() -> None:
    text = f"A=1\nB=2 C=3\n./a.b\na.b c=1\nexport x=1\nf.x=1() {{ :; }}\n{RUN} trainer.nnodes=1\n"
    assert not said(workflow.check(script(text)), "script-override")


def test_windows_line_ends_are_said_once_and_read_as_bash_reads_them() -> None:
    text = f"N=2\n{RUN} \\\n  trainer.nnodes=$N \\\n  trainer.save_freq=5\n".replace("\n", "\r\n")
    report = workflow.check(script(text))
    (found,) = said(report, "script-crlf")
    assert (found.severity, found.line) == ("warning", 1)
    assert not said(report, "script-override")
    assert words(read(script(text), {})) == [["\r"]]


@needs_bash
@pytest.mark.parametrize(
    "text",
    ["A=1\npython -m m a=$A b\n", "A=x\npython -m m $A \\\n z\n", "python -m m 'a' \"b\"\npython -m m c"],
)
def test_carriage_returns_reach_the_program_as_from_bash(text: str) -> None:
    assert BASH is not None
    command = script(text.replace("\n", "\r\n"))
    prelude = "python() { printf '%s\\036' \"$@\"; printf '\\035'; }\n"
    done = subprocess.run(
        [BASH, "-c", prelude + Path("train.sh").read_bytes().decode()], capture_output=True, check=False
    )
    wanted = [run.split("\x1e")[:-1] for run in done.stdout.decode().split("\x1d")[:-1]]
    assert wanted
    assert [["-m", one.module, *map(str, one.arguments)] for one in read(command, {}).programs] == wanted


def test_a_byte_order_mark_is_said() -> None:
    report = workflow.check(script(b"\xef\xbb\xbf#!/bin/bash\n" + RUN.encode() + b"\n"))
    (found,) = said(report, "script-mark")
    assert (found.severity, found.line) == ("warning", 1)
    assert len(report.facts["commands"]) == 1


def test_a_quote_that_is_never_closed_is_an_error_at_its_line() -> None:
    report = workflow.check(script(f"{RUN} trainer.nnodes=1\necho 'it'\n{RUN} \\\n  'data.train_files=x\n"))
    (found,) = said(report, "script-quote")
    assert (found.severity, found.line) == ("error", 4)
    report = workflow.check(script(f"{RUN} trainer.nnodes=1\necho 'a\nb c\necho 'd'\n"))
    (found,) = said(report, "script-quote")
    assert (found.line, found.hint) == (
        4,
        "the missing one may be further up: that of line 2 runs over several lines",
    )


BITS = ["'", '"', "\\", " ", "\n", "a", "b=1", "$x", "${x}", "${x:-", "}", "$(", ")", "`", "#", "$'", "\\'", '\\"',
        "<<E\n", "E\n", "if true; then\n", "fi\n", "case a in a) b;; esac\n", "((1<<2))", "$((1<<a))", ";", "|", "\\\n",
        "(", "\t", "<<<", "<<'E'\n", "echo 'a b' \"c d\"\n", "echo \"a\n b\"\n", "[[ a ]]", "# it's\n"]  # fmt: skip


@needs_bash
def test_bash_refuses_whatever_is_called_unclosed() -> None:
    assert BASH is not None
    rolled = random.Random(11)
    refused = 0
    for _ in range(600):
        text = "".join(rolled.choice(BITS) for _ in range(rolled.randint(1, 14)))
        if unclosed_quote(text)[0]:
            done = subprocess.run([BASH, "-n"], input=text.encode(), capture_output=True, check=False)
            assert done.returncode or done.stderr, text
            refused += 1
    assert refused > 30


@pytest.mark.parametrize(
    "text", ["cat <<E\nit's\nE\n", "# it's\n", "echo a#'b'\n", "echo $'it\\'s' \"it's\"\n"]
)
def test_a_quote_that_is_none_is_not_called_one(text: str) -> None:
    assert unclosed_quote(text) == (0, 0)


@pytest.mark.parametrize(
    ("method", "key"),
    [("verl/sft", ""), ("verl/ppo", "algorithm.adv_estimator"), ("openrlhf/sft", "")],
)
def test_a_command_that_is_not_the_method_asked_for_is_an_error(method: str, key: str) -> None:
    report = workflow.check([*PPO, "algorithm.adv_estimator=grpo"], method=method)
    (found,) = said(report, "method-mismatch")
    assert (found.severity, found.key) == ("error", key)
    assert report.facts["method"] == "verl/grpo"
    assert not said(
        workflow.check([*PPO, "algorithm.adv_estimator=grpo"], method="verl/grpo"), "method-mismatch"
    )


def test_a_method_that_an_open_word_decides_is_not_refused() -> None:
    command = script(f"{RUN} algorithm.adv_estimator=$A\n")
    assert not said(workflow.check(command, method="verl/ppo"), "method-mismatch")


def test_an_unknown_configuration_of_a_folder_of_its_own_is_no_error() -> None:
    for flag in ("--config-path=/own", "--config-dir=/own"):
        report = workflow.check([*PPO, flag, "--config-name=gsm8k_multiturn_grpo", "own.key=1"])
        assert [finding.code for finding in report.findings] == ["config-foreign"]
        report = workflow.check([*PPO, flag, "own.key=1"])
        assert not [finding for finding in report.findings if finding.severity == "error"]
        report = workflow.check([*PPO, flag, "own.key='1"])
        assert [f.code for f in report.findings if f.severity == "error"] == ["hydra-syntax"]
    assert said(workflow.check([*PPO, "--config-name=gsm8k_multiturn_grpo"]), "config-unknown")


ARRAYS = """\
declare -A BATCH=([small]=64 [big]=128); a=(3 5 7); e=(1 "" 3); i=1; BATCH[n]=2; k=small; none=()
printf -v X '%s-%d' a 3; printf -v Y "no newline"; printf -v a[1] 9; printf -v Z 'x%sy\\n' 1
python -m m $((BATCH[small]/4)) $((a[1]*2)) $((a[i+1]+a[0])) $((a[7]+1)) $((a[a[0]-1])) $((a)) $((BATCH[$k]+1)) "$Z"
python -m m $X "$Y" $((a[0]++)) ${a[0]} $((BATCH[n]+=5)) ${BATCH[n]} $((e[1]+1)) $((none[0]+1)) $((a[i]=4)) ${a[1]}
"""


@needs_bash
def test_elements_in_arithmetic_and_printed_variables_are_those_of_bash() -> None:
    assert BASH is not None
    prelude = "python() { printf '%s\\036' \"$@\"; printf '\\035'; }\n"
    done = subprocess.run([BASH, "-c", prelude + ARRAYS], capture_output=True, check=True)
    wanted = [run.split("\x1e")[2:-1] for run in done.stdout.decode().split("\x1d")[:-1]]
    assert words(read(script(ARRAYS), {})) == wanted


def test_special_files_are_called_what_they_are() -> None:
    os.mkfifo("pipe")
    Path("loop").symlink_to("loop")
    for name, what in {
        "pipe": "is not a regular file",
        "/dev/null": "is not a regular file",
        "/dev/zero": "is not a regular file",
        "/dev/stdin": "is not",
        "loop": "is a link that leads nowhere",
        "gone.sh": "is not here",
    }.items():
        for command in ([name], ["bash", name]):
            with pytest.raises(Invalid, match=what) as caught:
                workflow.check(command)
            assert caught.value.code == "script-missing"


def test_a_pipe_of_this_process_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    out, into = os.pipe()
    os.write(into, f"{RUN} trainer.nnode=1\n".encode())
    os.close(into)
    assert said(workflow.check(["bash", f"/dev/fd/{out}"]), "key-unknown")
    os.close(out)
    monkeypatch.setattr("tuneport.shell.builtin.PIPE_SECONDS", 0.1)
    out, into = os.pipe()
    with pytest.raises(Invalid, match="does not end"):
        workflow.check([f"/dev/fd/{out}"])
    os.close(out)
    os.close(into)


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("python3 -m verl.trainer.main_ppoo", "did you mean verl.trainer.main_ppo?"),
        ("python3 verl.trainer.main_ppo a=1", "did you mean -m verl.trainer.main_ppo?"),
        ("pyhton3 -m verl.trainer.main_ppo", "did you mean python3?"),
    ],
)
def test_a_program_that_is_nearly_one_is_said(command: str, hint: str) -> None:
    with pytest.raises(TuneportError) as caught:
        workflow.check(command.split())
    assert caught.value.hint == hint
    report = workflow.check(script(f"{RUN}\n{command}\n"))
    assert [(f.line, f.severity) for f in report.findings if f.hint == hint] == [(2, "warning")]


def test_other_programs_are_not_called_misspelt() -> None:
    report = workflow.check(script(f"pytest -m slow\nipython -m x\nperl a.py\npython tool.py\n{RUN}\n"))
    assert not said(report, "command-near")


@pytest.mark.parametrize(
    ("known", "kind", "code", "text"),
    [
        ({"framework": "nope"}, NotFound, "framework-unknown", "verl"),
        ({"version": "0.1"}, NotFound, "release-unknown", "verl has 0.9.0"),
        ({"framework": "verl", "version": "0.1"}, NotFound, "release-unknown", "0.9.0"),
        ({"method": "x"}, NotFound, "method-unknown", "tp methods"),
        ({"method": "verl/grppo"}, NotFound, "method-unknown", "verl/grpo"),
        ({"framework": "pytorch"}, Invalid, "framework-unread", "does not read"),
        ({"framework": "custom"}, Invalid, "framework-unread", "does not read"),
    ],
)
def test_names_that_are_not_there_are_said_first(
    known: dict[str, Any], kind: type, code: str, text: str
) -> None:
    for command in (PPO, [RUN + " | tee log"]):
        with pytest.raises(kind) as caught:
            workflow.check(command, **known)
        assert caught.value.code == code
        assert text in f"{caught.value.message} {caught.value.hint}"


def test_a_framework_whose_commands_are_not_read_says_so() -> None:
    with pytest.raises(Invalid, match="does not read commands of pytorch") as caught:
        workflow.check(["pytorch", "--config", "x"])
    assert caught.value.code == "framework-unread"


@pytest.mark.parametrize(
    ("text", "launchers", "env", "nodes"),
    [
        ("accelerate launch --num_machines 2 --multi_gpu --config_file a.yaml -m a.b x=1", ["accelerate"], {}, 2),
        ("docker run --rm -e A=1 --env=B=2 --gpus all img:1 python3 -m a.b x=1", ["docker"], {"A": "1", "B": "2"}, 0),
        ("docker exec -it box torchrun -m a.b x=1", ["docker", "torchrun"], {}, 0),
        ("conda run -n e python -m a.b x=1", ["conda"], {}, 0),
    ],
)  # fmt: skip
def test_containers_and_accelerate_are_taken_off(
    text: str, launchers: list[str], env: dict[str, str], nodes: int
) -> None:
    found = take_apart(text.split())
    assert (found.module, found.arguments, found.launchers) == ("a.b", ["x=1"], launchers)
    assert (found.env, found.nodes) == (env, nodes)


def test_an_image_without_a_command_is_said() -> None:
    with pytest.raises(Invalid, match="the image's own command"):
        take_apart(["docker", "run", "img"])


def test_an_override_with_dashes_is_told_to_lose_them() -> None:
    (found,) = said(workflow.check([*PPO, "--trainer.nnodes=2"]), "hydra-flag")
    assert found.hint == "an override has no dashes: write trainer.nnodes=2"
    (found,) = said(workflow.check([*PPO, "--nope"]), "hydra-flag")
    assert found.hint == "write the flags before the overrides"


@pytest.mark.parametrize("given", ["1X=2", "A-B=1", "A B=1", "=1", "A"])
def test_a_variable_needs_a_name(given: str) -> None:
    with pytest.raises(UsageError):
        _variables((given,))
    assert _variables(("_A1=x=y",)) == {"_A1": "x=y"}


def test_a_given_variable_that_nothing_reads_is_a_note() -> None:
    command = script(f"{RUN} trainer.nnodes=$NODES\n")
    (found,) = said(workflow.check(command, env={"NODE": "2"}), "script-unused")
    assert (found.severity, found.hint) == ("note", "did you mean NODES?")
    assert not said(workflow.check(command, env={"NODES": "2"}), "script-unused")


def test_an_empty_value_is_shown() -> None:
    report = workflow.check([*PPO, "data.train_files=", "actor_rollout_ref.rollout.name=vllm"])
    (found,) = [finding for finding in report.findings if finding.key == "data.train_files"]
    assert not found.message.startswith(" ")
    assert "''" in found.message


def test_import_says_what_check_says_of_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = new_project(tmp_path / "project")
    monkeypatch.chdir(project)
    lines = ["algorithm.adv_estimator=grpo", "actor_rollout_ref.rollout.name=vllm", "actor_rollout_ref.rollout.n=8",
             "actor_rollout_ref.actor.use_dynamic_bsz=True", "actor_rollout_ref.model.path=org/model",
             "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True", "data.train_files=/d/a.parquet",
             "actor_rollout_ref.ref.log_prob_use_dynamic_bsz=True", "data.val_files=/d/b.parquet"]  # fmt: skip
    made = workflow.import_command(script(f"{RUN} {' '.join(lines)}\n  trainer.save_freq=5\n"), "one")
    assert [finding.line for finding in made.findings if finding.code == "script-override"] == [2]


def test_an_array_before_a_carriage_return_is_left_open() -> None:
    assert words(read(script("A=(x y)\r\npython -m m ${A[@]}\n"), {})) == [["…"]]
