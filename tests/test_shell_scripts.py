"""Scripts in `tp check`: what is open is said and never an error, findings carry lines, hostile ones end soon."""
# ruff: noqa: E501 - the scripts stand as people write them

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tuneport import workflow
from tuneport.errors import Invalid, TuneportError
from tuneport.experiment.findings import findings_text
from tuneport.shell.gaps import shown
from tuneport.shell.reader import Reading, read
from tuneport.types import Finding

GRPO = """\
ARGS=(
  algorithm.adv_estimator=grpo
  actor_rollout_ref.rollout.name=vllm
  actor_rollout_ref.rollout.n=8
  actor_rollout_ref.actor.use_dynamic_bsz=true
  actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=true
  actor_rollout_ref.ref.log_prob_use_dynamic_bsz=true
  actor_rollout_ref.model.path=/models/m
  data.train_files=/data/train.parquet
  data.val_files=/data/test.parquet
)
"""
RUN = 'python3 -m verl.trainer.main_ppo "${ARGS[@]}"'


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(text: str, name: str = "train.sh") -> str:
    Path(name).write_text(text, "utf-8")
    return name


def check(text: str, *arguments: str, **known: Any) -> workflow.Report:
    return workflow.check(["bash", written(text), *arguments], **known)


def started(text: str, *arguments: str, env: dict[str, str] | None = None) -> Reading:
    return read(["bash", written(text), *arguments], env or {})


def words(reading: Reading) -> list[list[str]]:
    return [[shown(word) for word in one.arguments] for one in reading.programs]


def errors(report: workflow.Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.severity == "error"]


def only(report: workflow.Report, code: str) -> Finding:
    (found,) = [finding for finding in report.findings if finding.code == code]
    return found


@pytest.mark.parametrize(
    "words", [["train.sh"], ["./train.sh"], ["bash", "train.sh"], ["bash", "-c", "source train.sh"], ["x=1; . ./train.sh"]]
)  # fmt: skip
def test_a_script_is_read_however_it_is_named(words: list[str]) -> None:
    written(GRPO + RUN + " 2>&1 | tee log\n")
    report = workflow.check(words)
    assert not errors(report), findings_text(report.findings)
    assert report.facts["method"] == "verl/grpo"
    assert report.facts["commands"][0]["line"] == 12
    assert not Path("log").exists()


def test_a_piece_of_shell_is_read() -> None:
    report = workflow.check(
        ["cd /x && export A=1; python -m verl.trainer.main_ppo trainer.nnode=$A | tee log"]
    )
    assert only(report, "key-unknown").line == 1


def test_findings_name_the_line_of_the_word() -> None:
    report = check(
        GRPO + "\nARGS+=(\n  trainer.nnode=1\n)\n" + RUN + ' trainer.save_freq=a "$@"\n', "trainer.nope=2"
    )
    found = {finding.key: (finding.file, finding.line) for finding in errors(report)}
    assert found == {"trainer.nnode": ("train.sh", 14), "trainer.save_freq": ("train.sh", 16), "trainer.nope": ("train.sh", 16)}  # fmt: skip


def test_a_key_given_twice_names_both_lines() -> None:
    report = check(GRPO + RUN + " \\\n trainer.save_freq=5 \\\n trainer.save_freq=7\n")
    note = only(report, "key-repeated")
    assert "5 (line 13), then 7 (line 14); the last one counts" in note.message
    assert (note.file, note.line, note.severity) == ("train.sh", 14, "note")


def test_each_command_is_checked() -> None:
    text = (
        GRPO
        + "for n in 1 2; do\n"
        + RUN
        + " trainer.nnodes=$n\ndone\npython3 -m verl.trainer.sft_trainer optim.lrr=1\n"
    )
    report = check(text)
    assert [one["entry"] for one in report.facts["commands"]] == ["verl.trainer.main_ppo"] * 2 + [
        "verl.trainer.sft_trainer"
    ]
    assert [(finding.key, finding.line) for finding in errors(report) if finding.code == "key-unknown"] == [
        ("optim.lrr", 15)
    ]


def test_what_is_not_known_is_said_and_no_error() -> None:
    report = check(
        GRPO
        + RUN
        + " trainer.nnodes=$NODES actor_rollout_ref.actor.optim.lr=${LR:?} data.train_batch_size=$((N*2))\n"
    )
    assert not errors(report), findings_text(report.findings)
    said = {finding.key: finding for finding in report.findings if finding.code == "script-undecided"}
    assert {key: finding.hint for key, finding in said.items()} == {
        "trainer.nnodes": "give --env NODES=VALUE",
        "actor_rollout_ref.actor.optim.lr": "give --env LR=VALUE",
        "data.train_batch_size": "give --env N=VALUE",
    }
    assert all(finding.line == 12 and finding.severity == "note" for finding in said.values())


def test_a_variable_that_is_given_settles_it() -> None:
    text = GRPO + RUN + " trainer.nnodes=$NODES\n"
    report = check(text, env={"NODES": "two"})
    assert {finding.key for finding in errors(report)} == {"trainer.nnodes"}


def test_rules_are_silent_about_what_is_not_known() -> None:
    text = GRPO + RUN + " actor_rollout_ref.actor.use_dynamic_bsz=$D\n"
    assert "verl-micro-missing" in {finding.code for finding in errors(check(text, env={"D": "false"}))}
    assert not errors(check(text))
    devices = GRPO + "export CUDA_VISIBLE_DEVICES=$C\n" + RUN + " trainer.n_gpus_per_node=$G\n"
    known = check(devices, env={"C": "0,1", "G": "8"})
    assert "verl-devices-visible" in {finding.code for finding in errors(known)}
    for given in ({"C": "0,1"}, {"G": "8"}, {}):
        assert not errors(check(devices, env=given)), given


def test_an_interpolation_of_what_is_not_known_is_not_judged() -> None:
    text = (
        GRPO
        + RUN
        + " data.train_batch_size=$B actor_rollout_ref.actor.ppo_mini_batch_size='${data.train_batch_size}'\n"
    )
    assert not errors(check(text))


def test_a_choice_of_files_that_is_not_known_leaves_the_keys_open() -> None:
    report = check(GRPO + RUN + " model_engine=$ENGINE nope.nope=1\n")
    assert not errors(report)
    assert only(report, "script-undecided").key == "model_engine"


def test_an_open_value_of_a_key_that_is_taken_out_is_no_error() -> None:
    assert not errors(
        check(GRPO + RUN + " '~trainer.balance_batch='$B +trainer.mine=$B ++trainer.nnodes=$B\n")
    )


def test_words_that_are_not_known_at_all_soften_every_error() -> None:
    report = check(GRPO + RUN + " trainer.nnode=1 $EXTRA\n")
    assert not errors(report)
    assert only(report, "key-unknown").severity == "warning"
    assert "unless a word" in only(report, "key-unknown").message


def test_both_ways_of_an_open_condition_are_followed() -> None:
    text = """\
A=(base=1)
N=1
if [ "$RANK" = 0 ]; then A+=(more=1); N=2; M=1; else N=3; M=1; fi
python -m m "${A[@]}" n=$N m=$M
if [ -f /some/file ]; then python -m a; exit 1; fi
python -m b
"""
    reading = started(text)
    assert [one.module for one in reading.programs] == ["m", "a", "b"]
    assert words(reading)[0] == ["base=1", "…", "n=…", "m=1"]
    gap = next(gap for gap in reading.gaps.of(reading.programs[0].arguments[2]))
    assert (gap.variable, gap.line) == ("RANK", 3)
    assert words(started(text, env={"RANK": "0"}))[0] == ["base=1", "more=1", "n=2", "m=1"]
    assert words(started(text, env={"RANK": "1"}))[0] == ["base=1", "n=3", "m=1"]


def test_an_open_loop_leaves_its_variables_open() -> None:
    reading = started(
        'A=(x)\nwhile read -r line; do A+=("$line"); B=2; done < file\npython -m m "${A[@]}" $B c=3\n'
    )
    assert words(reading) == [["x", "…", "…", "c=3"]]


def test_a_default_that_only_the_machine_knows_can_be_given() -> None:
    text = "D=${DEVICE:-$(python3 -c 'import x' && echo a || echo b)}\ncase $D in a) V=1;; b) V=2;; *) exit 1;; esac\npython -m m $V\n"
    reading = started(text)
    assert words(reading) == [["…"]]
    assert {gap.variable for gap in reading.gaps.of(reading.programs[0].arguments[0])} == {"DEVICE"}
    assert words(started(text, env={"DEVICE": "b"})) == [["2"]]


def test_environment_and_launchers_of_scripts() -> None:
    text = (
        "export A=1\nB=2\nset -a; C=3; set +a\n"
        "D=4 ray job submit --working-dir . -- torchrun --nnodes=2 --nproc_per_node=$G -m m x=1\n"
        "srun -N 2 bash inner.sh y=2 &\nwait\n"
    )
    written('shift 0\npython -m n $A $B "$@"\n', "inner.sh")
    reading = started(text)
    first, second = reading.programs
    assert {name: first.env[name] for name in "ACD"} == {"A": "1", "C": "3", "D": "4"}
    assert "B" not in first.env
    assert (first.nodes, first.launchers, first.line) == (-1, ["ray-job", "torchrun"], 4)
    assert (second.file, second.line, [shown(word) for word in second.arguments]) == (
        "inner.sh",
        2,
        ["1", "…", "y=2"],
    )
    assert started(text, env={"G": "8"}).programs[0].per_node == 8


def test_sourced_files_are_read_or_said() -> None:
    written("N=${N:-4}\n", "env.sh")
    reading = started('source "$(dirname "$0")/env.sh"\n. /nowhere/set_env.sh\npython -m m n=$N\n')
    assert words(reading) == [["n=4"]]
    (finding,) = reading.findings
    assert (finding.code, finding.severity, finding.line) == ("script-missing", "note", 2)


def test_what_is_not_understood_is_said() -> None:
    (finding,) = started('eval "$UNKNOWN"\npython -m m\n').findings
    assert (finding.code, finding.line) == ("script-unread", 1)


def test_a_script_that_ends_before_its_command_says_so() -> None:
    with pytest.raises(Invalid) as caught:
        check('if [ "$#" -lt 1 ]; then echo usage; exit 1; fi\n' + GRPO + RUN)
    assert caught.value.code == "script-nothing"
    assert not errors(check('if [ "$#" -lt 1 ]; then echo usage; exit 1; fi\n' + GRPO + RUN, "x"))


def test_nothing_is_run() -> None:
    text = "touch made\nX=$(touch made)\n: > made\ncat /etc/hostname > made\n(touch made)\npython -m m `touch made`\n"
    started(text)
    assert not Path("made").exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["bash", "gone.sh"], "script-missing"),
        (["gone.sh"], "script-missing"),
        (["bash", "."], "script-missing"),
        (["bash", "-c", "true"], "script-nothing"),
        (["python -m nobody.has.this"], "script-nothing"),
        (["a\0b"], "script-text"),
    ],
)
def test_what_cannot_be_read_is_refused(words: list[str], code: str) -> None:
    with pytest.raises(TuneportError) as caught:
        workflow.check(words)
    assert caught.value.code == code


BIG = 120_000
HOSTILE: dict[str, bytes] = {
    "ten megabytes": b"a=1\n" * 2_600_000,
    "nul": b"a\0b",
    "arrays": b"a=(" * (BIG // 3),
    "balanced arrays": (b"a=(" * 30 + b")" * 30 + b"\n") * (BIG // 121),
    "expansions": b"${" * (BIG // 2),
    "here-docs": b"<" * BIG,
    "brackets": (b"[[ " * 20 + b"\n") * (BIG // 61),
    "functions": b"f() { " * (BIG // 6),
    "substitutions": b'"$(a "' * (BIG // 6),
    "bytes": b"\xff" * BIG,
    "assignments": b"a=1\n" * (BIG // 4),
    "for ever": b"while true; do a=1; done",
    "long loop": b"for ((i=0;i<10**12;i++)); do :; done",
    "recursion": b"f() { f; f; }; f",
    "recursion in substitutions": b"f() { x=$(f)$(f); }; f",
    "doubling": b"a=xxxxxxxxxx\n" + b"a=$a$a\n" * 60,
    "doubling arrays": b"a=(1 2)\n" + b'a=("${a[@]}" "${a[@]}")\n' * 40,
    "braces": b"echo " + b"{a,b}" * 40,
    "ranges": b"echo {1..99999}{1..99999}",
    "eval": b'x="eval \\"\\$x\\""; eval "$x"',
    "patterns": b"x=" + b"a" * 5000 + b"; y=${x##*a*a*a*a*b}; y=${x//a*b/c}\n" + b"y=${x%%*b*a*b}\n" * 500,
    "powers": b"x=$((9**9**9**9))\n",
    "open conditions": b"if [ -f a ]; then x=1; else x=2; fi\n" * 2500,
    "many variables": b"".join(b"v%d=1\n" % i for i in range(4000)) + b"if [ -f a ]; then x=1; fi\n" * 1000,
    "deep ifs": b"if true; then " * 300 + b":" + b"; fi" * 300,
    "deep defaults": b"a=" + b"${a:-" * 300 + b"x" + b"}" * 300,
    "itself": b"bash ./train.sh; . ./train.sh",
    "sourcing itself": b". ./train.sh",
    "cases": b"case x in " + b"a|" * 30000 + b"b) :;; esac",
    "stars": b"case " + b"a" * 4000 + b" in " + b"*a" * 60 + b"b) :;; esac",
    "odd unicode": "é=‮1\npython -m m \U0001f600=‏\n".encode(),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_script_ends_soon(name: str) -> None:
    Path("train.sh").write_bytes(HOSTILE[name])
    read([written_ok()], {})  # loads the parser
    start = time.process_time()
    try:
        read(["bash", "train.sh"], {})
    except TuneportError as error:
        assert error.code.startswith("script-"), error
        assert error.message
    assert time.process_time() - start < 2  # 1 s on an idle machine


def written_ok() -> str:
    return written("python -m m\n", "ok.sh")


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_scripts_take_little_memory(text: bytes) -> None:
    """Each in a process of its own, since the parser gives nothing back of what it took for a script that it
    did not finish. The largest resident size is not ru_maxrss, which begins with the memory of whoever
    started the process."""
    written_ok()
    code = (
        "from tuneport.shell.reader import read\n"
        "try: read(['bash', 'hostile.sh'], {})\nexcept Exception: pass\n"
        "print(int(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0]) // 1024)\n"
    )
    Path("hostile.sh").write_bytes(text)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 150  # the interpreter and the parser alone take 15


def test_the_parser_is_loaded_by_scripts_alone() -> None:
    code = (
        "import sys\nfrom tuneport import workflow\n"
        "workflow.check(['python', '-m', 'verl.trainer.main_ppo'])\n"
        "assert not [name for name in sys.modules if name.startswith('tree_sitter')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
