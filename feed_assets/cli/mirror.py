"""`mirror`: what a run of a mirror would do, its snapshots, and a new mirror written down."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from feed_assets.cli.instance_control import parse_properties, read_property_lines
from feed_assets.cli.instance_options import FAILED, open_scene_for
from feed_assets.cli.options import FrequencyType, MomentType, output_option, packed
from feed_assets.cli.render import print_json, print_table
from feed_assets.clock import SystemClock, open_clock
from feed_assets.settings import load_settings
from feed_assets.timing.frequency import Frequency

if TYPE_CHECKING:
    from feed_assets.lifecycle.replication.mirroring import PlannedMirror
    from feed_assets.operations.mirrors.templates import MirrorWish

FILES = 20

_CLUSTER = click.option("--cluster", help="The cluster that it runs on; not needed where that is one.")


@click.group()
def mirror() -> None:
    """Directories without dates that are kept equal to others.

    PROCESS is a process with the engine directory-mirror.
    """


@mirror.command()
@click.argument("process")
@_CLUSTER
@click.option("--removals", type=click.IntRange(min=0), help="As if a run were allowed to remove so many files.")
@click.option("--limit", type=click.IntRange(min=0), default=FILES, show_default=True, help="How many files are shown.")
@output_option
@click.pass_context
def plan(ctx: click.Context, process: str, cluster: str | None, removals: int | None, limit: int, output: str) -> None:
    """What a run of PROCESS would do now: bytes and files that it would copy, and files that it would remove.

    Nothing is written. The exit code is 1 if a run would fail.
    """
    from feed_assets.operations.mirrors.reading import plan_mirrors

    plans = plan_mirrors(open_scene_for(), SystemClock(), process, cluster, removals)
    if output == "json":
        print_json(plans.to_json())
    else:
        rows = [_row(planned) for planned in plans.planned]
        print_table(("source", "target", "copies", "bytes", "removes", "of"), rows)
        for planned in plans.planned:
            files = list(_files(planned))
            print_table(("", "bytes", "file"), files[:limit])
            if len(files) > limit:
                click.echo(f"{limit:,} of {len(files):,} files; --limit shows more", err=True)
    for planned in plans.planned:
        if planned.refusal is not None:
            click.echo(f"feed-assets: {planned.refusal}", err=True)
    if not plans.is_good:
        ctx.exit(FAILED)


def _row(planned: "PlannedMirror") -> tuple[object, ...]:
    plan = planned.plan
    if plan is None:
        return (planned.source, planned.target, "-", "-", "-", "-")
    standing = "-" if plan.is_unchanged else f"{planned.standing:,}"
    return (
        planned.source,
        planned.target,
        f"{len(plan.transfers):,}",
        f"{plan.bytes:,}",
        f"{len(plan.removed):,}",
        standing,
    )


def _files(planned: "PlannedMirror") -> Iterator[tuple[object, ...]]:
    if planned.plan is not None:
        yield from (("remove", "", path) for path in planned.plan.removed)
        yield from (("copy", f"{file.size:,}", file.path) for file in planned.plan.transfers)


@mirror.command()
@click.argument("process")
@_CLUSTER
@output_option
def snapshots(process: str, cluster: str | None, output: str) -> None:
    """The states of PROCESS that have a name, of the source and of the target, and where an older one can be read."""
    from feed_assets.operations.mirrors.reading import list_snapshots

    found = list_snapshots(open_scene_for(), process, cluster)
    if output == "json":
        print_json(found.to_json())
        return
    for url, each in found.snapshots.items():
        rows = [(one.shelf.value, one.name, f"{one.files:,}", f"{one.bytes:,}", one.content or "") for one in each]
        print_table(("side", "snapshot", "files", "bytes", "content"), rows)
        if not rows:
            click.echo(f"{url}: there is no snapshot", err=True)


def _wish(
    name: str | None,
    sources: tuple[str, ...],
    target: str | None,
    cluster: str | None,
    frequency: Frequency | None,
    start: datetime | None,
    end: datetime | None,
    remove: bool,
    snapshots: str | None,
    file: Path | None,
    properties: tuple[str, ...],
) -> "MirrorWish":
    """What the options say of the mirror."""
    from feed_assets.operations.mirrors.templates import MirrorWish

    return MirrorWish(
        name=name,
        sources=sources,
        target=target,
        cluster=cluster,
        frequency=frequency.render() if frequency else None,
        start=start,
        end=end,
        removes=remove,
        snapshots=_parse_snapshots(snapshots),
        properties=parse_properties([*read_property_lines(file), *properties]),
    )


@mirror.command()
@click.argument("name", required=False)
@click.option(
    "--source", "sources", multiple=True, metavar="PLACE", help="What is read: cluster:/directory; may be repeated."
)
@click.option("--target", metavar="PLACE", help="What is written: cluster:/directory, or a URL.")
@click.option("--cluster", help="Where it runs; by default the cluster of the target, else of the source.")
@click.option("--frequency", type=FrequencyType(), help="How often; by default days(1).")
@click.option("--start", type=MomentType(), help="The first run; by default today, at midnight.")
@click.option("--end", type=MomentType(), help="No run from then on.")
@click.option("--remove", is_flag=True, help="Remove at the target what the source does not have.")
@click.option("--snapshots", metavar="N[,M]", help="Keep the newest N states of the source, and M of the target.")
@click.option(
    "--file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Properties of Falcon's extension."
)
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="One of them; may be repeated.")
@packed("wish", _wish)
@click.option("--to", "target_file", metavar="FILE", help="The file to write; without it the text is printed.")
@click.option("--force", is_flag=True, help="Replace a file or a definition that says something else.")
@output_option
def new(wish: "MirrorWish", target_file: str | None, force: bool, output: str) -> None:
    """Write down a mirror NAME, with a comment for each option, and validate it beside what is declared.

    Falcon's properties of hdfs-mirroring and hdfs-snapshot-mirroring, such as sourceDir and removeDeletedFiles, are
    translated; what is given as an option wins.
    """
    from feed_assets.operations.definitions import load_declared
    from feed_assets.operations.mirrors.templates import make_mirror, write_template

    settings = load_settings()
    template = make_mirror(wish, load_declared(settings), open_clock(settings).now(), is_forced=force)
    for note in (*template.notes, *(f"warning: {issue.render()}" for issue in template.warnings)):
        click.echo(note, err=True)
    if target_file is not None:
        shown = write_template(template, target_file, is_forced=force)
        click.echo(f"{shown}: process '{template.process.name}' is written", err=True)
    if output == "json":
        print_json(template.to_json())
    elif target_file is None:
        click.echo(template.text, nl=False)


def _parse_snapshots(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 2 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise click.BadParameter(f"{text!r} is neither N nor N,M.", param_hint="--snapshots")
    return int(parts[0]), int(parts[-1])
