"""Would the release accept this command line? Asks TRL's own code. Runs in a trl runtime, on processors.

Reads {"cases": [{"id", "entry", "args", "files", "folder", "stage"}]} on stdin; writes a JSON line per case:
{"id", "accepted", "error", "frames", "logs", "weights", "values"}. Each case runs in a fork of a process
that has imported the framework, with `folder` as its working directory. Stages:

surface what the parser holds: default, choices and whether it is required, by key
values  what the parser makes of the arguments, before any check
words   the same of each of `lists`, with mappings taken out of text as the training arguments do it
parse   the script's parser and the checks of its dataclasses
train   the whole script
"""

import contextlib
import hashlib
import importlib
import io
import json
import os
import sys
import traceback
import warnings
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
TRAINERS = {
    "sft": "SFTTrainer",
    "dpo": "DPOTrainer",
    "kto": "KTOTrainer",
    "reward": "RewardTrainer",
    "grpo": "GRPOTrainer",
    "rloo": "RLOOTrainer",
    "distillation": "DistillationTrainer",
}
os.environ["TRANSFORMERS_VERBOSITY"] = "error"


def run(case):
    for name, text in case["files"].items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")
    script = importlib.import_module(case["entry"])
    parser = script.make_parser()
    if case["stage"] == "surface":
        return {"accepted": True, "error": "", "values": held(parser)}
    if case["stage"] in ("values", "words"):
        check = load if case["stage"] == "words" else lambda self: None
        parser.dataclass_types = [
            type(kind.__name__, (kind,), {"__post_init__": check}) for kind in parser.dataclass_types
        ]
    if case["stage"] == "words":
        return {"accepted": True, "error": "", "answers": [one_of(parser, words) for words in case["lists"]]}
    parsed = parser.parse_args_and_config(case["args"], fail_with_unknown_args=False)
    answer = {"accepted": True, "error": ""}
    if case["stage"] == "values":
        answer["values"] = values(parsed)
    elif case["stage"] == "train":
        answer.update(train(script, parsed))
    return answer


def values(parsed):
    return {name: plain(v) for part in parsed for name, v in vars(part).items()}


def one_of(parser, words):
    try:
        found = values(parser.parse_args_and_config(words, fail_with_unknown_args=False))
        return {
            name: value for name, value in found.items() if any(name in w.replace("-", "_") for w in words)
        }
    except (SystemExit, Exception) as error:
        return f"{type(error).__name__}: {error}"


def load(self):
    from transformers.training_args import _convert_str_dict

    for name in getattr(self, "_VALID_DICT_FIELDS", ()):
        value = getattr(self, name)
        if isinstance(value, str) and value.startswith("{"):
            setattr(self, name, _convert_str_dict(json.loads(value)))


def held(parser):
    found = {}
    for action in parser._actions:
        if action.dest == "help" or action.dest in found:
            continue
        default = action.default
        if isinstance(default, str):  # argparse reads a default that is text as if it had been typed
            default = parser._get_value(action, default)
        found[action.dest] = [plain(default), action.choices and list(action.choices), action.required]
    return found


def train(script, parsed):
    import trl

    kind = getattr(trl, TRAINERS[script.__name__.rpartition(".")[2]])
    seen = []
    ordinary = kind.train

    def watched(self, *args, **kwargs):
        seen.append(self)
        return ordinary(self, *args, **kwargs)

    kind.train = watched
    script.main(*parsed)
    digest = hashlib.sha256()
    for name, tensor in sorted(seen[0].model.state_dict().items()):
        digest.update(name.encode() + tensor.float().numpy().tobytes())
    kept = ("loss", "eval_loss", "grad_norm", "learning_rate")
    logs = [{k: entry[k] for k in kept if k in entry} for entry in seen[0].state.log_history]
    return {"logs": logs, "weights": digest.hexdigest()}


def plain(value):
    value = getattr(value, "value", value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | dict | None) else repr(value)


def judge(case):
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            return run(case)
    except SystemExit as end:
        last = [line for line in out.getvalue().splitlines() if line.strip()][-1:]
        return {"accepted": end.code in (0, None), "error": "".join(last), "frames": []}
    except BaseException as error:
        frames = [f"{frame.filename}:{frame.name}" for frame in traceback.extract_tb(error.__traceback__)]
        return {"accepted": False, "error": f"{type(error).__name__}: {error}", "frames": frames}


def in_fork(case):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        Path(case["folder"]).mkdir(parents=True, exist_ok=True)
        os.chdir(case["folder"])
        with os.fdopen(write, "w") as pipe:
            json.dump(judge(case), pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(text) if text else {"accepted": None, "error": f"the fork ended with {status}"}


def main():
    warnings.simplefilter("ignore")
    import torch
    import trl

    torch.set_num_threads(1)
    cases = json.load(sys.stdin)["cases"]
    for entry in {case["entry"].rpartition(".")[2] for case in cases}:
        assert getattr(trl, TRAINERS[entry])  # imported once, here, and shared by every fork
    for case in cases:
        print(json.dumps({"id": case["id"], **in_fork(case)}), flush=True)


main()
