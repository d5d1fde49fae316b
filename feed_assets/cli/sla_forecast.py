"""`sla forecast`: which deadlines will probably be missed."""

import click

from feed_assets.cli.groups import Verb
from feed_assets.cli.instance_options import SCHEDULABLE, open_context_for
from feed_assets.cli.options import FrequencyType, KindType, clusters_option, output_option
from feed_assets.cli.render import print_json, print_table, say
from feed_assets.entities.common import Kind
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.frequency import Frequency


@click.command(cls=Verb, epilog="Example: feed-assets sla forecast --name flights --within hours(12)")
@click.option("--kind", type=KindType(*SCHEDULABLE), help="Only feeds, or only processes.")
@click.option("--name", help="Only this feed or process.")
@clusters_option
@click.option(
    "--within", type=FrequencyType(), default="hours(6)", show_default=True, help="Deadlines up to so long from now."
)
@output_option
def forecast(kind: Kind | None, name: str | None, clusters: tuple[str, ...], within: Frequency, output: str) -> None:
    """Forecast which instances will miss their deadlines, the most probable first, and say why.

    A probability is counted: of up to 60 earlier instances, those of the same hour and weekday and the last few, how
    many that were as late by now missed. A process waits for what is missing upstream, in the queue, and for its work.
    """
    from feed_assets.operations.deadlines.forecasts import MOST, forecast_deadlines

    found = forecast_deadlines(open_context_for(), within.as_duration(), kind=kind, name=name, clusters=clusters)
    if output == "json":
        print_json(found)
    else:
        rows = [
            (
                each.kind,
                each.name,
                each.cluster,
                render_datetime(each.nominal_time),
                each.level.value.upper(),
                render_datetime(each.due_at),
                "unknown" if each.probability is None else f"{each.probability:.1%}",
                each.reason,
            )
            for each in found.forecasts
        ]
        header = ("kind", "name", "cluster", "instance", "level", "due", "miss", "because")
        print_table(header, rows, output, spare=("kind",))
    if not found.is_complete:
        say(f"the first {MOST:,} deadlines; --kind, --name, --clusters and --within choose others", err=True)
