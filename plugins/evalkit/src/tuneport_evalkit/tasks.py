"""Whether a harness has the tasks that are asked for, by patterns, files, folders or local data.
No manifest: expressions match no pattern against a release's lists, and see no name that is close to another.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping

from tuneport.checks.rules import nested
from tuneport.text import closest
from tuneport.types import Context, Finding, Json

_LM_EVAL = "lm-eval 0.4.13 lm_eval/config/evaluate_config.py, EvaluatorConfig.process_tasks"
_UNSAFE = "lm-eval 0.4.13 lm_eval/evaluator.py, evaluate"
_EVALSCOPE = "evalscope 1.14.1 evalscope/api/registry.py, get_benchmark"
_MODELS = "lm-eval 0.4.13 lm_eval/models/__init__.py, MODEL_MAPPING"
_ALLOW = "HF_ALLOW_CODE_EVAL"
_CHATS = (
    "local-chat-completions",
    "openai-chat-completions",
    "azure-openai-chat-completions",
    "anthropic-completions",
    "anthropic-chat",
    "anthropic-chat-completions",
    "litellm",
    "litellm-chat",
    "litellm-chat-completions",
)
_META = "evalscope 1.14.1 evalscope/api/benchmark/meta.py, BenchmarkMeta._update"
_FIXED = ("evaluation_version", "few_shot_mode", "allowed_few_shot_nums", "supports_choice")
_LOCAL = ("general_qa", "general_mcq", "general_vqa", "general_vmcq", "general_fc")


def check(context: Context) -> Iterator[Finding]:
    """Findings about the tasks of a request."""
    lists = {name: frozenset(values) for name, values in context.release.lists.items()}
    if not lists:
        return
    if "tasks" in context.release.keys:
        yield from _lm_eval(context, lists)
    else:
        yield from _evalscope(context, lists)


def _listed(value: Json) -> list[str]:
    names = value if isinstance(value, list) else [value]
    return [part.strip() for name in names if isinstance(name, str) for part in name.split(",")]


def _at(context: Context, key: str) -> tuple[str, str, int]:
    origin = context.origins.get(key)
    return (key, origin.file, origin.line) if origin else (key, "", 0)


def _lm_eval(context: Context, lists: Mapping[str, frozenset[str]]) -> Iterator[Finding]:
    config = context.config
    engine = config.get("model")
    if isinstance(engine, str) and "models" in lists and engine not in lists["models"]:
        close = closest(engine, lists["models"])
        hint = (
            f"did you mean {close}?" if close else f"there are {', '.join(sorted(lists['models'])[:12])}, …"
        )
        message = f"`model` is {engine}, and lm-eval has no engine of that name"
        yield Finding("lm-eval-model", "error", message, hint, *_at(context, "model"), _MODELS)
    names = _listed(config.get("tasks"))
    here = bool(config.get("include_path"))
    for name in names:
        if here or name in lists["tasks"] or name.endswith(".yaml") or "/" in name:
            continue  # a folder may bring any name, and a file is one of its own
        if any(char in name for char in "*?[") and fnmatch.filter(lists["tasks"], name):
            continue
        close = closest(name, lists["tasks"])
        hint = f"did you mean {close}?" if close else "name the folder of your own tasks in include_path"
        message = f"`tasks` names {name}, and lm-eval has no task of that name"
        yield Finding("lm-eval-task", "error", message, hint, *_at(context, "tasks"), _LM_EVAL)
    yield from _unsafe(context, [name for name in names if name in lists["unsafe"]])
    yield from _likelihood(context, names, lists.get("likelihood", frozenset()))


def _likelihood(context: Context, names: list[str], known: frozenset[str]) -> Iterator[Finding]:
    """Tasks that compare the likelihood of given answers, where the engine tells none."""
    config = context.config
    found = [name for name in names if name in known or ("*" in name and fnmatch.filter(known, name))]
    if not found or config.get("config") or config.get("include_path"):
        return
    shown = " and ".join(dict.fromkeys(found))
    if config.get("model") in _CHATS:
        message = (
            f"{shown} compares how likely given answers are, which the engine {config['model']} does not tell"
        )
        hint = "take tasks whose answers are generated, or an engine such as local-completions"
        source = "lm-eval 0.4.13 lm_eval/models/openai_completions.py, LocalChatCompletion.loglikelihood"
        yield Finding("lm-eval-likelihood", "error", message, hint, *_at(context, "tasks"), source)
    arguments = nested(config).get("model_args")
    thinks = isinstance(arguments, dict) and arguments.get("enable_thinking") is True
    if thinks and config.get("model") in ("hf", "hf-auto", "huggingface", "vllm"):
        message = f"{shown} compares how likely given answers are, which does not go with enable_thinking"
        hint = "take tasks whose answers are generated, or leave enable_thinking out"
        source = "lm-eval 0.4.13 lm_eval/models/huggingface.py, HFLM.loglikelihood"
        yield Finding("lm-eval-likelihood", "error", message, hint, *_at(context, "tasks"), source)


def _unsafe(context: Context, names: list[str]) -> Iterator[Finding]:
    """Tasks that run what the model wrote."""
    if not names or context.config.get("predict_only"):
        return
    shown = " and ".join(dict.fromkeys(names))
    if not context.config.get("confirm_run_unsafe_code"):
        message = (
            f"{shown} runs programs that the model wrote, which has to be allowed by confirm_run_unsafe_code"
        )
        hint = f"set confirm_run_unsafe_code, and {_ALLOW}=1 in the job's environment"
        yield Finding("lm-eval-unsafe", "error", message, hint, "confirm_run_unsafe_code", source=_UNSAFE)
        return
    env = {**context.facts.get("env", {}), **context.request.env}
    scored = [name for name in names if name.startswith(("humaneval", "mbpp"))]
    if scored and str(env.get(_ALLOW, "")) != "1":
        message = (
            f"{scored[0]} is scored by code_eval, which runs nothing unless {_ALLOW} is 1 where the job runs"
        )
        hint = f"set {_ALLOW}=1 under env of job.yaml, or in the environment of the command"
        source = "lm-eval 0.4.13 lm_eval/tasks/humaneval/utils.py"
        yield Finding("lm-eval-code-eval", "warning", message, hint, f"env.{_ALLOW}", source=source)


def _evalscope(context: Context, lists: Mapping[str, frozenset[str]]) -> Iterator[Finding]:
    config = context.config
    if config.get("eval_backend") != "Native":
        return
    named = config.get("datasets")
    names = [
        name for name in (named if isinstance(named, list) else [named]) if isinstance(name, str) and name
    ]
    for name in names:
        if name not in lists["tasks"]:
            close = closest(name, lists["tasks"])
            hint = (
                "files of your own are asked as general_qa or general_mcq, with dataset_args.NAME.local_path"
            )
            message = f"`datasets` names {name}, and evalscope has no benchmark of that name"
            hint = f"did you mean {close}? {hint}" if close else hint
            hint = "write several names with blanks between them, without commas" if "," in name else hint
            yield Finding("evalscope-dataset", "error", message, hint, *_at(context, "datasets"), _EVALSCOPE)
    given = nested(context.config).get("dataset_args")
    arguments: Mapping[str, Json] = given if isinstance(given, dict) else {}
    for name in arguments:
        if name not in names:
            close = closest(name, names)
            hint = f"did you mean {close}?" if close else "add it to datasets, or delete it"
            message = f"dataset_args speaks of {name}, which is not among the datasets: nothing reads it"
            yield Finding(
                "evalscope-dataset-args", "warning", message, hint, *_at(context, "dataset_args"), _EVALSCOPE
            )
    for name in names:
        about = arguments.get(name)
        yield from _about(context, lists, name, about if isinstance(about, dict) else {})
        if name in _LOCAL and not (isinstance(about, dict) and about.get("local_path")):
            message = f"{name} asks questions of your own, and no file is named"
            hint = f"set dataset_args.{name}.local_path to the folder of its files"
            yield Finding(
                "evalscope-local-path", "warning", message, hint, *_at(context, "dataset_args"), _META
            )


def _about(
    context: Context, lists: Mapping[str, frozenset[str]], name: str, about: Mapping[str, Json]
) -> Iterator[Finding]:
    """What dataset_args says of one benchmark: what is refused, and what nobody reads."""
    place = _at(context, "dataset_args")
    known = lists.get("fields", frozenset()) | {"local_path"}
    for field in about:
        if field in _FIXED:
            message = f"dataset_args.{name} sets {field}, which is the benchmark's own to say"
            yield Finding("evalscope-dataset-field", "error", message, "delete it", *place, _META)
        elif "fields" in lists and field not in known:
            close = closest(field, known.difference(_FIXED))
            message = (
                f"dataset_args.{name} sets {field}, and no benchmark has such a setting: nothing reads it"
            )
            hint = f"did you mean {close}?" if close else "delete it"
            yield Finding("evalscope-dataset-field", "warning", message, hint, *place, _META)
    filters = about.get("filters")
    for word in filters if isinstance(filters, dict) else ():
        if word not in lists.get("filters", (word,)):
            close = closest(word, lists["filters"])
            message = f"dataset_args.{name} filters answers by {word}, which is no filter of the release"
            hint = f"did you mean {close}?" if close else f"there are {', '.join(sorted(lists['filters']))}"
            source = "evalscope 1.14.1 evalscope/api/filter/filter.py, build_filter_ensemble"
            yield Finding("evalscope-filter", "error", message, hint, *place, source)
