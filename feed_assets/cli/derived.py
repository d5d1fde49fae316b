"""Commands derived from operations: their parameters, help and completion; the call; and how the result is printed."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from datetime import datetime
from functools import reduce
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Literal, get_origin

import click

from feed_assets.access.rights import require_declarer, require_local
from feed_assets.access.table import find_does, leave_out, require_rights
from feed_assets.cli import options, state
from feed_assets.cli.door import find_door
from feed_assets.cli.exit_codes import DIFFERENT, FAILED
from feed_assets.cli.groups import Verb, Verbs
from feed_assets.cli.progress import status_line
from feed_assets.cli.render import Output, confirm, print_json, print_records, say, say_state
from feed_assets.entities.common import Kind
from feed_assets.errors import WrongUsageError
from feed_assets.json_form import render_document
from feed_assets.loading.entity_files import EntityFile
from feed_assets.operation import Does, Operation, Parameter
from feed_assets.operation_list import describe_group, find_operations
from feed_assets.timing.sequence import Frequency

DRAWN: Mapping[str, str] = MappingProxyType(
    {
        "retention show": "feed_assets.cli.drawing:print_sweep",
        "feed take": "feed_assets.cli.drawing:print_inboxes",
        "try": "feed_assets.cli.drawing:print_tried",
    }
)
"""Functions that draw the results of operations for people by hand, as `module:function`, by the operation's name."""


def derive_commands(name: str, by_hand: click.Group | None = None) -> click.Command:
    """Return the command of a name, or the group of that name with its commands, added to those that are there."""
    group = by_hand or Verbs(name, help=describe_group(name))
    for each in find_operations(name):
        if each.name == name:
            return derive_command(each)
        _group_in(group, each.name.split(" ")[:-1]).add_command(derive_command(each))
    return group


def _group_in(group: click.Group, words: list[str]) -> click.Group:
    """Return the group of some words, in the group of the first; it is made if it is not there."""
    for place, word in enumerate(words[1:], 2):
        inner = group.commands.get(word)
        if not isinstance(inner, click.Group):
            group.add_command(inner := Verbs(word, help=describe_group(" ".join(words[:place]))))
        group = inner
    return group


def derive_command(operation: Operation) -> click.Command:
    """Return the command of an operation."""

    def run(output: str = "", **given: Any) -> None:
        author, door = given.get("author"), find_door()
        if (colo := given.pop("colo", None)) not in (None, "*"):
            raise WrongUsageError(f"There is no colo {colo!r} here. Leave it out, and choose with clusters.")
        context = _open(operation, given)
        if (does := find_does(operation, given)) is not Does.READS:
            settings = getattr(context, "settings", None) or state.current_settings()
            if does is Does.DECLARES:
                require_declarer(settings, door.principal if door is not None else None)
            if door is None:
                require_local(settings, author)
        finish(operation, context, _call(operation, context, given), output)

    of_text = options.output_in("text", *operation.forms, Output.JSON)
    shared = [] if operation.plain else [options.output_option if operation.table else of_text]
    shared += [options.dry_run_option] if "dry_run" in operation.given else []
    shared += [options.author_option] if "author" in operation.given else []
    shared += [options.skip_checks_option] if operation.checks else []
    shared += [options.colo_option] if operation.is_of_sites else []
    command = click.command(
        operation.name.rpartition(" ")[2],
        cls=Verb,
        params=[_parameter_of(each) for each in operation.parameters if each.name != "kind" or not is_split(operation)],
        help=operation.about,
        epilog=f"Example: feed-assets {operation.name} {operation.example}" if operation.example else None,
    )
    derived = command(reduce(lambda function, add: add(function), shared, run))
    derived.operation = operation
    return derived


def is_split(operation: Operation) -> bool:
    """Return whether the kind stands before the names, as in `[KIND] NAMES...`, in one parameter of the command."""
    return any(each.param.proposes == "names" for each in operation.parameters)


def _parameter_of(each: Parameter) -> click.Parameter:
    param = each.param
    if each.type is Kind and param.argument and not each.is_required:
        return options.kind_argument(each.name, param.of)
    if param.proposes == "names":
        return options.names_argument(each.name, param.metavar or "[KIND] NAMES...")
    metavar = param.metavar or ("KIND" if each.type is Kind and not param.commas else None)
    attributes: dict[str, Any] = {"required": each.is_required, "metavar": metavar}
    attributes |= {"type": _type_of(each)} if each.type is not bool else {}
    default = str(each.default) if isinstance(each.default, str) else each.default  # the value of a member
    attributes |= {"default": default} if default is not None else {}
    if param.argument:
        return click.Argument([each.name], nargs=-1 if each.is_several else 1, **attributes)
    return click.Option(
        [each.name, f"--{param.option or each.name.replace('_', '-')}"],
        is_flag=True if each.type is bool else None,  # with False, click takes `--reason -1` for two options
        multiple=each.is_several,
        callback=(lambda _, __, values: sum(values, ()) or each.default) if param.commas else None,
        show_default=bool(each.default) and each.type is not datetime,
        help=param.help,
        **attributes,
    )


def _type_of(each: Parameter) -> click.ParamType[Any]:
    of = [Kind(kind) for kind in each.param.of]
    find = options.names_of(*of) if of else getattr(options, f"find_{each.param.proposes}", None)
    if each.param.commas:
        return options.ListType(
            find or (lambda _: ()), _type_of(replace(each, param=replace(each.param, commas=False)))
        )
    if get_origin(each.type) is Literal:
        return click.Choice(each.choices, case_sensitive=False)
    if each.choices:
        return options.ChoiceType(each.type, each.choices)
    if each.type == dict[str, str] and each.param.file:
        return options.PROPERTY_FILE
    made: dict[object, Callable[[], click.ParamType[Any]]] = {
        **dict.fromkeys((bytes, BinaryIO), options.FileType),
        datetime: options.MomentType,
        dict[str, object]: lambda: options.JSON_OBJECT,
        dict[str, str]: lambda: options.PAIR,
        EntityFile: options.EntityFilesType,
        Frequency: lambda: options.FREQUENCY,
        int: lambda: click.INT if each.param.least is None else click.IntRange(min=each.param.least),
        Path: lambda: click.Path(exists=True, dir_okay=False, path_type=Path),
        str: lambda: click.Path() if each.param.file else options.ProposedType(find) if find else click.STRING,
    }
    return made[each.type]()


def _call(operation: Operation, context: Any, given: dict[str, Any]) -> object:
    for each in operation.parameters:
        value = given[each.name]
        if each.type is bytes and value is not None:
            given[each.name] = value.read()
        elif each.type is EntityFile:
            given[each.name] = tuple(options.read_files(value)) if value else each.default
        elif each.type == dict[str, str] and value is not None:
            given[each.name] = dict(value)
        elif "[FIELD]" in (each.param.metavar or ""):
            click.get_current_context().params["entity"] = value[0]  # what is recorded of the action
    given |= {"author": options.author_of(given["author"])} if "author" in given else {}
    click.get_current_context().params.update(given)
    require_rights(operation, given)
    for name, query in operation.queries.items():
        given[name] = query(**{each.name: given.pop(each.name) for each in fields(query)})
    show = status_line.show if find_door() is None else _show_nothing
    asked = {"progress": show, "confirm": confirm}
    given |= {name: value for name, value in asked.items() if name in operation.given}
    if operation.stops_in_safe_mode:
        from feed_assets.context.safe_mode import require_allowed

        require_allowed(context.database, operation)
    return leave_out(operation, operation.function(*[context] if operation.context else [], **given))


def _show_nothing(name: str, settled: int, total: int) -> None:
    """Let progress be: who has sent a request sees nothing before the answer."""


def _open(operation: Operation, given: dict[str, Any]) -> Any:
    """Open the context that an operation takes, if any, and take out what it has of what was given."""
    match operation.context:
        case "OperationContext":
            return state.open_context_for()
        case "ChangeContext":
            author = options.author_of(given.pop("author"))
            return state.open_context_for().by(author, dry_run=given.pop("dry_run"))
        case "EntityContext":
            told: dict[str, Any] = {"dry_run": operation.does is Does.READS}
            told |= {name: given.pop(name) for name in ("author", "dry_run", "skip_checks") if name in given}
            told |= {"may_take_over": given.get("delete_all", False)}
            return options.open_entity_context_for(given.get("files", ()), **told)
        case "Settings":
            return options.project_settings([given["path"]] if given.get("path") else [])
        case "Database":
            return state.open_state(state.current_settings())


def finish(operation: Operation, context: Any, result: Any, output: str) -> None:
    """Print a result, and on standard error its notes and its summary. End the runs of instances that it has `stopped`,
    and reload the webserver if that `reload_needed`. Say that none of the `tick_clusters` has ticks, which would go on
    with it. The command fails if the result `has_failed`; if it is one that `tells_difference`, its exit code says so.
    """
    if (door := find_door()) is not None and door.screen.takes_results:
        door.screen.result = result
    else:
        _print(operation, result, output)
    if clusters := getattr(result, "tick_clusters", ()):
        state.say_silence(context, {*clusters})
    if hasattr(result, "stopped") and not result.dry_run:
        state.end_and_reload(context.settings, result.stopped, reload_needed=getattr(result, "reload_needed", False))
    if getattr(result, "has_failed", False):
        click.get_current_context().exit(FAILED)
    if getattr(result, "tells_difference", False):
        click.get_current_context().exit(DIFFERENT)


def _print(operation: Operation, result: Any, output: str) -> None:
    if isinstance(result, Iterator):
        for each in result:
            say(json.dumps(render_document(each)) if output == Output.JSON else getattr(each, operation.text))
    elif isinstance(result, Mapping) and output in operation.forms:
        raise WrongUsageError(f"What is asked for is a JSON document, which has no --output {output}: leave that out.")
    elif output == Output.JSON or isinstance(result, Mapping):
        is_whole = not hasattr(result, "document") and (not operation.rows or hasattr(result, operation.rows))
        members = getattr(result, "document", lambda name: {name: result})(operation.rows)
        print_json(result) if is_whole else print_json(**members)
    elif operation.name in DRAWN:
        module, _, function = DRAWN[operation.name].partition(":")
        getattr(import_module(module), function)(result, output)
    elif operation.table:
        name, columns = operation.above
        if name and output == Output.TABLE:
            print_records(columns, getattr(result, name), output)
        if output == Output.TABLE and (heading := getattr(result, "heading", "")):
            say_state(heading)
        columns = getattr(result, "shown_columns", operation.table)
        if columns:
            print_records(columns, rows_of(operation, result), output, spare=operation.spare)
    else:
        for line in iter_lines(operation, result, output if output in operation.forms else operation.text):
            say(line)
    for note in notes_of(operation, result):
        say(note, err=True)


def notes_of(operation: Operation, result: Any) -> tuple[str, ...]:
    """Return what is said besides a result; of a table without rows, why there are none."""
    said = tuple(filter(None, (*getattr(result, "notes", ()), getattr(result, "summary", ""))))
    return said if said or not operation.none or rows_of(operation, result) else (operation.none,)


def rows_of(operation: Operation, result: Any) -> Iterable[Any]:
    of_page = getattr(result, "rows", result.items) if hasattr(result, "document") else result
    found = getattr(result, operation.rows or " ", of_page)
    return found if isinstance(found, tuple | list) else (found,)


def iter_lines(operation: Operation, result: Any, name: str) -> Iterator[str]:
    for each in rows_of(operation, result):
        said = getattr(each, name) if name else each
        yield from [said] if isinstance(said, str) else said or ()
