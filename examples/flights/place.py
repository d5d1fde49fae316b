"""The folders, the clock and the environment of the demo."""

import re
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console

from feed_assets.scaffolding.projects import read_dagster_yaml

ROOT = Path(__file__).resolve().parents[2]
MARKER = ".feed-assets-demo"
ORIGIN = datetime(2013, 11, 1, tzinfo=UTC)
LAST_DELIVERY = datetime(2013, 12, 1, 7, tzinfo=UTC)
UNTIL = datetime(2013, 12, 2, tzinfo=UTC)
"""The end of the clock: the month has arrived, and data older than 20 days have expired."""
START_UP = timedelta(seconds=12)
LATE_PROCESS = "daily-delays"
ENTITIES = "examples/flights/entities"
_STORAGE = re.compile(r"^storage: (file|s3)://.*\n(storage_options: .*\n)?", re.MULTILINE)

console = Console()


class DemoError(Exception):
    """The demo has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """The folders of one demo, and the addresses of the UI and of the object storage for copies.

    With `storage`, a URL, both clusters are below it.
    """

    folder: Path
    port: int
    seconds: float
    s3: str
    storage: str | None = None

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def source(self) -> str:
        """The URL of the storage in which the producers lay their files."""
        return f"{self.storage}/primary" if self.storage else self.data.as_uri()

    @property
    def entities(self) -> str:
        return str(self.folder / "entities") if self.storage else ENTITIES

    @property
    def home(self) -> Path:
        return self.folder / "dagster_home"

    @property
    def log(self) -> Path:
        return self.folder / "dagster.log"

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pages_port(self) -> int:
        return self.port + 30

    @property
    def pages(self) -> str:
        return f"http://127.0.0.1:{self.pages_port}"

    def environment(self, real_start: datetime) -> dict[str, str]:
        """Return the environment of Dagster's processes."""
        speed = (LAST_DELIVERY - ORIGIN).total_seconds() / self.seconds
        return {
            "DAGSTER_HOME": str(self.home),
            "FEED_ASSETS_ENTITIES": self.entities,
            "FEED_ASSETS_PREVIEWS": "true",
            "FEED_ASSETS_SERVER__URL": self.pages,
            "FEED_ASSETS_WEBSERVER": self.address,
            "FEED_ASSETS_VARIABLES__DATA_ROOT": str(self.data),
            "FEED_ASSETS_VARIABLES__S3_ENDPOINT": self.s3,
            "AWS_ACCESS_KEY_ID": "demo",
            "AWS_SECRET_ACCESS_KEY": "demo",
            "FEED_ASSETS_DEMO__REPLAY__ORIGIN": ORIGIN.isoformat(),
            "FEED_ASSETS_DEMO__REPLAY__REAL_START": real_start.isoformat(),
            "FEED_ASSETS_DEMO__REPLAY__SPEED": repr(speed),
            "FEED_ASSETS_DEMO__REPLAY__UNTIL": UNTIL.isoformat(),
        }

    def prepare(self) -> None:
        """Create the folders anew. A folder that does not belong to a demo is left alone."""
        if self.folder.exists():
            if not (self.folder / MARKER).exists():
                raise DemoError(f"{self.folder} exists and is not a demo's folder. Choose another with --folder.")
            shutil.rmtree(self.folder)
        self.data.mkdir(parents=True)
        self.home.mkdir()
        (self.folder / MARKER).touch()
        if self.storage:
            places = {"file": f"storage: {self.source}\n", "s3": f"storage: {self.storage}/backup\n"}
            for file in (ROOT / ENTITIES).iterdir():
                text = _STORAGE.sub(lambda found: places[found[1]], file.read_text("utf-8"))
                (self.folder / "entities").mkdir(exist_ok=True)
                (self.folder / "entities" / file.name).write_text(text, "utf-8")
        (self.home / "dagster.yaml").write_text(read_dagster_yaml(is_postgres=False), "utf-8")
