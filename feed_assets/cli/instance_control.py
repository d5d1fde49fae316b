"""`instance kill`, `suspend`, `resume` and `rerun`: what people do to instances of a process, or copies of a feed."""

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from feed_assets.cli.instance_options import lifecycle_option, lifecycles_of
from feed_assets.cli.options import MomentType, author_of, change_options, clusters_option
from feed_assets.cli.render import print_json, print_table
from feed_assets.entities.flow_names import parse_flow
from feed_assets.lifecycle.instance_actions import Acted, InstanceAction
from feed_assets.settings import load_settings
from feed_assets.timing.dates import render_datetime

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _range_options(command: _Command) -> _Command:
    """What all four have: a process or feed, a range that both ends are given of, clusters and lifecycle."""
    for option in (
        click.argument("name"),
        click.option("--start", type=MomentType(), required=True, help="The first nominal time, 2015-02-28T06:30Z."),
        click.option("--end", type=MomentType(), required=True, help="The nominal time before which the range ends."),
        clusters_option,
        lifecycle_option,
    ):
        command = option(command)
    return change_options(command)


@click.command()
@_range_options
def kill(**options: Any) -> None:
    """End instances of NAME that wait, run, are suspended or have failed.

    They stay KILLED: nothing retries them but `rerun`. Their runs in Dagster are cancelled. What SUCCEEDED stays so.
    """
    _control(InstanceAction.KILL, **options)


@click.command()
@_range_options
def suspend(**options: Any) -> None:
    """Hold instances of NAME back until they are resumed.

    Dagster cannot hold a run: that of an instance which runs is cancelled, and the instance begins anew when it is
    resumed. Nothing that it had done is seen.
    """
    _control(InstanceAction.SUSPEND, **options)


@click.command()
@_range_options
def resume(**options: Any) -> None:
    """Let suspended instances of NAME go on: they wait for their inputs, or run at once if those are there."""
    _control(InstanceAction.RESUME, **options)


@click.command()
@_range_options
@click.option(
    "--file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A file of properties, name=value."
)
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="A property; may be repeated.")
@click.option("--force", is_flag=True, help="Forget the properties that earlier re-runs were given.")
def rerun(file: Path | None, properties: tuple[str, ...], force: bool, **options: Any) -> None:
    """Run instances of NAME again that have ended, however they did.

    Their outputs are replaced when they are whole again. Properties that are given stand in the place of the process's
    own, for this run and all that follow, until others are given or `--force` forgets them.
    """
    given = parse_properties([*read_property_lines(file), *properties]) if file or properties else None
    _control(InstanceAction.RERUN, overrides=given, force=force, **options)


def _control(
    action: InstanceAction,
    *,
    name: str,
    start: datetime,
    end: datetime,
    clusters: tuple[str, ...] | None,
    lifecycles: tuple[str, ...],
    author: str | None,
    dry_run: bool,
    output: str,
    overrides: Mapping[str, str] | None = None,
    force: bool = False,
) -> None:
    from feed_assets.cli.state import open_state, stop_runs
    from feed_assets.clock import SystemClock
    from feed_assets.operations.instances.control import control_instances
    from feed_assets.operations.scene import open_scene

    settings = load_settings()
    done = control_instances(
        open_scene(settings, open_state(settings), SystemClock()),
        action,
        name,
        start,
        end,
        author=author_of(author),
        lifecycles=lifecycles_of(lifecycles),
        clusters=clusters,
        overrides=overrides,
        force=force,
        dry_run=dry_run,
    )
    stop_runs(done.stopped)
    if output == "json":
        print_json(done.to_json())
    else:
        print_table(("instance", "cluster", "was", "is", "copied from"), map(_cells, done.acted))
    click.echo(done.render_summary(), err=True)


def _cells(acted: Acted) -> tuple[str, ...]:
    row, flow = acted.instance, parse_flow(acted.instance.process)
    cells = (render_datetime(row.nominal_time), row.cluster, acted.before.value, acted.after.value)
    return cells if flow is None else (*cells, flow[1])


def read_property_lines(file: Path | None) -> list[str]:
    """The lines of a properties file that say something."""
    lines = file.read_text("utf-8").splitlines() if file else []
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith(("#", "!"))]


def parse_properties(texts: list[str]) -> dict[str, str]:
    """Properties by name, of the form NAME=VALUE each."""
    pairs = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise click.BadParameter(f"{text!r} is not of the form NAME=VALUE.", param_hint="--property")
        pairs[name.strip()] = value.strip()
    return pairs
