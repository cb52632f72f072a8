"""Curves under canonical names, with what is odd or missing said, drawn in any terminal."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.summary.writer.record_writer import RecordWriter
from tuneport.jobs.metrics import Point, Series, collect, plot
from tuneport.jobs.show import metric_rows, metrics_json

sys.path.insert(0, str(Path(__file__).parent))
from jobs_support import scalar_summary


def events(folder: Path, name: str, values: list[tuple[str, int, float]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"events.out.tfevents.{name}").open("wb") as file:
        writer = RecordWriter(file)
        for tag, step, value in values:
            writer.write(
                Event(
                    step=step, wall_time=step * 10.0, summary=scalar_summary(tag, value)
                ).SerializeToString()
            )


def report(path: Path, values: list[tuple[str, int, float]]) -> Path:
    lines = [json.dumps({"time": 1.0, "kind": "log", "step": s, "values": {t: v}}) for t, s, v in values]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def curve(found: object, name: str) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in found.series[name].points]


def test_tags_get_canonical_names_and_others_keep_theirs(tmp_path: Path) -> None:
    events(tmp_path / "tb", "1", [("loss", 2, 0.25), ("loss", 1, 0.5), ("lr", 1, 1.0), ("other", 1, 3.0)])
    aliases = {"train/loss": ["train_loss", "loss"], "train/lr": ["lr"], "validation/loss": ["eval/loss"]}
    found = collect([tmp_path / "tb", tmp_path / "none.jsonl", tmp_path / "none"], aliases)
    assert list(found.series) == ["other", "train/loss", "train/lr"]
    assert curve(found, "train/loss") == [(1, 0.5), (2, 0.25)]
    assert found.series["train/loss"].tag == "loss"
    assert found.missing(["train/loss", "validation/loss"]) == ["validation/loss"]
    assert found.problems == ()


def test_the_best_alias_wins_and_nothing_is_merged_or_lost(tmp_path: Path) -> None:
    events(tmp_path / "tb", "1", [("b", 1, 2.0), ("a", 1, 1.0)])
    events(tmp_path / "tb" / "run2", "1", [("a", 1, 5.0)])
    path = report(tmp_path / "report.jsonl", [("a", 1, 7.0), ("c", 1, 9.0)])
    found = collect([tmp_path / "tb", path], {"c": ["a", "b"]})
    assert curve(found, "c") == [(1, 1.0)]
    assert curve(found, "b") == [(1, 2.0)]
    assert {name: series.points[0].value for name, series in found.series.items()} == {
        "c": 1.0,
        "b": 2.0,
        "a": 5.0,
        "a (report)": 7.0,
        "c (report)": 9.0,
    }


def test_a_star_stands_for_what_a_trainer_makes_up(tmp_path: Path) -> None:
    tags = ["val/b/acc/mean@8", "val/a/acc/mean@1", "val/a/acc/best@1", "val[x]"]
    events(tmp_path, "1", [(tag, 1, float(number)) for number, tag in enumerate(tags)])
    found = collect([tmp_path], {"accuracy": ["val/*/acc/mean@*"], "none": ["val[*]y", "*/none"]})
    assert curve(found, "accuracy") == [(1, 1.0)]
    assert set(found.series) == {"accuracy", "val/b/acc/mean@8", "val/a/acc/best@1", "val[x]"}


def test_the_last_value_of_a_step_holds(tmp_path: Path) -> None:
    events(tmp_path, "1", [("loss", 1, 9.0), ("loss", 2, 8.0)])
    events(tmp_path, "2", [("loss", 2, 1.0), ("loss", 3, 0.5)])  # restarted from step 2
    assert curve(collect([tmp_path], {}), "loss") == [(1, 9.0), (2, 1.0), (3, 0.5)]


def test_nan_and_missing_are_shown_as_such(tmp_path: Path) -> None:
    path = report(tmp_path / "report.jsonl", [("loss", 1, 1.0), ("loss", 2, math.nan), ("loss", 3, math.inf)])
    found = collect([path], {})
    assert found.series["loss"].odd == 2
    rows = metric_rows(found, ["reward", "loss"])
    assert rows[0] == ("reward", "0", "-", "-", "-", "-", "missing")
    assert rows[1] == ("loss", "3", "3", "inf", "1", "1", "2 not finite")
    document = json.loads(json.dumps(metrics_json(found, ["reward"]), allow_nan=False))
    assert [point[1] for point in document["series"][0]["points"]] == [1.0, "NaN", "Infinity"]
    assert document["missing"] == ["reward"]


def test_report_lines_that_are_damaged_are_told(tmp_path: Path) -> None:
    path = tmp_path / "report.jsonl"
    good = json.dumps(
        {"time": 1.0, "kind": "log", "step": 1, "values": {"a": 1, "text": "x", "flag": True, "no": None}}
    )
    metric = json.dumps({"time": 1.0, "kind": "validation_metric", "values": {"key": "acc", "value": 0.5}})
    path.write_text(f"{good}\n{{broken\n[1]\n\n{metric}\n{good[:20]}")
    found = collect([path], {})
    assert {name: curve(found, name) for name in found.series} == {
        "a": [(1, 1.0)],
        "flag": [(1, 1.0)],
        "validation/acc": [(1, 0.5)],
    }
    assert found.problems == (
        "report.jsonl: line 2 is damaged and was left out",
        "report.jsonl: line 3 is damaged and was left out",
    )


def series(values: list[float]) -> Series:
    return Series("loss", "loss", "", tuple(Point(step, value, 0.0) for step, value in enumerate(values)))


def test_a_curve_is_drawn() -> None:
    text = plot(series([4.0, 3.0, 2.0, 1.0]), width=20, height=4)
    rows = text.splitlines()
    assert rows[0] == "loss  last 1"
    assert rows[1].startswith("4 │⠉⠒⠤⢄")
    assert [row[:3] for row in rows[1:5]] == ["4 │", "  │", "  │", "1 │"]
    assert rows[4].endswith("⠤⣀")
    # One unbroken line from the upper left to the lower right.
    columns = [{i for i, c in enumerate(row[3:]) if c not in " \u2800"} for row in rows[1:5]]
    assert set.union(*columns) == set(range(20))
    assert [min(column) for column in columns] == sorted(min(column) for column in columns)
    assert rows[5] == f"   step 0{'3':>14}"
    plain = plot(series([4.0, 3.0, 2.0, 1.0]), width=20, height=4, unicode=False)
    assert plain.isascii()
    assert plain.splitlines()[1].startswith("4 |*")
    assert plain.splitlines()[4].rstrip().endswith("*")
    assert len(plain.splitlines()[4]) == len("1 |") + 20


def test_odd_curves_are_drawn_too() -> None:
    assert "(no finite value)" in plot(series([math.nan]))
    assert "1 not finite" in plot(series([1.0, math.nan, 2.0]))
    assert "NaN" in plot(series([1.0, math.nan, 2.0]))
    flat = plot(series([5.0, 5.0, 5.0]), height=3).splitlines()
    assert flat[2].startswith("5 │")
    huge = plot(series([-1.7e308, 1.7e308]), height=4)
    assert "1.7e+308" in huge
    assert "step 0" in plot(series([1.0]))
