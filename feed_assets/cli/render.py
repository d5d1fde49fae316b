"""Printing of results: tables on a terminal, plain lines elsewhere, or JSON."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from feed_assets.issues import Severity
from feed_assets.json_form import render_document
from feed_assets.masking import mask

if TYPE_CHECKING:
    from feed_assets.lifecycle.retention.hold_traces import UnsettledStore
    from feed_assets.operations.entities.verb_results import EntityOutcome, VerbResult


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text without secrets, on standard output or on standard error. Nothing else here prints text."""
    click.echo(mask(text), err=err, nl=nl)


def print_json(result: object = None, /, **members: object) -> None:
    """Print a result, or members by name, as a JSON document (see `render_document`)."""
    click.echo(json.dumps(render_document(result, **members), indent=2, ensure_ascii=False))


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows on standard output: as a table on a terminal, else one line each with tabs between the cells and no
    header. Columns at the end that no row has are omitted.
    """
    cells = [["" if cell is None else mask(str(cell)) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in cells:
            click.echo("\t".join(row))
        return
    # Only terminals need rich.
    from rich.console import Console
    from rich.table import Table

    table = Table(*header[: max(map(len, cells), default=None)], box=None, pad_edge=False)
    for row in cells:
        table.add_row(*row)
    Console(markup=False, highlight=False).print(table)


def print_list_json(name: str, items: Sequence[object], total: int) -> None:
    """Print the first of all items as a JSON document, and how many there are."""
    print_json(**{name: items}, total=total, has_more=total > len(items))


def say_shown(shown: int, total: int, what: str, more: str) -> None:
    """Say on standard error how many of all things were printed, and which options show others; nothing if all were."""
    if total > shown:
        say(f"{shown:,} of {total:,} {what}; {more}", err=True)


def say_unsettled(unsettled: "Iterable[UnsettledStore]") -> None:
    """Say on standard error in which storages the traces of holds are not up to date."""
    for each in unsettled:
        text = f"the traces of holds in {each.store} are not up to date: {each.reason}; the next retention tries again"
        say(text, err=True)


def print_result(result: "VerbResult", output: str) -> None:
    """Print the result of a verb on standard output, and warnings on standard error."""
    for issue in result.warnings:
        if issue.severity is Severity.WARNING:
            say(f"warning: {issue.render()}", err=True)
    if output == "json":
        print_json(result)
        return
    for outcome in result.outcomes:
        say(_sentence(outcome, dry_run=result.dry_run and result.verb != "validate"))
        for change in outcome.changes:
            say(f"  {change.field}: {_value(change.before)} -> {_value(change.after)}")
        for note in outcome.notes:
            say(f"  {note}")
    for release in result.releases:
        say(release.render())


def _sentence(outcome: "EntityOutcome", *, dry_run: bool) -> str:
    version = f", version {outcome.version}" if outcome.version is not None else ""
    states = ", ".join(f"{cluster} {state}" for cluster, state in outcome.clusters.items())
    would = "would be " if dry_run else ""
    return f"{outcome.label}: {would}{outcome.outcome.value}{version}" + (f" ({states})" if states else "")


def _value(value: object) -> str:
    return "(nothing)" if value is None else json.dumps(value, ensure_ascii=False)
