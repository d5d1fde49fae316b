"""The tree of exceptions is one, and is drawn as it is."""

import pickle
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import click
import pytest

import feed_assets
from feed_assets import errors
from feed_assets.cli.options import JSON_OBJECT
from feed_assets.context.errors import ListenRefusedError
from feed_assets.engines.failures import render_cause
from feed_assets.entities.content.event_messages import find_marking_fault
from feed_assets.entities.metadata import MetadataKey, MetadataKind, Scope, find_fault
from feed_assets.errors import FeedAssetsError
from feed_assets.loading.documents import Note, NoteKind
from feed_assets.loading.falcon.reading import quote
from feed_assets.operation_list import find_operation
from feed_assets.plan.rendering import _value
from feed_assets.server.calls import read_given
from feed_assets.timing.grammar import parse_call

_LINE = re.compile(r"^(?P<branches>[│├└─ ]*)(?P<name>\w+Error)\b", re.MULTILINE)  # "│   ├── FrequencyError"


def drawn() -> dict[str, str | None]:
    """Each exception in the drawing with the one that it hangs on."""
    path: list[str] = []
    parents: dict[str, str | None] = {}
    for line in _LINE.finditer(errors.__doc__ or ""):
        del path[len(line["branches"]) // 4 :]
        assert line["name"] not in parents, f"{line['name']} is drawn twice"
        parents[line["name"]] = path[-1] if path else None
        path.append(line["name"])
    return parents


def below(base: type[Exception]) -> dict[str, str | None]:
    """Each exception of the project below a class with its base."""
    parents: dict[str, str | None] = {}
    for each in base.__subclasses__():
        if each.__module__.startswith("feed_assets."):
            parents |= {each.__name__: base.__name__} | below(each)
    return parents


def test_the_drawing_of_the_tree_is_true() -> None:
    for module in sorted(Path(next(iter(feed_assets.__path__))).rglob("errors.py")):
        import_module(
            ".".join(["feed_assets", *module.relative_to(next(iter(feed_assets.__path__))).with_suffix("").parts])
        )
    assert drawn() == {"FeedAssetsError": None} | below(FeedAssetsError)


def test_an_error_keeps_the_facts_from_which_it_was_built_and_a_copy_has_them_too() -> None:
    error = ListenRefusedError(address="127.0.0.1:9", reason="it is taken")
    assert {name: getattr(error, name) for name in ("address", "reason")} == vars(error)
    assert vars(pickle.loads(pickle.dumps(error))) == vars(error)


@pytest.mark.parametrize(
    ("before", "tell"),
    [
        (30, lambda text: JSON_OBJECT.convert(text, None, None)),
        (30, lambda text: find_fault(MetadataKey(Scope.USER, MetadataKind.TAG, text), "")),
        (0, lambda text: find_fault(MetadataKey(Scope.USER, MetadataKind.PROPERTY, "a"), f"{text}\n")),
        (0, lambda text: find_marking_fault(f"{text}\n")),
        (30, quote),
        (950, lambda text: Note(kind=NoteKind.UNABLE, message=text)),
        (780, lambda text: render_cause(ValueError(text))),
        (60, _value),
        (20, lambda text: parse_call(f"{text}{'x' * 400}")),
        (40, lambda text: read_given(find_operation("entity list"), {"fields": [[text]]})),
    ],
)
def test_no_secret_is_cut_before_it_is_hidden(before: int, tell: Callable[[str], object]) -> None:
    """A part of it would not be known as one."""
    secret = "0a" * 32
    try:
        told = str(tell(f"{'x ' * (before // 2)}fa_{secret}"))
    except (FeedAssetsError, click.ClickException) as exc:
        told = str(exc)
    assert ("fa_" in told, secret[:10] in told) == (True, False), told
