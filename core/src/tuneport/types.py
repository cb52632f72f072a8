"""The plain data that crosses the plugin boundary: standard library only, immutable, no behaviour.

What is made by the thousand, or on the way of every command, is a named tuple: a frozen dataclass takes
seven times as long to define and ten times as long to make.

Everything a framework hook receives or returns is built from these classes, so a plugin can be
written and tested without importing any other part of Tuneport.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

Severity: TypeAlias = Literal["error", "warning", "note"]
Json: TypeAlias = Any
"""null, bool, int, float, str, list or string-keyed dict, nested."""

EMPTY: Mapping[str, Any] = MappingProxyType({})
"""The default of a mapping. It can be shared, as nobody can change it."""

REFS = (
    "output_dir",  # where the trainer writes checkpoints and everything it wants to keep
    "log_dir",  # where TensorBoard event files go
    "work_dir",  # the staged copy of the experiment folder; also the working directory
    "report_file",  # where tuneport.report appends its JSON lines
    "job_id",
    "attempt",
    "python",  # the interpreter of the chosen runtime
    "head_addr",
    "head_port",
    "node_rank",
    "dataset",  # root folder of the dataset version called `name`, as owner/name@version
    "run_output",  # output_dir of the job called `name`
)
"""Everything a plan may leave open until a fleet places it."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A value that only the fleet knows. `prefix` and `suffix` stand around what the fleet resolves.

    `plain`: the resolved text stands inside a word that was quoted before it was known, so a fleet must
    refuse text that would need quoting there (see `fleets/refs.py`).
    """

    ref: str
    suffix: str = ""
    name: str = ""
    prefix: str = ""
    plain: bool = False


Value: TypeAlias = str | Ref


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing worth saying about a request.

    error: the release would fail, or the request contradicts itself. warning: it would run, but not
    do what was asked. note: worth knowing. `code` is stable and kebab-case; `key` names the native
    key, parameter, flag or file at fault; `source` is where upstream decides (file and symbol).
    """

    code: str
    severity: Severity
    message: str
    hint: str = ""
    key: str = ""
    file: str = ""
    line: int = 0
    source: str = ""


class Origin(NamedTuple):
    """Which layer set a key, and where its author can find it."""

    layer: str
    file: str = ""
    line: int = 0


class Pool(NamedTuple):
    """`nodes` machines of `gpus_per_node` accelerators each; series `cpu` has processes instead."""

    name: str
    series: str
    nodes: int
    gpus_per_node: int


class Topology(NamedTuple):
    """The hardware of a request. `roles` maps each role of the method to a pool's name."""

    pools: tuple[Pool, ...]
    roles: Mapping[str, str] = EMPTY

    @property
    def primary(self) -> Pool:
        return self.pools[0]


class Location(NamedTuple):
    """A model or data location. `kind`: hub (a name the framework looks up itself), path (absolute,
    on the machine that runs), experiment (relative to the experiment folder), dataset (`value` is a
    path inside the dataset version `owner`), run (`value` is a path inside the output of the job `owner`).
    `others` are further files of the same data."""

    kind: Literal["hub", "path", "experiment", "dataset", "run"]
    value: str
    owner: str = ""
    others: tuple["Location", ...] = ()


class Request(NamedTuple):
    """What was asked for, after flags, job.yaml, project and site have been merged. `native` is that
    section of job.yaml: what nested keys cannot say (`entry`, `config`, `groups`, `append`, `delete`).
    `own_environment`: without an image the fleet runs jobs in the environment that `tp` runs in, where the
    release allows that; `digest_only`: it takes images by digest alone."""

    model: Location | None = None
    train_data: Location | None = None
    validation_data: Location | None = None
    params: Mapping[str, Json] = EMPTY
    image: str = ""
    fleet: str = "local"
    env: Mapping[str, str] = EMPTY
    native: Mapping[str, Json] = EMPTY
    own_environment: bool = True
    digest_only: bool = False


class Key(NamedTuple):
    """One configuration key of a release. `types` is a subset of bool, int, float, str, list, dict,
    null, any; `inferred` types are those of the default alone. `default` is meaningless where `required`.
    `add` marks a key that the release takes but does not hold until it is added (Hydra's `+key`).
    `source` is file:line in the artefact; `choices_from` where it checks the choices, if elsewhere. `flag` is
    how a command line says it, in argparse's words: `style` (the option), `action`, `nargs`, `dest`, and
    `converter` where that is `bool`; for a parser made from dataclasses `reads`, `items` and `bare`, where
    `types` does not show them."""

    name: str
    types: tuple[str, ...]
    default: Json = None
    required: bool = False
    choices: tuple[Json, ...] = ()
    source: str = ""
    add: bool = False
    inferred: bool = False
    choices_from: str = ""
    flag: Mapping[str, Json] = EMPTY


class Composed(NamedTuple):
    """How a release that composes its configuration came to these keys. `dialect` reads and writes it;
    `chosen` are the group choices that were asked for, `groups` all that took part, `options` what each
    group takes; `classes` maps the dotted name of a typed branch to the class that is built from it;
    `free` are branches that take any key; `names`, joined by blanks, are all that the release's code could
    read a setting by; `built` the last names of branches that an object is really made of, None for all.
    `open`: a file may hold keys that no file of the release has. `unread` are names of keys that this
    program's own code has nowhere; `resolvers` what the release registers beside OmegaConf's own: name ->
    operation. `needed` are keys that a class asks for, with where it does; `closed` branches whose class
    takes no others."""

    dialect: str
    chosen: Mapping[str, str] = EMPTY
    groups: Mapping[str, str] = EMPTY
    options: Mapping[str, tuple[str, ...]] = EMPTY
    classes: Mapping[str, str] = EMPTY
    free: frozenset[str] = frozenset()
    names: str = ""
    built: tuple[str, ...] | None = None
    open: bool = False
    unread: frozenset[str] = frozenset()
    resolvers: Mapping[str, str] = EMPTY
    needed: Mapping[str, str] = EMPTY
    closed: frozenset[str] = frozenset()


class Release(NamedTuple):
    """One pinned version of a framework. `spec` is its manifest, `keys` the surface of the entry
    that the method uses (empty where the release publishes none); `lists` are names that its code has
    registered, such as tasks."""

    framework: str
    version: str
    spec: Mapping[str, Json]
    keys: Mapping[str, Key]
    composed: Composed | None = None
    lists: Mapping[str, Sequence[str]] = EMPTY


class Param(NamedTuple):
    """A canonical parameter as one method offers it. `schema` is JSON Schema; `keys` the native keys
    it writes; `values` translates a value before it is written (by its JSON text). `times` and `over` name
    the parameters, or `devices`, that turn its unit into the key's; `follows` the one whose value it takes
    unless set."""

    name: str
    schema: Mapping[str, Json]
    keys: tuple[str, ...]
    values: Mapping[str, Json] = EMPTY
    has_default: bool = False
    default: Json = None
    times: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    follows: str = ""


class Method(NamedTuple):
    """What a person picks, resolved for one release: mixins merged, gates applied."""

    id: str
    framework: str
    title: str
    spec: Mapping[str, Json]
    params: Mapping[str, Param]
    digest: str


class Bindings(NamedTuple):
    """Native keys to write, each a literal or a Ref, and where to say they came from."""

    values: Mapping[str, Json]
    origin: Origin


class Context(NamedTuple):
    """Everything a hook may look at. Hooks are pure: no I/O, clock, randomness or network.

    `config` is the effective configuration so far: native key -> value (a literal, or a Ref where a
    platform layer wrote one), defaults included for `launch`; `own` holds just the keys that a layer
    above the release's defaults set. `facts` is what is known about data, model and environment.
    `files` maps each file of the experiment folder to its SHA-256. `linted` marks an existing command
    line: there is no experiment, and it keeps none of a method's promises.
    """

    method: Method
    release: Release
    request: Request
    topology: Topology
    facts: Mapping[str, Json]
    config: Mapping[str, Json]
    own: Mapping[str, Json]
    origins: Mapping[str, Origin]
    files: Mapping[str, str]
    linted: bool = False


class FileSpec(NamedTuple):
    """A file to write before the command starts. `content` is text for format `text`, otherwise a
    tree whose leaves may be Refs; it is serialised after they are resolved, so nothing needs quoting."""

    format: Literal["text", "json", "yaml"]
    content: Json


@dataclass(frozen=True, slots=True)
class Command:
    """What runs on each node of a pool for one role. `files` are relative to the working directory."""

    role: str
    argv: tuple[Value, ...]
    env: Mapping[str, Value] = field(default_factory=dict)
    files: Mapping[str, FileSpec] = field(default_factory=dict)
    pool: str = "main"


class RuntimeNeed(NamedTuple):
    """What a release runs in. `id` names the release's runtime, not its delivery form; `variant` is
    the venv variant that fits the hardware; `image` overrides the registry of images; `host` means
    the user's own environment, which only a method that declares it may ask for."""

    id: str
    variant: str = ""
    image: str = ""
    host: bool = False


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """The compiled launch. Its canonical JSON is what the digest covers, before any Ref is resolved."""

    method: str
    release: str
    runtime: RuntimeNeed
    pools: tuple[Pool, ...]
    commands: tuple[Command, ...]
    config: Mapping[str, Json] = field(default_factory=dict)
    lifecycle: Mapping[str, Json] = field(default_factory=dict)
    source: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    mounts: Sequence[str] = ()
    action: Literal["train", "export", "eval"] = "train"
