"""Event files, with the real `tensorboard` package as the judge."""

from __future__ import annotations

import random
import struct
import sys
import zlib
from pathlib import Path

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import crc32c as reference_crc
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.summary.writer.record_writer import RecordWriter
from tensorboard.util import tensor_util
from tuneport.jobs.metrics import wire
from tuneport.jobs.metrics.crc import crc32c
from tuneport.jobs.metrics.events import Scalar, scalars

sys.path.insert(0, str(Path(__file__).parent))
from jobs_support import scalar_summary

RECORDS = st.lists(
    st.tuples(
        st.sampled_from(["train/loss", "eval/loss", "é漢", ""]),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(width=32),
        st.sampled_from(["simple", "tensor", "float", "double", "int", "half", "bool", "bfloat"]),
    ),
    max_size=12,
)


def write(path: Path, events: list[Event]) -> Path:
    with path.open("wb") as file:
        writer = RecordWriter(file)
        for event in events:
            writer.write(event.SerializeToString())
    return path


def event(tag: str, step: int, value: float, kind: str) -> Event:
    found = Event(step=step, wall_time=1000.5)
    if kind == "simple":
        found.summary.value.add(tag=tag, simple_value=value)
    elif kind == "tensor":
        found.summary.CopyFrom(scalar_summary(tag, value))
    else:
        dtype = {
            "float": "float32",
            "double": "float64",
            "int": "int64",
            "half": "float16",
            "bool": "bool",
        }.get(kind)
        if dtype is None:
            raw = numpy.float32(value).view(numpy.uint32) >> 16
            tensor = TensorProto(dtype=14, half_val=[int(raw)])
        else:
            with numpy.errstate(all="ignore"):
                array = (
                    numpy.nan_to_num(numpy.float64(value))
                    if kind in ("int", "bool")
                    else numpy.float64(value)
                )
                clipped = numpy.clip(array, -(2**62), 2**62) if kind == "int" else array
                tensor = tensor_util.make_tensor_proto(clipped.astype(dtype))
        found.summary.value.add(tag=tag, tensor=tensor)
    return found


def read(path: Path) -> tuple[list[Scalar], list[str]]:
    problems: list[str] = []
    return list(scalars(path, problems.append)), problems


def reference(path: Path) -> list[Scalar]:
    found = []
    for item in EventFileLoader(str(path)).Load():
        for value in item.summary.value:
            if value.tensor.dtype == 14:
                raw = struct.pack("<I", value.tensor.half_val[0] << 16)
                number = struct.unpack("<f", raw)[0]
            else:
                number = float(tensor_util.make_ndarray(value.tensor))
            found.append(Scalar(value.tag, item.step, item.wall_time, number))
    return found


def exact(items: list[Scalar]) -> list[tuple[object, ...]]:
    return [(item.tag, item.step, item.time, struct.pack("<d", item.value)) for item in items]


@settings(max_examples=150, deadline=None)
@given(RECORDS)
def test_it_reads_what_tensorboard_reads(items: list[tuple[str, int, float, str]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "events.out.tfevents.1", [event(*item) for item in items])
        found, problems = read(path)
        assert problems == []
        known = reference(path)
        nan = [struct.pack("<d", float("nan")) if item.value != item.value else None for item in known]
        ours = exact(found)
        assert len(ours) == len(known)
        for one, other, odd in zip(ours, exact(known), nan, strict=True):
            assert one[:3] == other[:3]
            if odd is None:
                assert one[3] == other[3]
            else:
                assert found[ours.index(one)].value != found[ours.index(one)].value


def test_a_file_of_the_real_writer(tmp_path: Path) -> None:
    writer = EventFileWriter(str(tmp_path))
    for step in range(100):
        writer.add_event(Event(step=step, wall_time=step, summary=scalar_summary("loss", 1 / (step + 1))))
        writer.add_event(
            Event(
                step=step,
                wall_time=step,
                summary=Summary(value=[Summary.Value(tag="old", simple_value=step)]),
            )
        )
    writer.close()
    [path] = tmp_path.iterdir()
    found, problems = read(path)
    assert problems == []
    assert exact(found) == exact(reference(path))
    assert len(found) == 200


def test_images_texts_and_vectors_are_no_scalars(tmp_path: Path) -> None:
    vector = Event(step=1)
    vector.summary.value.add(tag="vector", tensor=tensor_util.make_tensor_proto(numpy.arange(3.0)))
    text = Event(step=1)
    text.summary.value.add(tag="text", tensor=tensor_util.make_tensor_proto("words"))
    picture = Event(step=1)
    picture.summary.value.add(tag="image", image=Summary.Image(height=1, width=1, encoded_image_string=b"x"))
    other = Event(step=1)
    metadata = other.summary.value.add(
        tag="pr", tensor=tensor_util.make_tensor_proto(numpy.float32(1))
    ).metadata
    metadata.plugin_data.plugin_name = "pr_curves"
    later = Event(step=2)
    later.summary.value.add(tag="pr", tensor=tensor_util.make_tensor_proto(numpy.float32(2)))
    empty = Event(step=2)
    empty.summary.value.add(tag="none", tensor=tensor_util.make_tensor_proto(numpy.zeros((0,))))
    huge = Event(step=3)
    huge.summary.value.add(tag="huge", tensor=tensor_util.make_tensor_proto(numpy.zeros(300_000)))
    good = event("loss", 4, 0.5, "tensor")
    path = write(tmp_path / "e.tfevents", [vector, text, picture, other, later, empty, huge, good])
    found, problems = read(path)
    assert problems == []
    assert [(item.tag, item.step, item.value) for item in found] == [("loss", 4, 0.5)]


def test_a_tail_that_is_still_being_written_is_no_problem(tmp_path: Path) -> None:
    path = write(tmp_path / "e.tfevents", [event("loss", step, 0.5, "simple") for step in (1, 2, 3)])
    whole = path.read_bytes()
    size = len(whole) // 3
    for cut in range(2 * size, 3 * size):
        path.write_bytes(whole[:cut])
        found, problems = read(path)
        assert ([item.step for item in found], problems) == ([1, 2], [])


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "e.tfevents", [event("loss", step, 0.5, "tensor") for step in (1, 2, 3)])
    whole = path.read_bytes()
    size = len(whole) // 3
    chance = random.Random(4)
    for place in range(size, 2 * size):  # in the middle record
        spoiled = bytearray(whole)
        spoiled[place] ^= chance.randrange(1, 256)
        path.write_bytes(spoiled)
        found, problems = read(path)
        steps = [item.step for item in found]
        assert len(problems) == 1
        # A damaged frame ends the file, damaged data only its own record.
        assert steps == ([1] if place < size + 12 else [1, 3])


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_read_without_an_accident(data: bytes) -> None:
    import tempfile

    frame = struct.pack("<Q", len(data))
    from tuneport.jobs.metrics.crc import masked

    record = frame + struct.pack("<I", masked(frame)) + data + struct.pack("<I", masked(data))
    with tempfile.TemporaryDirectory() as folder:
        for content in (data, record):
            path = Path(folder) / "e.tfevents"
            path.write_bytes(content)
            found, problems = read(path)
            assert all(isinstance(item.value, float) for item in found)
            assert all(isinstance(problem, str) for problem in problems)


@settings(deadline=None)
@given(st.binary(max_size=2000))
def test_the_checksum_is_castagnoli(data: bytes) -> None:
    assert crc32c(data) == reference_crc(data)


def test_the_checksum_of_the_standard_text() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"123456789") != zlib.crc32(b"123456789")


def test_the_wire_format_refuses_nonsense() -> None:
    for data in (b"\x08", b"\x0a\x05ab", b"\x03", b"\x00\x01", b"\x08" + b"\xff" * 11, b"\x0d\x00"):
        with pytest.raises(ValueError, match=r".+"):
            list(wire.fields(data))
    assert wire.signed(2**64 - 5) == -5
