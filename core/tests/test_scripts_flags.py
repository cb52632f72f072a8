"""What the reader of scripts makes of the ways in which people add flags."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest
from tuneport.experiment.scripts import read_flags

IMPORT = "import argparse\nparser = argparse.ArgumentParser()\n"


def read(body: str, *, bare: bool = False) -> dict[str, Any]:
    return read_flags(dedent(body) if bare else IMPORT + dedent(body) + "\nargs = parser.parse_args()\n")


def flag(call: str) -> dict[str, Any]:
    facts = read(f"parser.add_argument({call})")
    assert facts["complete"], facts["undecided"]
    (found,) = facts["flags"].values()
    return dict(found)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("'--epochs', type=int, default=5", {"types": ["int"], "default": 5, "action": "store"}),
        ("'--lr', type=float, required=True", {"types": ["float"], "required": True, "default": None}),
        ("'--lr', type=float, default=1e-3 * 2", {"default": 2e-3}),
        ("'--mem', type=int, default=2 ** 20", {"default": 1048576}),
        ("'--tag'", {"types": ["str", "null"], "default": None}),
        ("'--tag', default=5", {"types": ["str"], "default": 5}),
        ("'--opt', choices=['adamw', 'sgd'], default='sgd'", {"choices": ["adamw", "sgd"], "types": ["str"]}),
        ("'--opt', choices=sorted({'b': 1, 'a': 2})", {"choices": ["a", "b"]}),
        ("'--amp', action='store_true'", {"types": ["bool"], "default": False, "action": "store_true"}),
        ("'--no-amp', action='store_false'", {"types": ["bool"], "default": False, "style": "--no-amp"}),
        (
            "'--amp', action=argparse.BooleanOptionalAction, default=True",
            {"types": ["bool"], "default": True, "action": "boolean_optional"},
        ),
        ("'--deep', type=bool, default=True", {"types": ["bool"], "converter": "bool"}),
        ("'--size', type=lambda text: int(text) * 2, default=3", {"types": ["any"], "default": 3}),
        ("'--lrs', type=float, nargs='+'", {"types": ["float", "list", "null"], "nargs": "+"}),
        ("'--pair', type=int, nargs=2, default=(1, 2)", {"types": ["int", "list"], "default": [1, 2]}),
        ("'--maybe', type=int, nargs='?', const=4", {"types": ["int", "null"]}),
        ("'--item', action='append'", {"types": ["str", "list", "null"], "action": "append"}),
        ("'-v', action='count', default=0", {"types": ["any"], "action": "count", "style": "-v"}),
        ("'--hidden', default=argparse.SUPPRESS", {"types": ["str"]}),
        ("'-b', '--batch-size', dest='bs', type=int", {"style": "--batch-size", "dest": "bs"}),
        ("'--when', action=Later", {"types": ["any"], "action": "custom"}),
        ("'--bound', type=float, default=float('inf')", {"types": ["float"]}),
    ],
)
def test_one_call(call: str, expected: dict[str, Any]) -> None:
    found = flag(call)
    assert {key: found.get(key) for key in expected} == expected


def test_what_is_not_known_is_left_out() -> None:
    assert "default" not in flag("'--n', type=int, default=os.cpu_count()")
    assert "default" not in flag("'--hidden', default=argparse.SUPPRESS")
    assert "choices" not in flag("'--n', choices=models.names()")
    assert flag("'--n', choices=models.names()")["computed"] == ["choices"]
    assert "computed" not in flag("'--n', choices=['a'], default=None")
    assert "default" not in flag("'--when', action=Later"), "the class may have one of its own"
    assert flag("'--when', action=Later, default=None")["default"] is None


def test_names_lines_and_spellings() -> None:
    facts = read(
        """
        parser.add_argument("--batch-size", type=int)
        parser.add_argument("--learning_rate", "--lr", type=float, required=True)
        parser.add_argument("--nproc-per-node", "--nproc_per_node")
        parser.add_argument("folder")
        """
    )
    flags = facts["flags"]
    assert list(flags) == ["batch_size", "learning_rate", "lr", "nproc_per_node"]
    assert (flags["batch_size"]["style"], flags["batch_size"]["line"]) == ("--batch-size", 4)
    assert not flags["learning_rate"]["required"], "the other spelling would do as well"
    assert flags["nproc_per_node"]["style"] == "--nproc-per-node"
    assert facts["positionals"] == ["folder"]
    assert facts["complete"]


def test_set_defaults_changes_a_default_by_destination() -> None:
    facts = read(
        """
        parser.add_argument("--lr", dest="rate", type=float, default=1.0)
        parser.set_defaults(rate=2.0, other=3)
        """
    )
    assert facts["flags"]["lr"]["default"] == 2.0


@pytest.mark.parametrize(
    "body",
    [
        "group = parser.add_argument_group('x')\ngroup.add_argument('--a')",
        "parser.add_argument_group('x').add_argument('--a')",
        "add = parser.add_argument\nadd('--a')",
        "def more(p):\n    p.add_argument('--a')\nmore(parser)",
        "def more(name, *, p):\n    p.add_argument('--' + name)\nmore('a', p=parser)",
        "def more(*a, **k):\n    parser.add_argument(*a, **k)\nmore('--a', type=int)",
        "for name in ('a',):\n    parser.add_argument('--' + name)",
        "for name, kind in [('a', int)]:\n    parser.add_argument(f'--{name}', type=kind)",
        "D = {'a': 1}\nfor k, v in D.items():\n    parser.add_argument(f'--{k}', type=type(v), default=v)",
        "for p in (parser,):\n    p.add_argument('--a')",
        "if torch.cuda.is_available():\n    parser.add_argument('--a')",
        "try:\n    import x\nexcept ImportError:\n    parser.add_argument('--a')",
        "options = {'type': int}\nparser.add_argument('--a', **options)",
        "with thing() as t:\n    parser.add_argument('--a')",
        "match kind:\n    case 1:\n        parser.add_argument('--a')",
    ],
)
def test_ways_to_add_a_flag_that_are_followed(body: str) -> None:
    facts = read(body)
    assert (list(facts["flags"]), facts["complete"]) == (["a"], True), facts["undecided"]


@pytest.mark.parametrize(
    "body",
    [
        "from argparse import ArgumentParser as P\ndef f():\n    p = P()\n    p.add_argument('--a')\n"
        "    return p\nf().parse_args()",
        "import argparse as ap\ndef main(argv=None):\n    p = ap.ArgumentParser()\n"
        "    p.add_argument('--a')\n    p.parse_args(argv)\nif __name__ == '__main__':\n    main()",
        "from argparse import ArgumentParser\n@record\ndef main():\n    p = ArgumentParser()\n"
        "    p.add_argument('--a')\n    return p.parse_args()\nspawn(main)",
        "import argparse\nclass T:\n    def __init__(self):\n        self.p = argparse.ArgumentParser()\n"
        "        self.add()\n        self.p.parse_args()\n    def add(self):\n"
        "        self.p.add_argument('--a')\nT()",
        "import argparse\nclass P(argparse.ArgumentParser):\n    def __init__(self):\n"
        "        super().__init__()\n        self.add_argument('--a')\nP().parse_args()",
        "import argparse\nbase = argparse.ArgumentParser(add_help=False)\nbase.add_argument('--a')\n"
        "argparse.ArgumentParser(parents=[base]).parse_args()",
        "import argparse\ndef make():\n    p = argparse.ArgumentParser()\n"
        "    return p, p.add_argument_group()\np, g = make()\ng.add_argument('--a')\np.parse_args()",
    ],
)
def test_shapes_of_scripts_that_are_followed(body: str) -> None:
    facts = read(body, bare=True)
    assert (list(facts["flags"]), facts["complete"]) == (["a"], True), facts["undecided"]


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("for f in fields(Config):\n    parser.add_argument('--' + f.name)", 4),
        ("lib.add_flags(parser)", 3),
        ("names = ['a']\nextend(names)\nfor n in names:\n    parser.add_argument('--' + n)", 6),
        ("names = ['a']\nnames.append(x)\nfor n in names:\n    parser.add_argument('--' + n)", 6),
        (
            "names = ['a']\nalias = names\nalias += more\nfor n in names:\n    parser.add_argument('--' + n)",
            7,
        ),
        ("n = '--a' if c else '--b'\nparser.add_argument(n)", 4),
        ("if c:\n    n = '--a'\nelse:\n    n = '--b'\nparser.add_argument(n)", 7),
        ("n = 'a'\nfor i in rest():\n    n = i\nparser.add_argument('--' + n)", 6),
        ("sub = parser.add_subparsers()", 3),
        ("other.add_argument('--b')", 3),
        ("parser = argparse.ArgumentParser(parents=[other()])", 3),
        ("parser = argparse.ArgumentParser(prefix_chars='+')", 3),
        ("getattr(parser, kind)('--a')", 3),
        ("partial(parser.add_argument, type=int)('--a')", 3),
        ("parser.parse_args(['--a', '1'])", 3),
        ("lib.Trainer.add_flags([parser])", 3),
        ("class P(argparse.ArgumentParser):\n    def add_argument(self, *a): ...", 4),
        ("parser.add_argument(*flags)", 3),
    ],
)
def test_what_cannot_be_followed_is_said_with_its_line(body: str, line: int) -> None:
    facts = read(body)
    assert not facts["complete"]
    assert any(text.startswith(f"line {line}: ") for text in facts["undecided"]), facts["undecided"]


@pytest.mark.parametrize(
    "body",
    [
        "import sys\nprint(sys.argv)",
        "import click\n@click.command()\n@click.option('--a')\ndef main(a): ...",
        "from transformers import HfArgumentParser\nparser = HfArgumentParser(A)\nparser.parse_args()",
        "from configargparse import ArgumentParser as P\np = P()\np.add_argument('--a')\np.parse_args()",
        "from common import parser\nparser.add_argument('--a')\nargs = parser.parse_args()",
        "",
    ],
)
def test_scripts_without_a_parser_of_their_own_are_undecided(body: str) -> None:
    facts = read(body, bare=True)
    assert facts["ok"]
    assert not facts["complete"]
    assert facts["undecided"]


def test_strictness_and_abbreviations() -> None:
    assert read("")["strict"]
    assert read("")["abbrev"]
    loose = read(
        "import argparse\np = argparse.ArgumentParser(allow_abbrev=False)\nargs, rest = p.parse_known_args()",
        bare=True,
    )
    assert (loose["strict"], loose["abbrev"], loose["complete"]) == (False, False, True)


def test_a_syntax_error_is_reported_with_its_line_and_the_python_that_read_it() -> None:
    facts = read_flags("import argparse\n\ndef f(:\n    pass\n")
    assert not facts["ok"]
    assert not facts["complete"]
    assert facts["error_line"] == 3
    assert "Python 3." in facts["error"]
