"""`metrics`: the record in numbers, for Prometheus and Graphite, and a dashboard for Grafana."""

import click

from feed_assets.cli.groups import Verb
from feed_assets.cli.render import say
from feed_assets.cli.state import open_state
from feed_assets.settings import load_settings

PROMETHEUS, GRAPHITE = "prometheus", "graphite"


@click.command(cls=Verb, epilog="Example: feed-assets metrics --format graphite")
@click.option(
    "--format",
    "form",
    type=click.Choice([PROMETHEUS, GRAPHITE]),
    default=PROMETHEUS,
    show_default=True,
    help="The form: Prometheus' text format, or Graphite's plaintext protocol.",
)
@click.option(
    "--max-series",
    type=click.IntRange(min=1),
    help="At most so many series; 50,000 by default. Entities beyond are left out.",
)
@click.option("--dashboard", is_flag=True, help="Print the dashboard for Grafana instead.")
def metrics(form: str, max_series: int | None, dashboard: bool) -> None:
    """Print the metrics of the project; a server has them at /metrics for Prometheus.

    They are read from the record for each scrape: nothing is kept in between, and nothing is lost by a restart.
    """
    from feed_assets.metrics.expositions import load_dashboard, render_graphite, render_prometheus

    if dashboard:
        say(load_dashboard(), nl=False)
        return
    from feed_assets.metrics.collecting import SERIES_LIMIT, Scraper

    settings = load_settings()
    found = Scraper(settings, open_state(settings), max_series or SERIES_LIMIT).scrape()
    if found.left_out:
        reason = f"there are more than {found.limit:,}. --max-series allows more."
        say(f"feed-assets: {found.left_out:,} series are left out: {reason}", err=True)
    say((render_graphite if form == GRAPHITE else render_prometheus)(found), nl=False)
