"""What our reading of a script makes of its words, held against bash itself.

Each script is run by a real bash with nothing in its environment and a `program` that only prints its words.
"""
# ruff: noqa: E501 - the scripts stand as people write them

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tuneport.shell.gaps import open_
from tuneport.shell.reader import Reading, read

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="no bash here")
PROGRAM = "#!/bin/sh\nfor word; do printf '%s\\036' \"$word\"; done\nprintf '\\035'\n"
SCRIPTS = Path(__file__).parent / "data" / "shell"


def by_bash(script: Path, arguments: list[str], home: Path) -> list[list[str]]:
    """The words of every run of `python`, as bash gives them to it."""
    assert BASH is not None
    bin_ = home / "bin"
    if not bin_.exists():
        bin_.mkdir(parents=True)
        (bin_ / "python").write_text(PROGRAM, "utf-8")
        (bin_ / "python").chmod(0o755)
    done = subprocess.run(
        [BASH, str(script), *arguments],
        env={"HOME": str(home), "PATH": f"{bin_}:/usr/bin:/bin"},
        cwd=script.parent,
        capture_output=True,
        timeout=30,
    )
    runs = done.stdout.decode("utf-8", "replace").split("\x1d")[:-1]
    return [run.split("\x1e")[:-1] for run in runs]


def by_us(script: Path, arguments: list[str], home: Path, monkeypatch: pytest.MonkeyPatch) -> Reading:
    monkeypatch.chdir(script.parent)
    return read(["bash", str(script), *arguments], {"HOME": str(home)})


def words(reading: Reading) -> list[list[str]]:
    return [["-m", one.module, *map(str, one.arguments)] for one in reading.programs]


# Each holds ways to write the same things that people use in launch scripts.
CASES = {
    "assignments": 'A=1 B="$A 2"\nC=\'$A\'; D=$A$B; E=${A}x\npython -m m "$A" "$B" "$C" $D "$E" x=$B',
    "continued": "python -m m \\\n  a=1 \\\n  b='c d' \\\n  \"e f\"=2 \\\n",
    "comment in a command": "python -m m a=1 \\\n# gone\n b=2\npython -m m # only this",
    "comment in an array": "A=(\n a=1 # one\n # two\n b=2\n)\npython -m m ${A[@]}",
    "defaults": 'A=${A:-1} B=${B-2}\n: "${C:=3}"\nD=; python -m m $A $B $C "${D:-4}" "${D-5}" "${A:+6}" ${Z:+7} "${Z+8}"',
    "nested defaults": 'A=${X:-${Y:-"a  b"}}\npython -m m $A "$A" ${X:-a  b} "${X:-a  b}" ${X:-"a  b"}',
    "arithmetic": "A=3 B=4\npython -m m $((A*B+1)) $(( A ** 2 )) $((B/A)) $((-7%3)) $((A>B?1:2)) $(((A+B)*2)) $((0x1f)) $((1<<4))",
    "arithmetic writes": "A=3; ((A++)); ((A+=4)); let B=A*2; C=$((A--)); python -m m $A $B $C; (( A > 100 )) || python -m m no",
    "trims": "P=/a/b/c.tar.gz\npython -m m ${P##*/} ${P%/*} ${P%%.*} ${P#*/} ${P%.gz} ${P%.zip} ${P/b/X} ${P//a/Y} ${P/%gz/Z} ${P/#?a/Q}",
    "cases": "N=Qwen/Qwen3-8B\npython -m m ${N,,} ${N^^} ${N,} ${N^} ${#N} ${N:0:4} ${N:5} ${N: -2} ${N:1:-3}",
    "arrays": 'A=(a "b c" d)\nA+=(e "f g")\npython -m m "${A[@]}" "${#A[@]}" ${A[1]} "${A[1]}" "${A[*]}" ${A[-1]} "${A[@]:1:2}" "${A[@]/#/x}"',
    "array elements": "A=(1 2); A[2]=3; A[0]+=x; i=1; python -m m ${A[@]} ${A[i]} ${A[$((i+1))]} \"${!A[@]}\"",
    "tables": "declare -A M=([a]=1 [b]='2 3'); M[c]=4; k=b\npython -m m \"${M[a]}\" \"${M[$k]}\" \"${M[c]}\" \"${#M[@]}\"",
    "empty arrays": 'A=()\npython -m m "${A[@]}" ${A[@]} x "pre${A[@]}post" ""',
    "parameters": 'python -m m "$1" "$#" "$@" ${@:2} "${2:-none}" "${9:-none}" "$*"\nshift\npython -m m "$@"\nset -- q r; python -m m $2 $#',
    "quotes": "python -m m 'a\"b' \"a'b\" a\\ b \"a\\\\b\\$c\" $'t\\tn' \"\" '' a\"\"b 'it'\\''s'",
    "split": "A='a  b\tc'; B=' d '\npython -m m $A x$B$A \"$A\" x$B y",
    "ifs": "IFS=,; A=a,b,,c; B=(1 2 3)\npython -m m $A \"${B[*]}\" \"$A\"",
    "braces": "python -m m a={b,c} {1..3} x{a,b}y{c,d} {a} {x..z} {01..03} '{a,b}' \"{a,b}\" a={} b={c:1} {a,{b,c}}",
    "hydra words": "python -m m 'a=[1,2]' b=[1,2] +c.d=3 ~e f={g:1} \"h='x,y'\" i=\\{a:1\\} 'j=${k}' l=\"['a','b']\"",
    "tilde": "A=~/x; python -m m ~ ~/a a=~/b $A \"~\" ",
    "substitution": 'A=$(echo "a  b"); B=`echo c`; D=$(dirname /x/y/z) E=$(basename /x/y.sh .sh)\npython -m m $A "$A" $B $D $E "$(printf "%s-%s" a b)" $(echo 1; echo 2)',
    "here-doc": "T=$(cat <<EOF\nline $((1+1))\n  it's \"two\"\nEOF\n)\nU=$(cat <<'EOF'\n$raw `x`\nEOF\n)\npython -m m \"$T\" \"$U\"",
    "here-doc read whole": "N=5\nread -r -d '' W <<EOF\n  m.x --n $N \\\\\n   --b\nEOF\npython -m $W --c \"$W\"",
    "here-doc to a program": "X=5\npython -m m a=$X <<EOF\nnothing\nEOF\npython -m m b",
    "if": 'A=npu\nif [ "$A" = gpu ]; then B=1; elif [[ $A == n* && -n "$A" ]]; then B=2; else B=3; fi\npython -m m $B',
    "tests": 'A=5\n[ $A -gt 3 ] && python -m m 1\n[ -z "$A" ] || python -m m 2\n[[ $A -lt 3 || $A == 5 ]] && python -m m 3\n'
    '[ ! "$A" = 6 ] && python -m m 4\n[ "$A" = 5 -a 1 -eq 1 ] && python -m m 5\n! [ $A = 5 ] || python -m m 6\ntest $A -ge 5 && python -m m 7',
    "case": 'for A in gpu npu tpu; do\ncase "$A" in\n gpu|cpu) B=1 ;;\n n*) B=2 ;;\n "t"?u) B=3;;\n *) B=4;;\nesac\npython -m m $A $B\ndone',
    "loops": "for i in 1 2 3; do\n [ $i = 2 ] && continue\n python -m m $i\ndone\ni=0\nwhile [ $i -lt 5 ]; do i=$((i+1)); [ $i -eq 4 ] && break; python -m m w$i; done\n"
    "for ((j=0; j<3; j+=2)); do python -m m c$j; done\nuntil (( i > 6 )); do ((i++)); done; python -m m $i",
    "arguments read in a loop": 'while [[ $# -gt 0 ]]; do case $1 in --n) N=$2; shift 2;; --) shift; break;; *) R+=("$1"); shift;; esac; done\npython -m m "$N" "${R[@]}" "$@"',
    "break outside a loop": "break\nfor i in 1 2; do for j in a b; do python -m m $i$j; [ $i = 2 ] && break 2; [ $j = a ] && continue 2; done; done\npython -m m end",
    "functions": 'f() { local a=$1; b=$2; shift; python -m m "$a" "$@"; return 0; python -m m never; }\na=out; f 1 2 3\npython -m m $a $b\nfunction g { f "$@" x; }\ng p q',
    "subshells": "A=1\n(A=2; python -m m $A)\n{ A=3; }\npython -m m $A | cat\necho x | { A=4; cat > /dev/null; }\npython -m m $A 2>&1 | tee /dev/null",
    "lists": "true && python -m m 1; false || python -m m 2; false && python -m m no; true || python -m m no\npython -m m 3 &\nwait",
    "exit": "python -m m 1\nif true; then exit 0; fi\npython -m m never",
    "redirects": "python -m m a > /dev/null2 2>/dev/null || true\npython -m m b 2>/dev/null c\n2>/dev/null python -m m d",
    "eval": "C='python -m m a \"b c\"'\neval \"$C\"\neval python -m m '$HOME'",
    "indirect": 'A=B; B=hi; python -m m "${!A}"',
    "export": "export A=1; export B; B=2; A+=3\npython -m m $A $B; unset A; python -m m \"${A-gone}\"",
    "exec": "exec python -m m last\npython -m m never",
    "script place": 'cd "$(dirname "$0")"\nD=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)\npython -m m "$D"; python -m m "$(basename "$PWD")" "${0##*/}"',
    "assignments on one line": "A=1 B=2\nC=3 D=4 # why\npython -m m $A $B $C $D\nA=9 python -m m $A\npython -m m $A",
    "strict": "set -euxo pipefail\nset -o errexit\npython -m m \"$#\" \"$@\"",
    "options-in-any-order": "set -eou pipefail\npython -m m \"$@\"\nset -oe pipefail x\npython -m m \"$@\"\nset -oo pipefail errexit y\n"
    "python -m m \"$@\"\nset -\npython -m m \"$@\"\nset - -x\npython -m m \"$@\"\nset -o nounset -- -e z\npython -m m \"$@\"",
    "read from an array": 'M=("a b" c); for m in "${M[@]}"; do python -m m "model=$m"; done',
    "printf": "printf -v X '%s' y\npython -m m \"$(printf '%s\\n' a b)\" \"$(printf 'x=%d' 3)\"",
    "plus equals": "O='a=1'; O+=' b=2'; python -m m $O \"$O\"",
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_words_are_those_of_bash(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "train.sh"
    script.write_text(CASES[name], "utf-8")
    arguments = ["--n", "one two", "three", "--", "four"]
    wanted = by_bash(script, arguments, tmp_path)
    reading = by_us(script, arguments, tmp_path, monkeypatch)
    assert wanted, "bash started nothing"
    found = words(reading)
    if name in ("redirects", "printf"):  # what a file takes, bash's stand-in cannot show; -v is not followed
        assert found
        return
    assert found == wanted
    assert not reading.findings


NAMES = st.sampled_from(["A", "B", "C"])
TEXTS = st.text("ab /.=,*[]{}'\"$\\-~1:", max_size=8)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


@st.composite
def scripts(draw: st.DrawFn) -> str:
    """A script of assignments and one command, of pieces that may meet in any way."""
    lines = [f"{name}={quoted(draw(TEXTS))}" for name in ("A", "B")]
    lines.append(f"C=({' '.join(quoted(draw(TEXTS)) for _ in range(draw(st.integers(0, 3))))})")
    for _ in range(draw(st.integers(0, 3))):
        lines.append(
            f"{draw(NAMES)}+={draw(st.sampled_from(['$A', '$B', 'x', chr(34) + '${C[*]}' + chr(34)]))}"
        )
    pieces = st.sampled_from(
        ["$A", '"$A"', "$B", '"$B"', '"${C[@]}"', "${C[@]}", '"${C[*]}"', "${A:-d}", '"${A:+e}"', "${#A}", "x", "'y z'",
         "${A%%a*}", "${A#*/}", '"${A##*[a.]}"', "${B//a/bb}", "${A:1:2}", "${A,,}", "${A^^}", "{p,q}", "\\ ", '""',
         "${C[0]}", "$((1+2))", "${B%\\*}", "\"${B%'*'}\"", "${A/b/$B}", "=", "[1,2]"]
    )  # fmt: skip
    made = ["".join(draw(st.lists(pieces, min_size=1, max_size=4))) for _ in range(draw(st.integers(1, 4)))]
    return "set -f\n" + "\n".join(lines) + "\npython -m m " + " ".join(made) + "\n"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=scripts())
def test_any_expansion_is_that_of_bash(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "train.sh"
    script.write_text(text, "utf-8")
    reading = by_us(script, [], tmp_path, monkeypatch)
    found = words(reading)
    if any(open_(word) for run in found for word in run):
        return  # said to be open: nothing is claimed
    assert found == by_bash(script, [], tmp_path)
