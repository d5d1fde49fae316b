"""An operation called by a request: the parameters by name, through the declarations of the command line.

The answer is what the command prints, so that both always say the same.
"""

import json
from collections.abc import Mapping
from functools import cache
from io import StringIO
from typing import Any

import click

from feed_assets.cli import options
from feed_assets.cli.derived import derive_command, is_split
from feed_assets.cli.door import Door, Outcome, at
from feed_assets.cli.groups import Given
from feed_assets.cli.main import main, recorded, tell_error
from feed_assets.cli.options import name_of
from feed_assets.cli.render import shown
from feed_assets.errors import WrongUsageError, find_similar, shorten
from feed_assets.masking import mask_values
from feed_assets.operation import Operation

ABORTED = 1
_SHOWN = 80
_NOT_GIVEN = ("author", "help")


@cache
def command_of(operation: Operation) -> click.Command:
    """Return the command of an operation."""
    return derive_command(operation)


def list_parameters(operation: Operation) -> Mapping[str, click.Parameter]:
    """Return what a request may give, by name; a file is its body."""
    others = {each.name for each in operation.parameters if each.param.local or each.param.file}
    found = {name_of(each): each for each in command_of(operation).params if each.name not in others}
    if is_split(operation):
        found = {"kind": options.kind_argument("kind", ()), **found}
    return {name: each for name, each in found.items() if name not in _NOT_GIVEN}


def call(door: Door, operation: Operation, given: Mapping[str, Any]) -> Outcome:
    """Call an operation through a door.

    Args:
        door: where it is called.
        operation: what is called.
        given: its parameters by name, as `read_given` returns them; those of files as bytes or EntityFiles.
    """
    command, told = command_of(operation), {**given, "author": door.author}
    with at(door):
        width = max(min(door.screen.width or 80, 100) - 2, 50)  # of help, as click has it
        parent = click.Context(main, info_name="feed-assets", help_option_names=["-h", "--help"], terminal_width=width)
        for word in operation.name.split(" ")[:-1]:
            parent = click.Context(click.Group(word), info_name=word, parent=parent)
        try:
            if door.ask_sites is not None:
                return door.ask_sites(door, operation, given)
            with recorded(parent), command.make_context(command.name, [], parent=parent, obj=Given(told)) as context:
                command.invoke(context)
        except click.exceptions.Exit as exc:
            return _end(door, exc.exit_code)
        except click.Abort as exc:
            return _end(door, ABORTED, exc)
        except click.ClickException as exc:
            exc.message = shown(exc.message)  # type: ignore[misc]
            said = StringIO()
            exc.show(said)
            door.screen.err.append(said.getvalue())
            return _end(door, exc.exit_code, exc)
        except Exception as exc:  # noqa: BLE001 - the boundary of a request, as `main` is that of a command
            return _end(door, tell_error(exc), exc)
        finally:
            parent.close()
    return _end(door, 0)


def _end(door: Door, exit_code: int, error: Exception | None = None) -> Outcome:
    return Outcome("".join(door.screen.out), "".join(door.screen.err), exit_code, error)


def read_given(operation: Operation, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a parser of words would have made of values: texts, or lists of texts, by name.

    Values are texts or, of a JSON body, any value of JSON: null is as if it were not there.

    Raises:
        WrongUsageError: there is no such parameter, or it cannot have such a value.
    """
    known, given = list_parameters(operation), dict[str, Any]()
    for name, value in values.items():
        if name not in known:
            near = find_similar(name, known, 1)
            hint = f" Do you mean {near[0]}?" if near else f" It has {', '.join(known) or 'none'}."
            raise WrongUsageError(f"{operation.name} has no parameter {name!r}.{hint}")
        if value is not None:
            given[str(known[name].name)] = _read(name, known[name], value)
    if is_split(operation) and (kind := given.pop("kind", ())):
        given["names"] = (*kind, *given.get("names", ()))
    return given


def _read(name: str, param: click.Parameter, value: Any) -> Any:
    if isinstance(value, dict):
        if not (param.multiple or param.nargs == -1):
            return json.dumps(value)
        value = [f"{each}={_text(name, of_it)}" for each, of_it in value.items()]
    texts = [_text(name, each) for each in (value if isinstance(value, list) else [value])]
    if param.nargs == -1:
        return tuple(texts)
    if param.multiple:
        return texts
    if len(texts) != 1:
        raise WrongUsageError(f"The parameter {name!r} has one value; {len(texts)} were given.")
    return texts[0]


def _text(name: str, value: Any) -> str:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case _:
            told = shorten(json.dumps(mask_values(value)), _SHOWN)
            raise WrongUsageError(f"The parameter {name!r} is a text or a list of texts, not {told}.")
