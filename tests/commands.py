"""Command lines as text: what the program offers, where in its code, and whether the command line accepts it."""

import ast
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import click

import feed_assets

PACKAGE = Path(feed_assets.__file__).parent
WRITER = f"{feed_assets.__name__}.command_lines"
_WRITERS = {"command_line": (), "instance_command": ("instance",), "follow_command": ("entity", "touch")}
_COMMAND = re.compile(r"`(feed-assets [^`]+)`|(feed-assets [^`\n]+)")


@dataclass(frozen=True, slots=True)
class Offer:
    """A command that the program has written, and the function of it that did so."""

    function: str
    command: str


def require_command(words: Sequence[str]) -> str:
    """Parse a command line as the program does, with its arguments and options, and run nothing; returns its verb.

    Raises:
        click.UsageError: a command, argument or option is wrong, missing or one too many.
    """
    command: click.Command = main_group()
    arguments = list(words)
    parent: click.Context | None = None
    names = []
    while isinstance(command, click.Group):
        parent = click.Context(command, info_name=command.name, parent=parent, **command.context_settings)
        if not arguments:
            raise click.UsageError(f"{command.name} is no whole command")
        name, found, arguments = command.resolve_command(parent, arguments)
        assert found is not None, name
        command = found
        names.append(str(name))
    command.make_context(command.name, arguments, parent=parent).close()
    return " ".join(names)


def offering_function() -> str:
    """The function that has called the writer of commands, as `offered_in_code` names it."""
    frame = sys._getframe(1)
    while frame.f_globals["__name__"] != WRITER:
        assert frame.f_back is not None
        frame = frame.f_back
    while frame.f_globals["__name__"] == WRITER:
        assert frame.f_back is not None
        frame = frame.f_back
    function = re.sub(r"\.<[a-z]+>|<locals>\.", "", frame.f_code.co_qualname)
    return f"{frame.f_globals['__name__'].removeprefix('feed_assets.')}.{function}"


@cache
def offered_in_code() -> frozenset[str]:
    """Every place of the code that writes a command, with the verb: `lifecycle.errors.ReleaseError.__init__: entity
    definition`. What a module writes while it is imported stands in `<module>`.
    """
    return frozenset(
        f"{module}.{function}: {verb}"
        for module, text in _sources()
        if any(f"{writer}(" in text for writer in _WRITERS)
        for function, verb in _calls(ast.parse(text), "")
    )


def written_by_hand() -> list[tuple[str, str]]:
    """Texts of the program, other than documentation and examples, that contain a command which the writer of commands
    has not written, by module.
    """
    verbs = "|".join(name for name, each in iter_commands() if not isinstance(each, click.Group))
    pattern = re.compile(rf"feed-assets ({verbs})\b")
    return [
        (module, node.value)
        for module, text in _sources()
        if pattern.search(text)
        for node in _texts(ast.parse(text))
        if pattern.search(node.value) and not node.value.startswith("Example: ")
    ]


def _sources() -> Iterator[tuple[str, str]]:
    for file in PACKAGE.rglob("*.py"):
        module = ".".join(file.relative_to(PACKAGE).with_suffix("").parts)
        if module != "command_lines":
            yield module, file.read_text()


def main_group() -> click.Group:
    """The command line, which is imported only where it is used."""
    from feed_assets.cli.main import main

    return main


def iter_commands(group: click.Group | None = None, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """The commands and the groups below a group, or of all, by their whole names."""
    group = group or main_group()
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None, name
        yield before + name, command
        if isinstance(command, click.Group):
            yield from iter_commands(command, f"{before}{name} ")


def _texts(node: ast.AST) -> Iterator[ast.Constant]:
    """Yield the texts below a node, without documentation: texts that are statements."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child
        yield from _texts(child)


def _calls(node: ast.AST, scope: str) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef):
            yield from _calls(ast.Module(child.decorator_list), scope)
            yield from _calls(ast.Module(child.body), f"{scope}.{child.name}".lstrip("."))
            continue
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Name) and child.func.id in _WRITERS:
            words = [*_WRITERS[child.func.id]]
            words += [each.value if isinstance(each, ast.Constant) else "?" for each in child.args]
            yield scope or "<module>", _verb_of(words)
        yield from _calls(child, scope)


def _verb_of(words: Sequence[str]) -> str:
    command: click.Command = main_group()
    names = []
    for word in words:
        if not isinstance(command, click.Group):
            break
        found = command.get_command(click.Context(command), word)
        assert found is not None, words
        command = found
        names.append(word)
    return " ".join(names)


def commands_in(text: str) -> list[str]:
    """The commands that a person sees in a text, as they are copied: from backticks, or up to the end of the line."""
    found = [quoted or plain for quoted, plain in _COMMAND.findall(text)]
    return [each.strip() for line in found for each in line.split(" && ")]


def words_of(command: str) -> list[str]:
    """The arguments that a shell passes to `feed-assets`."""
    program, *words = shlex.split(command)
    assert program == "feed-assets"
    return words
