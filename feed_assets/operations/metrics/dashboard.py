"""The dashboard for Grafana, as it is imported there."""

from pathlib import Path

_FILE = Path(__file__).with_name("dashboard.json")


def load_dashboard() -> str:
    """Return the JSON document of the dashboard."""
    return _FILE.read_text("utf-8")
