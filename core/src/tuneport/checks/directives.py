"""What a batch script says to Slurm in the comments before its first command, read as sbatch reads them.

Source: Slurm 22.05.8 src/sbatch/opt.c, `_get_argument` and `_opt_batch_script`: the words of all lines
together are options as getopt_long has them. `sbatch -vvvv` prints the words that it found.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import dropwhile, takewhile
from pathlib import Path

_HEAD = 1 << 17
_MARK = "#SBATCH"
_ALONE = frozenset("HhOQRsuVvW")
"""Options of one letter that take no value, so that others may follow in the same word."""
_SAME = {"N": "nodes", "n": "ntasks", "G": "gpus", "tasks-per-node": "ntasks-per-node"}
_GPU = re.compile(r"gpu(:|$)")
_NEXT_PART = ("hetjob", "packjob")
_SPREAD = re.compile(r"\b(srun|mpirun|mpiexec|pdsh|ssh|clush)\b")


def read(file: str) -> tuple[dict[str, str], bool]:
    """(option -> its value, of two spellings of an option the long one, with `_` between words; whether
    anything in the script starts programs on other machines). Of a heterogeneous job the first part, which
    runs the script. No options where the file cannot be read."""
    try:
        text = Path(file).read_text("utf-8", errors="replace")[:_HEAD] if file else ""
    except (OSError, ValueError):
        return {}, False
    said: list[str] = []
    for line in takewhile(_uncommanded, text.split("\n")):
        if not line.startswith(_MARK):
            continue
        found = words(line.removeprefix(_MARK))
        if found and found[0] in _NEXT_PART:
            break
        said += found
    options = {_SAME.get(name, name).replace("-", "_"): value for name, value in _options(said)}
    return options, bool(_SPREAD.search(text))


def hardware(file: str) -> tuple[int, int]:
    """(machines, GPUs of each) that a script asks Slurm for; 0 where no number follows from what it says."""
    said, _ = read(file)
    nodes = count(said, "nodes")
    return nodes, gpus(said) or (count(said, "gpus") if nodes == 1 else 0)


def gpus(said: Mapping[str, str]) -> int:
    """GPUs of each machine by `--gpus-per-node` or `--gres`, 0 where neither counts them."""
    generic = (item.partition(":")[2] or "1" for item in said.get("gres", "").split(",") if _GPU.match(item))
    return count(said, "gpus_per_node") or sum(map(_number, generic))


def count(said: Mapping[str, str], name: str) -> int:
    """The number that an option says, 0 where it says none or a range."""
    return _number(said.get(name, ""))


def late(file: str) -> list[str]:
    """The options that sbatch does not read, because a command stands before them."""
    try:
        text = Path(file).read_text("utf-8", errors="replace")[:_HEAD] if file else ""
    except (OSError, ValueError):
        return []
    if "<<" in text:  # what another script is written from
        return []
    behind = dropwhile(_uncommanded, text.split("\n"))
    lines = [words(line.removeprefix(_MARK)) for line in behind if line.startswith(f"{_MARK} ")]
    return [found[0] for found in lines if found and found[0].startswith("-")]


def _number(value: str) -> int:
    """The number in `8` or `a100:8`."""
    number = value.rpartition(":")[2]
    return int(number) if number.isascii() and number.isdigit() else 0


def words(line: str) -> list[str]:
    """The words of a line without its `#SBATCH`. Quotes of both kinds group, a backslash keeps a quote, `#`
    ends the line also within a word, and so does an empty word. An open quote, which sbatch refuses, groups
    nothing."""
    found: list[str] = []
    word, quote, kept, begun = "", "", False, False
    for letter in line + " ":
        if letter.isspace() and not quote:
            if begun and not word:
                break
            found += [word] if begun else []
            word, kept, begun = "", False, False
            continue
        if letter == "#" and not quote and not kept:
            found += [word] if word else []
            break
        begun = True
        if kept:
            word, kept = word + letter, False
        elif letter == "\\":
            kept = True
        elif letter == quote:
            quote = ""
        elif not quote and letter in "\"'":
            quote = letter
        else:
            word += letter
    return found


def _options(said: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(name, value) of each option, up to the first word that is none: sbatch refuses it. So a word without a
    dash is the value of the option before it."""
    left = deque(said)

    def value() -> str:
        return left.popleft() if left and not left[0].startswith("-") else ""

    while left:
        word = left.popleft()
        if word.startswith("--"):
            name, equal, own = word[2:].partition("=")
            if not name:
                return
            yield name, own if equal else value()
        elif word.startswith("-"):
            letters = word[1:]
            while letters[:1] in _ALONE:
                yield letters[0], ""
                letters = letters[1:]
            if letters:
                yield letters[0], letters[1:] or value()
        else:
            return


def _uncommanded(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")
