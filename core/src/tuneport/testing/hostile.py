"""Input that nobody means well with: what our own tests and `tp plugin check` give to every reader of files.

A plugin never reads files itself, but what stands in them reaches its hooks.
"""

from __future__ import annotations

from tuneport.types import Json

_BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
_MERGES = "b: &b {" + ",".join(f"k{i}: 1" for i in range(9_000)) + "}\nl:\n" + "- {<<: *b}\n" * 9_000

YAML: list[tuple[str, str | bytes, str]] = [
    ("python tag", "a: !!python/object/apply:os.system ['touch it-ran']\n", "yaml-tag"),
    ("python module tag", "a: !!python/module:evil_module\n", "yaml-tag"),
    ("python name tag", "a: !!python/name:evil_module.x\n", "yaml-tag"),
    ("alias bomb", _BOMB, "yaml-too-many"),
    ("merge bomb", _MERGES, "yaml-too-many"),
    ("10 MB scalar", "a: " + "x" * (10 << 20), "file-too-large"),
    ("3 MB scalar", "a: " + "x" * (3 << 20), "yaml-too-large"),
    ("4 MB of keys", "".join(f"k{i}: {i}\n" for i in range(250_000)), "yaml-too-many"),
    ("deep flow", "a: " + "[" * 100_000, "yaml-syntax"),
    ("deep block", "".join(" " * i + f"k{i}:\n" for i in range(500)), "yaml-too-deep"),
    ("NUL", b"a: \x00\n", "yaml-syntax"),
    ("escaped NUL", 'a: "\\0"\n', "yaml-nul"),
    ("binary", bytes(range(256)) * 100, "file-encoding"),
    ("duplicate keys", "env: {A: x}\nenv: {B: y}\n", "yaml-duplicate-key"),
    ("two documents", "a: 1\n--- \nb: 2\n", "yaml-documents"),
    ("a list as key", "? [a]\n: b\n", "yaml-key"),
]
"""What, the content of a file that holds keys and values, and the code that is said of it."""

KEYS: list[tuple[str, str, str]] = [
    ("a component", "_component_: os.system\n_target_: evil_module.run\n", "key-unknown"),
    ("a reference to a file", "extra: {$ref: 'file:///etc/passwd'}\n", ""),
    ("interpolation", "out: {label: '${oc.env:HOME} ${evil_module:x} {output_dir}'}\n", ""),
    ("a format string", "out: {label: '{0.__class__.__mro__} %s %(x)s'}\n", ""),
    ("bidirectional text", 'out: {label: "\\u202Egnp.exe"}\n"a\\u2066b": 1\n', "key-unknown"),
    ("terminal escapes", '"\\e[2J\\e]0;x\\a": 1\n', "key-unknown"),
    ("a shell", "out: {label: '$(touch it-ran) `touch it-ran`; touch it-ran'}\n", ""),
    ("20000 unknown keys", "".join(f"unknown_key_{i}: {i}\n" for i in range(20_000)), "key-unknown"),
    ("a long key", f"{'k' * 900}: 1\n", "key-unknown"),
    ("a very long key", f"? {'k' * 200_000}\n: 1\n", "key-unknown"),
    ("infinity", "optim: {lr: .inf}\n", "key-not-finite"),
    ("a huge number", f"optim: {{lr: {'9' * 200_000}}}\ntrain: {{steps: {'9' * 300}}}\n", "key-type"),
    ("many parts", f"{'.'.join('abcdefgh' * 20)}: 1\n", "key-unknown"),
    ("dunder keys", "__class__: {__init__: {__globals__: 1}}\n", "key-unknown"),
]
"""What, sound YAML with ill intent, and the code that the made-up framework of our tests says of it."""

VALUES: list[Json] = [
    None, True, 0, -1, 0.5, 10**30, "", " ", "x", "-", "--help", "é\u202e\u2066", "a\nb", "${oc.env:HOME}",
    "{0.__class__}", "$(touch it-ran)", "../../etc/passwd", "x" * 5_000, [], ["x", "x"], [None], {}, {"": 1},
]  # fmt: skip
"""Values for every key: of the wrong type, out of range, or text that means something elsewhere."""

TEXTS = [
    "-",
    "--help",
    " ",
    "é\u202e",
    "a\nb",
    "${x}",
    "$(touch it-ran)",
    "../..",
    "/",
    "x" * 5_000,
    "/" * 5_000 + "x" * 300,
]
"""Texts for what a request names: a model, data, an image."""

PROFILES = ["cpu:1", "cpu:7", "h200:1", "h200:3", "h200:8", "h200:24", "h200:4096", "é:1"]
"""Hardware that a method may not fit on."""
