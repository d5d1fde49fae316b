"""Where and when the demo takes place: its folders, its clock, and what its processes are told."""

import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console

ROOT = Path(__file__).resolve().parents[2]
DAGSTER_YAML = ROOT / "examples" / "dagster_home" / "sqlite" / "dagster.yaml"
MARKER = ".feed-assets-demo"
ORIGIN = datetime(2013, 11, 1, tzinfo=UTC)
LAST_DELIVERY = datetime(2013, 12, 1, 7, tzinfo=UTC)
UNTIL = datetime(2013, 12, 2, tzinfo=UTC)
"""Where the clock stops: the month has arrived, and what is older than 20 days has expired."""
START_UP = timedelta(seconds=12)
LATE_PROCESS = "daily-delays"

console = Console()


class DemoError(Exception):
    """Why the demo could not do what it shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """The folders and the addresses of one demo: of the UI, and of the object storage that copies are made to."""

    folder: Path
    port: int
    seconds: float
    s3: str

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def home(self) -> Path:
        return self.folder / "dagster_home"

    @property
    def log(self) -> Path:
        return self.folder / "dagster.log"

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def environment(self, real_start: datetime) -> dict[str, str]:
        """What Dagster's processes are told."""
        speed = (LAST_DELIVERY - ORIGIN).total_seconds() / self.seconds
        return {
            "DAGSTER_HOME": str(self.home),
            "FEED_ASSETS_ENTITIES": "examples/flights/entities",
            "FEED_ASSETS_VARIABLES__DATA_ROOT": str(self.data),
            "FEED_ASSETS_VARIABLES__S3_ENDPOINT": self.s3,
            "FEED_ASSETS_DEMO__REPLAY__ORIGIN": ORIGIN.isoformat(),
            "FEED_ASSETS_DEMO__REPLAY__REAL_START": real_start.isoformat(),
            "FEED_ASSETS_DEMO__REPLAY__SPEED": repr(speed),
            "FEED_ASSETS_DEMO__REPLAY__UNTIL": UNTIL.isoformat(),
        }

    def prepare(self) -> None:
        """Make the folders anew; a folder that is not a demo's is left alone."""
        if self.folder.exists():
            if not (self.folder / MARKER).exists():
                raise DemoError(f"{self.folder} exists and is no demo's folder. Name another with --folder.")
            shutil.rmtree(self.folder)
        self.data.mkdir(parents=True)
        self.home.mkdir()
        (self.folder / MARKER).touch()
        shutil.copy(DAGSTER_YAML, self.home / "dagster.yaml")
