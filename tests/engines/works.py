"""Works, inputs and outputs for the tests of engines: small, real files."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from feed_assets.engines.port import InputData, InputInstance, OutputTarget, SubmitOptions, Work

NOMINAL_TIME = datetime(2013, 11, 3, 4, tzinfo=UTC)
FLIGHTS = "origin string, delay int"


def flights(folder: Path, *contents: str, name: str = "flights") -> InputData:
    """An input of one csv file an hour."""
    instances = []
    for hour, content in enumerate(contents):
        directory = folder / name / f"{hour:02d}"
        directory.mkdir(parents=True)
        (directory / "part.csv").write_text(content)
        instances.append(InputInstance(nominal_time=NOMINAL_TIME + timedelta(hours=hour), url=directory.as_uri()))
    return InputData(name=name, feed="flights", instances=tuple(instances), format="csv", columns=FLIGHTS)


def target(folder: Path, *, name: str = "out", columns: str | None = "origin string, delay int") -> OutputTarget:
    url = (folder / "staging" / name).as_uri()
    return OutputTarget(name=name, feed=f"{name}-feed", url=url, format="csv", columns=columns)


def work(
    root: Path,
    path: str,
    *,
    engine: str = "python",
    inputs: tuple[InputData, ...] = (),
    outputs: tuple[OutputTarget, ...] = (),
    properties: Mapping[str, str] | None = None,
    libs: tuple[str, ...] = (),
    submit: SubmitOptions | None = None,
) -> Work:
    return Work(
        process="daily-delays",
        cluster="primary",
        nominal_time=NOMINAL_TIME,
        timezone=ZoneInfo("America/New_York"),
        run_id="5b0c0c9e-7c1f-4f0c-9f57-0d3a5a3f6a11",
        attempt=1,
        inputs=inputs,
        outputs=outputs,
        engine=engine,
        path=path,
        root=root,
        properties=properties or {},
        libs=libs,
        submit=submit,
    )


def written_lines(output: OutputTarget) -> list[str]:
    """The lines of a written csv, headers and order of the parts aside."""
    folder = Path(output.url.removeprefix("file://"))
    lines = [file.read_text().splitlines() for file in sorted(folder.glob("part-*"))]
    return sorted(line for part in lines for line in part[1:])
