"""What a batch script says to Slurm in its comments; expected is what `sbatch -vvvv` of 22.05.8 prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from tuneport.checks.directives import read, words


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (" -N 2  --gpus-per-node=8\t-p main ", ["-N", "2", "--gpus-per-node=8", "-p", "main"]),
        ("""--comment="a # b" -J 'x y' -o"c"d""", ["--comment=a # b", "-J", "x y", "-ocd"]),
        (""" --comment='a"b'"c'd" """, ["--comment=a\"bc'd"]),
        (r""" --comment 'a \' b' \"c \#d e\\f""", ["--comment", "a ' b", '"c', "#d", r"e\f"]),
        (r" a\ b", ["a", "b"]),  # a backslash keeps no space
        (" --comment=a#b -N 2", ["--comment=a"]),
        (' -N 2 "" -n 3', ["-N", "2"]),
        (' -N 2 --comment "a b', ["-N", "2", "--comment"]),  # which it refuses
        ("# -N 2", []),
        ("", []),
    ],
)
def test_the_words_of_a_line(line: str, said: list[str]) -> None:
    assert words(line) == said


@pytest.mark.parametrize(
    ("lines", "options"),
    [
        (["#SBATCH -N 2 --gpus-per-node=8 # all"], {"nodes": "2", "gpus_per_node": "8"}),
        (["#SBATCH -N2 -n 16", "# more", "#SBATCH --ntasks 8"], {"nodes": "2", "ntasks": "8"}),
        (["#SBATCH -Hn3 -N4"], {"H": "", "ntasks": "3", "nodes": "4"}),
        (["#SBATCH -N", "", "#SBATCH 3"], {"nodes": "3"}),
        (["#SBATCH --exclusive -N 3"], {"exclusive": "", "nodes": "3"}),
        (["#SBATCH -N=2"], {"nodes": "=2"}),  # which it refuses
        (["#SBATCH --tasks-per-node=4"], {"ntasks_per_node": "4"}),
        (["#SBATCH -N 2 user -n 3"], {"nodes": "2"}),
        (["#SBATCH -N 2 -- -n 3"], {"nodes": "2"}),
        (["#SBATCH -N 2", "#SBATCH hetjob", "#SBATCH -N 3"], {"nodes": "2"}),
        (["  #SBATCH -N 2", "##SBATCH -N 3", "# SBATCH -N 4"], {}),
        (["#SBATCH -N 2", "cd /x", "#SBATCH -n 3"], {"nodes": "2"}),
    ],
)
def test_the_options_of_a_script(lines: list[str], options: dict[str, str], tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("\n".join(["#!/bin/sh", *lines, "srun train", ""]), "utf-8")
    assert read(str(script)) == (options, True)


def test_a_file_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    assert read("") == read("a\0b") == read(str(tmp_path)) == ({}, False)
    (tmp_path / "long.sh").write_bytes(b"#SBATCH " + b"-N 2 " * 100_000 + b"\xff")
    assert read(str(tmp_path / "long.sh")) == ({"nodes": "2"}, False)
