"""The footer of Parquet files, written by pyarrow and damaged by us."""

from __future__ import annotations

import base64
import random
import zlib
from pathlib import Path

import pytest
from tuneport.experiment import parquet, tables
from tuneport.experiment.parquet import table

# Two rows of the shape of GSM8K's, as pyarrow 24 writes them, without the pages that are never read.
FOOTER = (
    "c-p0uKWx)L6vpq;ixW~)QiM-uDMOZ?g8GLhq7g%-z{b#_V(1zj$&pw%wmDyDD={!IF)>t(2qA_}ojNd7Ob9VBqp~3e2BwY-44lt#"
    "Yg4x>!m{q{=ezIc_uac&zjLo?A^Z2$6+n!zH{>H`Re@#B707g-N!AVhvFPzRuvP;AtQ3e52!9kvt6&*xt5FCM<T{}WL|;qX<s<G%"
    "3&k2p_--;;2TDEPlWIUF#_l_=Bezc=rr?`Q^t&U!&)r0;7|QLem^l#s*z0$t7|Y?w><ZtKf^{A5fgjC9(Ok#t^Q}ZDP_#s+q9Z+D"
    "@OY%*a&I7qkq(k<5URX%95R5BU9%4;s9C1H0*tDivB)wp!ut>(Lb^fAwKiy&e!xBE+!%zTTMtR*ZFUye3l_3KBoC~r>Q?cxZP*kb"
    "^;apz-HGAa<iuWWs|LP+ib-D;=r<T4(KzIS=r$KowJ8GjhC*D3ldP6Ty@vP$q~E9L&Xh*A=35<tn)A)hKcbEoT+2R#co))_MS6&|"
    "?1;%B(d`+sIVLqS1rrxaO8mV+pBh?Rj9pH2d!~3BoUfiKIt_WEtf4<kbhi{S;7tNsx#}pZjwb4<a*fMWi++aqNZE3Uek#{U8G`sC"
    "<;erUppg^J<6h6rDNWTILQ|hZya(y83Vm0Jaw)1Ijz{7yH>YdaoGOzQj(1clk$sc?n64fF=<Vd`s1qe}I(kMT^l$f){hC6(ouOYY"
    "D^%gw9hma$bo8RAhCUA<OQCkE^y8KPM@<aGZ)Px}WxO{F8ufsQM`JD*dqJ?sgzz`(kGTjP->bLUOUp}5`#>FE=ilIK5rB1d!2baw"
    "b^J2"
)
TYPES = {
    "data_source": "string",
    "prompt": "list",
    "ability": "string",
    "reward_model": "struct",
    "extra_info": "struct",
    "score": "double",
    "length": "int64",
    "tags": "struct",
}


SHAPES = {"string": "text", "struct": "record", "double": "number", "int64": "number"}


@pytest.fixture
def content() -> bytes:
    return zlib.decompress(base64.b85decode(FOOTER))


def test_columns_types_rows_and_a_constant_column(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "train.parquet"
    path.write_bytes(content)
    assert table(path) == {
        "columns": list(TYPES),
        "column_types": TYPES,
        "shapes": {name: {SHAPES.get(kind, kind): 0} for name, kind in TYPES.items()}
        | {"prompt": {"messages": 0}, "reward_model.style": {"text": 0}}
        | {"reward_model.ground_truth": {"text": 0}, "extra_info.index": {"number": 0}}
        | {"extra_info.split": {"text": 0}, "tags.a": {"number": 0}},
        "column_fields": {
            "reward_model": ["style", "ground_truth"],
            "extra_info": ["index", "split"],
            "tags": ["a"],
        },
        "rows": 2,
        "columns_blank": [],
        "data_source_values": ["openai/gsm8k"],
        "unseen": "only the types of its columns were judged, not the values of its 2 rows",
    }


def test_what_lies_before_the_footer_does_not_matter(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "train.parquet"
    path.write_bytes(content[:4] + bytes(1 << 20) + content[4:])
    assert table(path)["rows"] == 2


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"PAR1",
        b"PAR1" * 4,
        b"PAR1" + b"\xff\xff\xff\x7fPAR1",
        b"PAR1" + bytes(64) + b"\x40\0\0\0PAR1",
        b"PAR1" + b"\x1c" * 4000 + b"\xa0\x0f\0\0PAR1",
        b"PAR1" + b"\x19\xfc\xff\xff\xff\xff\x0f" + bytes(9) + b"\x10\0\0\0PAR1",
    ],
    ids=["empty", "magic", "no-footer", "longer-than-the-file", "zeroes", "deep", "endless-list"],
)
def test_a_file_that_is_none(tmp_path: Path, damaged: bytes) -> None:
    path = tmp_path / "train.parquet"
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=r"Parquet"):
        table(path)


def test_a_footer_without_end_is_given_up(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "train.parquet"
    path.write_bytes(content)
    monkeypatch.setattr(parquet, "_BYTES", 100)
    unseen = "its footer is too long, so its rows were not looked into"
    assert table(path) == {"columns": [], "unseen": unseen} == tables.read(path)


def test_no_damage_does_more_than_refuse(tmp_path: Path, content: bytes) -> None:
    path, chance = tmp_path / "train.parquet", random.Random(11)
    for _ in range(400):
        mutated = bytearray(content)
        for _ in range(chance.randint(1, 8)):
            mutated[chance.randrange(4, len(mutated) - 8)] = chance.randrange(256)
        path.write_bytes(bytes(mutated))
        try:
            facts = table(path)
        except ValueError:
            continue
        assert isinstance(facts["columns"], list)


def test_columns_that_hold_nothing(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    row = {"prompt": [], "gone": None, "text": "", "n": 0, "tags": [""], "r": {"a": "", "b": 1, "c": None}}
    path = tmp_path / "train.parquet"
    pq.write_table(pa.Table.from_pylist([row] * 3), path)
    assert table(path)["columns_blank"] == ["prompt", "gone", "text", "r.a", "r.c"]
    other = {
        "prompt": ["x"],
        "gone": None,
        "text": "t",
        "n": 1,
        "tags": [],
        "r": {"a": "y", "b": 1, "c": None},
    }
    pq.write_table(pa.Table.from_pylist([row, other]), path, row_group_size=1)
    assert table(path)["columns_blank"] == ["gone", "r.c"]


def test_items_of_lists(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    turn = [{"role": "user", "content": "x"}]
    row = {
        "pairs": [{"rank": 0, "completion": turn}],
        "odd": [{"role": "user", "content": 1}],
        "calls": [{"role": "assistant", "content": None}],
        "words": ["a"],
        "ids": [[1]],
    }
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "a.parquet")
    shapes = table(tmp_path / "a.parquet")["shapes"]
    assert shapes == {
        "pairs": {"list": 0},
        "pairs[]": {"record": 0},
        "pairs[].rank": {"number": 0},
        "pairs[].completion": {"messages": 0},
        "odd": {"contents": 0},
        "calls": {"messages": 0},
        "words": {"list": 0},
        "words[]": {"text": 0},
        "ids": {"list": 0},
        "ids[]": {"list": 0},
    }
