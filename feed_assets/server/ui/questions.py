"""A page for each operation that only reads: a form of its parameters, and what it finds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import Any

import click

from feed_assets.errors import FeedAssetsError, WrongUsageError
from feed_assets.operation import Does, Operation
from feed_assets.operation_list import list_operations
from feed_assets.server.answers import describe_error, status_of
from feed_assets.server.calls import list_parameters
from feed_assets.server.errors import RequestRefusedError
from feed_assets.server.ui.addresses import question_address
from feed_assets.server.ui.records import Asked, View
from feed_assets.server.ui.tables import Table, as_fields, ask_table, labels_of

_IN_PATH = "operation"
_NOT_ASKED = ("output", "look", "prune", "detailed_exitcode")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A parameter as a field of a form."""

    name: str
    help: str
    is_required: bool
    is_flag: bool
    is_several: bool
    choices: Sequence[str]
    values: Sequence[str]


def show_question(asked: Asked) -> View:
    """Show what an operation finds; only its form, if something is required and missing."""
    name = asked.one(_IN_PATH).replace("/", " ")
    operation = _questions().get(name)
    if operation is None:
        told = f"There is no page of {name!r}. See {question_address('').rstrip('/')}."
        raise RequestRefusedError(HTTPStatus.NOT_FOUND, told)
    sent = {name: value for name, value in asked.values.items() if name != _IN_PATH}
    given = {name: [*filter(None, told)] if isinstance(told, list) else told for name, told in sent.items() if told}
    fields, labels = _list_fields(operation, given), labels_of(operation)
    missing = [labels[each.name] for each in fields if each.is_required and not each.values]
    lack = WrongUsageError(f"Nothing is asked yet: fill in {' and '.join(missing)}, with a * above.")
    table, error = (None, lack) if missing else _ask(asked, operation, given)
    parts = {
        "operation": operation,
        "fields": fields,
        "labels": labels,
        "given": given,
        "found": table,
        "address": question_address(operation.name),
        "error": describe_error(error, operation, labels) if error is not None and sent else "",
    }
    status = status_of(error) if error is not None and sent else HTTPStatus.OK
    return View(template="question.html", title=operation.name, parts=parts, status=status)


def _ask(asked: Asked, operation: Operation, given: Mapping[str, Any]) -> tuple[Table | None, Exception | None]:
    try:
        return ask_table(asked, operation.name, given), None
    except (FeedAssetsError, click.ClickException) as exc:
        if status_of(exc) not in (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND):
            raise
        return None, exc


def show_questions(_: Asked) -> View:
    """List what can be asked."""
    return View(template="questions.html", title="All questions", parts={"operations": _questions().values()})


def is_question(operation: Operation) -> bool:
    """Return whether a page can ask an operation, as it does for who only reads, without definitions of the caller."""
    gives = operation.right is not Does.READS and any(each.is_required for each in operation.parameters)
    return operation.has_route and operation.does is Does.READS and not gives


@cache
def _questions() -> Mapping[str, Operation]:
    return {each.name: each for each in list_operations().items if is_question(each)}


def _list_fields(operation: Operation, given: Mapping[str, Any]) -> list[Field]:
    fields = []
    for name, each in list_parameters(operation).items():
        if name in _NOT_ASKED:
            continue
        told, choices = given.get(name, ()), getattr(each.type, "choices", ())
        fields.append(
            Field(
                name=name,
                help=as_fields(getattr(each, "help", None) or "", operation),
                is_required=each.required,
                is_flag=bool(getattr(each, "is_flag", False)),
                is_several=each.multiple or (each.nargs == -1 and not choices),
                choices=[str(getattr(choice, "value", choice)) for choice in choices],
                values=[told] if isinstance(told, str) else told,
            )
        )
    return fields
