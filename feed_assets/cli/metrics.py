"""`metrics`: the record in numbers, for Prometheus and Graphite, and a dashboard for Grafana."""

import signal
from threading import Event
from typing import TYPE_CHECKING, Any

import click

from feed_assets.cli.groups import Verb
from feed_assets.cli.progress import status_line
from feed_assets.cli.render import say
from feed_assets.cli.state import open_state
from feed_assets.settings import load_settings

if TYPE_CHECKING:
    from feed_assets.metrics.records import Metrics

PROMETHEUS, GRAPHITE = "prometheus", "graphite"
LARGEST_PORT = 65_535
LOOPBACK = "127.0.0.1"


class AddressType(click.ParamType[tuple[str, int]]):
    """An address such as 9464, 0.0.0.0:9464 or [::1]:9464; without a host, the loopback."""

    name = "host:port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Parse an address."""
        host, _, port = str(value).rpartition(":")
        if not port.isdecimal() or int(port) > LARGEST_PORT:
            self.fail(f"{value!r} is no address. Write a port such as 9464, or HOST:PORT.", param, ctx)
        if ":" in host and not (host.startswith("[") and host.endswith("]")):
            self.fail(f"{value!r} is no address. Write [{host}]:{port} for an IPv6 host.", param, ctx)
        return host.strip("[]") or LOOPBACK, int(port)


@click.command(cls=Verb, epilog="Example: feed-assets metrics --listen 9464")
@click.option(
    "--format",
    "form",
    type=click.Choice([PROMETHEUS, GRAPHITE]),
    default=PROMETHEUS,
    show_default=True,
    help="The form: Prometheus' text format, or Graphite's plaintext protocol.",
)
@click.option(
    "--listen",
    type=AddressType(),
    metavar="[HOST:]PORT",
    help="Serve them at http://HOST:PORT/metrics until the command is stopped; without a host, to this machine only.",
)
@click.option(
    "--max-series",
    type=click.IntRange(min=1),
    help="At most so many series; 50,000 by default. Entities beyond are left out.",
)
@click.option("--dashboard", is_flag=True, help="Print the dashboard for Grafana instead.")
def metrics(form: str, listen: tuple[str, int] | None, max_series: int | None, dashboard: bool) -> None:
    """Print the metrics of the project, or serve them to Prometheus.

    They are read from the record for each scrape: nothing is kept in between, and nothing is lost by a restart.
    """
    if form == GRAPHITE and listen is not None:
        raise click.UsageError("Graphite does not ask: leave out --listen, and send what is printed to its port.")
    if dashboard:
        from feed_assets.metrics.expositions import load_dashboard

        say(load_dashboard(), nl=False)
        return
    from feed_assets.metrics.collecting import SERIES_LIMIT, Scraper

    settings = load_settings()
    database = open_state(settings)
    scraper, warnings = Scraper(settings, database, max_series or SERIES_LIMIT), _Warnings()

    def collect() -> "Metrics":
        found = scraper.scrape()
        warnings.tell(
            f"{found.left_out:,} series are left out: there are more than {found.limit:,}. --max-series allows more."
            if found.left_out
            else None
        )
        return found

    if listen is not None:
        _serve(collect, listen, warnings)
    else:
        from feed_assets.metrics.expositions import render_graphite, render_prometheus

        render = render_graphite if form == GRAPHITE else render_prometheus
        say(render(collect()), nl=False)


class _Warnings:
    """Messages of repeated scrapes: one is told when it is another one than before."""

    def __init__(self) -> None:
        self._last: str | None = None

    def tell(self, message: str | None) -> None:
        """Tell a message; None says that there is nothing to tell any more."""
        if message is not None and message != self._last:
            say(f"feed-assets: {message}", err=True)
        self._last = message


def _serve(collect: Any, address: tuple[str, int], warnings: _Warnings) -> None:
    """Serve until SIGINT or SIGTERM."""
    from feed_assets.metrics.serving import serving_metrics

    stopped = Event()
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with serving_metrics(collect, *address, warnings.tell) as url, status_line.waiting_for("scrapes"):
            say(f"serving {url}", err=True)
            stopped.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
