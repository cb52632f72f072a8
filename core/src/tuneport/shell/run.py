"""Goes through the statements of a script, following what can be decided and both ways where it cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from tuneport.shell import builtin, conditions, patterns, scan
from tuneport.shell.assignments import Assignments
from tuneport.shell.complaints import override_alone, override_like
from tuneport.shell.gaps import blank, open_
from tuneport.shell.scan import Unended
from tuneport.shell.state import State
from tuneport.shell.syntax import Node, parse
from tuneport.types import Finding

MAX_STRAY = 50
Status = bool | None
"""Whether a command succeeded; None where only running it would tell."""


class Exit(Exception):
    """The script ends."""


class Return(Exception):
    """A function, or a sourced file, ends."""


class Break(Exception):
    """A loop ends, or with `again` goes on with its next turn."""

    def __init__(self, levels: int, again: bool) -> None:
        super().__init__()
        self.levels, self.again = levels, again


@dataclass(frozen=True, slots=True)
class Started:
    """A command that the script starts; `env` is what it exports to it."""

    words: tuple[str, ...]
    env: dict[str, str]
    file: str
    line: int
    cwd: str


@dataclass(slots=True)
class Record:
    """What was met on the way. `skipped` are lines that could not be read, `missing` files not found."""

    started: list[Started] = field(default_factory=list)
    skipped: list[tuple[str, int]] = field(default_factory=list)
    missing: list[tuple[str, str, int]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)  # of the scripts


class Runner(Assignments):
    """Follows one script. What it starts is added to `record`."""

    def __init__(self, state: State, record: Record) -> None:
        super().__init__(state, self.capture)
        self.record = record
        self.out: list[str] | None = None  # what is printed, while somebody listens
        self.loops = 0  # how many are gone through

    def script(self, source: bytes) -> Status:
        """Go through a whole text in the present state.

        Raises:
            Invalid: it cannot be read. Exit: it ends early.
        """
        self.state.common.budget.enter()
        root = parse(source, self.state.file)
        before = self.source, self.offset
        self.source, self.offset = source, self.state.line
        try:
            return self._all(root.children)
        finally:
            self.source, self.offset = before
            self.state.common.budget.leave()

    def nested(self, text: str) -> Status:
        """Go through a text that stands inside the script, at its present line."""
        line, self.state.line = self.state.line, max(self.state.line - 1, 0)
        try:
            return self.script(text.encode("utf-8", "replace"))
        finally:
            self.state.line = line

    def capture(self, text: str) -> str:
        """What the inside of `$(…)` prints."""
        before, listener, line = self.state, self.out, self.state.line
        self.state, self.out = before.copy(), []
        try:
            self.nested(text)
        except (Exit, Return, Break):
            pass
        finally:
            printed = "".join(self.out)
            self.state, self.out = before, listener
            self.state.line = line
        return self.state.common.budget.spend(printed.rstrip("\n"))

    def fork(self, ways: Sequence[Callable[[], object]], why: str, variable: str) -> None:
        """Go every way, each in a state of its own, and go on with what they have in common."""
        before, printed = self.state, None if self.out is None else len(self.out)
        ends: list[State] = []
        for way in ways:
            self.state = before.copy()
            try:
                way()
            except Exit:
                continue
            except (Return, Break):
                pass  # what it changed may have been changed: that is all that can be kept of it
            finally:
                end, self.state = self.state, before
            ends.append(end)
        if self.out is not None and printed is not None and self.out[printed:]:
            self.out[printed:] = [before.gap(why, variable)]
        if not ends:
            raise Exit
        before.merge(ends, why, variable)

    def subshell(self, way: Callable[[], Status]) -> Status:
        """Go a way that leaves nothing behind."""
        before = self.state
        self.state = before.copy()
        try:
            return way()
        except (Exit, Return, Break):
            return None
        finally:
            self.state = before

    # statements

    def _all(self, nodes: Iterable[Node]) -> Status:
        status: Status = True
        for node in nodes:
            if node.is_named and node.type != "comment":
                status = self.node(node)
        return status

    def node(self, node: Node) -> Status:
        """One statement."""
        budget = self.state.common.budget
        budget.step()
        budget.enter()
        self.state.line = self.line(node)
        try:
            handler = _HANDLERS.get(node.type)
            if handler is None or node.is_missing:
                return self._unread(node)
            return handler(self, node)
        except Unended:
            return self._unread(node)
        finally:
            budget.leave()

    def _unread(self, node: Node) -> Status:
        self.record.skipped.append((self.state.file, self.line(node)))
        for child in node.children:
            if child.is_named and child.type in _HANDLERS and child.type != "ERROR":
                self.node(child)
        return None

    def _block(self, node: Node) -> Status:
        if node.children and node.children[0].type == "((":
            return self._arithmetic(self.text(node.start_byte + 2, node.end_byte - 2))
        return self._all(node.children)

    def _arithmetic(self, text: str) -> Status:
        value = self.expander.arithmetic(text)
        if open_(value):
            self.expander.touched = self.state.common.gaps.variable([value])
            return None
        return int(value) != 0

    def _subshell(self, node: Node) -> Status:
        return self.subshell(lambda: self._all(node.children))

    def _pipeline(self, node: Node) -> Status:
        parts = [child for child in node.children if child.is_named and child.type != "comment"]
        listener = self.out
        self.out = None if listener is None else []
        for part in parts:
            self.subshell(lambda part=part: self.node(part))  # type: ignore[misc]
        if listener is not None:
            listener.append(self.state.gap("a pipeline prints what only running it tells"))
        self.out = listener
        return None

    def _list(self, node: Node) -> Status:
        left, sign, *rest = (child for child in node.children if child.type != "comment")
        right = rest[-1] if rest else None
        status = self.node(left)
        if right is None or sign.type not in ("&&", "||"):
            return None if right is None else self.node(right)
        wanted = sign.type == "&&"
        if status is None:
            why, variable = self._reason(left, "command")
            self.fork([lambda: self.node(right), lambda: None], why, variable)
            return None
        return self.node(right) if status == wanted else status

    def _reason(self, node: Node, what: str) -> tuple[str, str]:
        """(why it is not known which way the script goes, the variable that would settle it)."""
        variable, self.expander.touched = self.expander.touched, ""
        on = f"{variable}, which the script does not set" if variable else "what only running it tells"
        return f"line {self.line(node)}: the {what} depends on {on}", variable

    def _negated(self, node: Node) -> Status:
        status = self._all(node.children)
        return None if status is None else not status

    def _test(self, node: Node) -> Status:
        text = self.text(node.children[0].end_byte, node.children[-1].start_byte)
        if node.children[0].type == "((":
            return self._arithmetic(text)
        if node.children[0].type == "[[":
            return conditions.double(text, self.expander, self.state)
        return conditions.single([raw for _, raw in scan.split(text)], self.expander, self.state)

    def _if(self, node: Node) -> Status:
        condition: list[Node] = []
        body: list[Node] = []
        others: list[Node] = []
        here = condition
        for child in node.children:
            if child.type == "then":
                here = body
            elif child.type in ("elif_clause", "else_clause"):
                others.append(child)
            else:
                here.append(child)
        return self._chosen(node, condition, body, others)

    def _chosen(self, node: Node, condition: list[Node], body: list[Node], others: list[Node]) -> Status:
        status = self._all(condition)
        if status:
            return self._all(body)
        if status is False:
            return self._otherwise(others)
        why, variable = self._reason(node, "condition")
        self.fork([lambda: self._all(body), lambda: self._otherwise(others)], why, variable)
        return None

    def _otherwise(self, others: list[Node]) -> Status:
        if not others:
            return True
        first, *rest = others
        if first.type == "else_clause":
            return self._all(first.children)
        at = next((i for i, child in enumerate(first.children) if child.type == "then"), 0)
        return self._chosen(first, first.children[1:at], first.children[at + 1 :], rest)

    def _case(self, node: Node) -> Status:
        subject = self.expander.single(self.raw(node.child_by_field_name("value")))
        self.expander.touched = self.state.common.gaps.variable([subject])
        items = [child for child in node.children if child.type == "case_item"]
        decided = not open_(subject)
        bodies: list[list[Node]] = []
        for item in items:
            at = next(i for i, child in enumerate(item.children) if child.type == ")")
            found = self._case_matches(subject, item.children[:at]) if decided else None
            falls = item.children[-1].type in (";&", ";;&")
            if found and not falls and not bodies:
                return self._all(item.children[at + 1 :])
            if found is not False:
                bodies.append(item.children[at + 1 :])
                decided = decided and found is not None and not falls
        if not bodies:
            return True
        why, variable = self._reason(node, "choice")
        ways = [lambda body=body: self._all(body) for body in bodies]
        self.fork([*ways, lambda: None], why, variable)
        return None

    def _case_matches(self, subject: str, nodes: list[Node]) -> Status:
        text = self.text(nodes[0].start_byte, nodes[-1].end_byte).lstrip("(").strip()
        unsure = False
        for raw in patterns.options(text):
            pattern = self.expander.pattern(raw.strip())
            try:
                if not open_(pattern) and patterns.matches(subject, pattern):
                    return None if unsure else True
            except patterns.TooHard:
                unsure = True
            unsure = unsure or open_(pattern)
        return None if unsure else False

    # loops

    def _for(self, node: Node) -> Status:
        variable = node.child_by_field_name("variable")
        body = node.child_by_field_name("body")
        name = self.text(variable.start_byte, variable.end_byte)
        at = next((i for i, child in enumerate(node.children) if child.type == "in"), -1)
        given = [] if at < 0 else [c for c in node.children[at + 1 :] if c.is_named and c != body]
        items = self.state.params if at < 0 else self.fields(given)
        if node.children[0].type == "select":
            items = [self.state.gap("it is chosen while the script runs")]
        for item in list(items):
            self.state.common.budget.step()
            self.state.variables[name] = item
            if blank(item):
                self.expander.touched = self.state.common.gaps.variable([item])
                why, cause = self._reason(node, "loop")
                self.fork([lambda: self._body(body), lambda: None], why, cause)
            elif not self._turn(body):
                break
        return True

    def _body(self, body: Node) -> Status:
        self.loops += 1
        try:
            return self._all(body.children)
        finally:
            self.loops -= 1

    def _turn(self, body: Node) -> bool:
        """One turn of a loop; whether there may be another."""
        try:
            self._body(body)
        except Break as stop:
            if stop.levels > 1:
                raise Break(stop.levels - 1, stop.again) from None
            return stop.again
        return True

    def _while(self, node: Node) -> Status:
        body = node.child_by_field_name("body")
        wanted = node.children[0].type == "while"
        condition = [child for child in node.children[1:] if child != body]
        while True:
            self.state.common.budget.step()
            status = self._all(condition)
            if status is None:
                why, variable = self._reason(node, "loop")
                self.fork([lambda: self._body(body), lambda: None], why, variable)
                return None
            if status != wanted or not self._turn(body):
                return True

    def _c_for(self, node: Node) -> Status:
        body = node.child_by_field_name("body")
        text = self.text(node.start_byte, body.start_byte)
        start = text.index("((") + 2
        parts = text[start : scan.end_of_paren(text, start) - 1].rstrip(")").split(";")
        first, condition, step = [*parts, "", ""][:3]
        self.expander.arithmetic(first)
        while True:
            self.state.common.budget.step()
            status = self._arithmetic(condition) if condition.strip() else True
            if status is None:
                why, variable = self._reason(node, "loop")
                self.fork([lambda: self._body(body), lambda: None], why, variable)
                return None
            if not status or not self._turn(body):
                return True
            self.expander.arithmetic(step)

    # commands

    def _assignments(self, node: Node) -> Status:
        return self._all(node.children)

    def _function(self, node: Node) -> Status:
        name = self.raw(node.child_by_field_name("name"))
        self.state.functions[name] = (node.child_by_field_name("body"), self.source, self.state.file)
        return True

    def _redirected(self, node: Node) -> Status:
        body = node.child_by_field_name("body")
        listener = self.out
        extra: list[Node] = []
        text = ""
        after: list[Node] = []
        for child in node.children:
            if child.type == "file_redirect":
                places = child.children_by_field_name("destination")
                extra += places[1:]
                first = child.children[0]
                if first.type in (">", ">>", "&>", ">|", ">&") and self.out is not None:
                    self.out = []  # it goes into a file or to another stream
            elif child.type == "heredoc_redirect":
                inner = [c for c in child.children if c.type == "heredoc_body"]
                text = self._heredoc(child, inner)
                after += [c for c in child.children if c.type in _HANDLERS]
                extra += child.children_by_field_name("argument")
                redirected = any(c.type == "file_redirect" for c in child.children)
                if redirected and self.out is not None:
                    self.out = []
        try:
            if body is None:
                return True
            if body.type == "command":
                return self.command(body, extra, text)
            return self.node(body)
        finally:
            self.out = listener
            for following in after:
                self.node(following)

    def _heredoc(self, node: Node, bodies: list[Node]) -> str:
        start = next((self.raw(c) for c in node.children if c.type == "heredoc_start"), "")
        text = "".join(self.raw(body) for body in bodies)
        if any(c.type == "<<-" for c in node.children):
            text = "\n".join(line.lstrip("\t") for line in text.split("\n"))
        if start[:1] in ("'", '"', "\\"):
            return text
        return "".join(piece.text for piece in self.expander.pieces(text, quoted=True))

    def command(self, node: Node, extra: Sequence[Node] = (), heredoc: str = "") -> Status:
        """A simple command."""
        own: dict[str, str] = {}
        nodes: list[Node] = []
        before: list[Node] = []
        for child in node.children:
            if before and not nodes and self._new_line(before[-1], child):
                # The grammar takes `A=1 B=2` and the line after it for one command.
                for assignment in before:
                    self.note(self.assign(assignment))
                before = []
            if child.type == "variable_assignment" and not nodes:
                before.append(child)
            elif child.type in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
                nodes += child.children_by_field_name("destination")[1:]
            elif child.is_named and child.type != "comment":
                nodes.append(child)
        self.state.line = line = self.line(nodes[0] if nodes else node)
        for assignment in before:
            self.assign(assignment, own)
        if self.text(node.start_byte, node.start_byte + 2) == "[ ":
            raw = [text for _, text in self.raws([*nodes, *extra])]
            return conditions.single(raw[1:-1], self.expander, self.state)
        fields = self.fields([*nodes, *extra])
        self.state.line = line
        if not fields:
            return True
        if fields[0] not in self.state.functions:
            self._stray(fields[0], self.line(before[0] if before else nodes[0] if nodes else node))
        return self.perform(fields, own, heredoc)

    def _stray(self, first: str, line: int) -> None:
        """Say so where a command was meant to be part of the one before it."""
        if not override_like(first) or len(self.record.findings) > MAX_STRAY:
            return
        text = self.source.decode("utf-8", "replace")
        found = override_alone(first, text, line - self.offset, self.state.file)
        if found is not None:
            self.record.findings.append(replace(found, line=line))

    def _new_line(self, left: Node, right: Node) -> bool:
        return "\n" in self.text(left.end_byte, right.start_byte).replace("\\\n", "")

    def perform(self, fields: list[str], own: dict[str, str], heredoc: str = "") -> Status:
        """A simple command, by its words."""
        name = fields[0]
        self.expander.touched = ""
        if name in self.state.functions:
            return self._call(name, fields[1:])
        own_command = builtin.TABLE.get(name)
        if own_command is not None:
            return own_command(self, fields[1:], heredoc)
        self.start(fields, own)
        if self.out is not None:
            self.out.append(self.state.gap(f"{name[:40]} prints what only running it tells"))
        return True if name in builtin.HARMLESS else None

    def start(self, fields: list[str], own: dict[str, str]) -> None:
        """Record a command that is no builtin."""
        state = self.state
        exported = {
            name: value
            for name in sorted(state.exported)
            if isinstance(value := state.variables.get(name), str)
        }
        env = {**exported, **own}
        self.record.started.append(Started(tuple(fields), env, state.file, state.line, state.cwd))

    def _call(self, name: str, arguments: list[str]) -> Status:
        body, source, file = self.state.functions[name]
        state = self.state
        before = self.source, self.offset, state.params, state.file
        self.source, state.params, state.file = source, arguments, file
        state.locals.append({})
        state.common.budget.enter()
        try:
            return self.node(body)
        except Return:
            return None
        finally:
            state.common.budget.leave()
            # A fork replaces the state's contents, never the state: it is still this one.
            for variable, value in state.locals.pop().items():
                if value is None:
                    state.variables.pop(variable, None)
                else:
                    state.variables[variable] = value
            self.source, self.offset, state.params, state.file = before


_HANDLERS: dict[str, Callable[[Runner, Node], Status]] = {
    "c_style_for_statement": Runner._c_for,
    "case_statement": Runner._case,
    "command": Runner.command,
    "compound_statement": Runner._block,
    "declaration_command": Runner.declaration,
    "do_group": Runner._block,
    "for_statement": Runner._for,
    "function_definition": Runner._function,
    "if_statement": Runner._if,
    "list": Runner._list,
    "negated_command": Runner._negated,
    "pipeline": Runner._pipeline,
    "program": Runner._block,
    "redirected_statement": Runner._redirected,
    "subshell": Runner._subshell,
    "test_command": Runner._test,
    "unset_command": Runner.unset,
    "variable_assignment": Runner.assignment,
    "variable_assignments": Runner._assignments,
    "while_statement": Runner._while,
}
