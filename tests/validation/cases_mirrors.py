"""The rules about mirrors; see `cases`."""

from typing import Any

from tests.validation.cases import Case

MIRROR = "process models"
CLOUD = {"cluster cloud": {"name": "cloud", "storage": "s3://bucket/data"}}
OWN = "Use a separate directory for the mirror."


def mirror(source: object, target: object, name: str = "models", **more: Any) -> dict[str, Any]:
    """A process that mirrors; sides are directories, or maps."""
    sides = {
        "source": source if isinstance(source, dict) else {"directory": source},
        "target": target if isinstance(target, dict) else {"cluster": "backup", "directory": target},
    }
    process = {
        "name": name,
        "frequency": "days(1)",
        "clusters": {"primary": {"validity": {"start": "2015-01-01T00:00Z"}}},
        "workflow": {"engine": "directory-mirror", "mirror": sides},
        **more,
    }
    return {f"process {name}": process}


INPUTS = {"clicks": {"feed": "clicks", "start": "today(0,0)", "end": "today(0,0)"}}
ENDING = {"primary": {"validity": {"start": "2015-01-02T00:00Z", "end": "2015-12-31T00:00Z"}}}
GOOD = mirror("/models", "/models")
ROUND = {
    **mirror(
        "file:///round/${cluster.from}",
        {"directory": "file:///round/${cluster.to}"},
        clusters={name: {"validity": {"start": "2015-01-01T00:00Z"}} for name in ("primary", "backup")},
    ),
    "cluster primary/properties": {"from": "a", "to": "b"},
}

MIRROR_CASES = (
    Case(
        code="mirror-work",
        name="inputs",
        good=GOOD,
        bad={**mirror("/models", "/models", inputs=INPUTS), "process models/clusters": ENDING},
        text="process 'models': a mirror cannot have inputs: its directories are not feeds. "
        "Remove inputs; to copy data with dates, use the replication of a feed.",
    ),
    Case(
        code="mirror-work",
        name="parallel",
        good=mirror("/models", "/models", parallel=1),
        bad=mirror("/models", "/models", parallel=2),
        text="process 'models': 2 concurrent instances would write the same directory. Remove parallel.",
    ),
    Case(
        code="unknown-reference",
        name="mirror",
        good={**GOOD, **CLOUD},
        bad=mirror({"cluster": "primry", "directory": "/models"}, "/models"),
        text="process 'models': there is no cluster 'primry'. Did you mean 'primary'?",
    ),
    Case(
        code="mirror-place",
        name="root",
        good={**mirror("file:///models", "s3://bucket/models"), **CLOUD},
        bad=mirror("/models", "//"),
        text="process 'models': mirror.target.directory '//' cannot be mirrored: it is the root of a "
        "storage. Name a directory below it.",
    ),
    Case(
        code="mirror-place",
        name="storage",
        bad=mirror("file:///data/", "/models"),
        text="process 'models': mirror.source.directory 'file:///data/' cannot be mirrored: it is the root of a "
        "storage. Name a directory below it.",
    ),
    Case(
        code="mirror-place",
        name="bucket",
        bad=mirror("s3://bucket", "/models"),
        text="process 'models': mirror.source.directory 's3://bucket' cannot be mirrored: it is the root of a "
        "storage. Name a directory below it.",
    ),
    Case(
        code="mirror-place",
        name="above",
        good=mirror("/a..b/models", "/models"),
        bad=mirror("/models/../etc", "/models"),
        text="process 'models': mirror.source.directory '/models/../etc' cannot be mirrored: its path contains '..'. "
        "Write the path of a directory in full.",
    ),
    Case(
        code="mirror-place",
        name="hidden",
        bad=mirror({"directories": ["/models", "/x/.feed-assets/trash"]}, "/models"),
        text="process 'models': mirror.source.directories.1 '/x/.feed-assets/trash' cannot be mirrored: its path "
        "contains '.feed-assets'. Write the path of a directory in full.",
    ),
    Case(
        code="mirror-place",
        name="dates",
        good=mirror("/models/${cluster.colo}", "/models/${cluster.colo}"),
        bad=mirror("/models/${YEAR}", "/models"),
        text="process 'models': mirror.source.directory '/models/${YEAR}' cannot be mirrored: its path has dates, so "
        "it is the location of a feed. Declare a feed with replication for it.",
    ),
    Case(
        code="mirror-place",
        name="scheme",
        bad=mirror("hdfs://host/models", "/models"),
        text="process 'models': mirror.source.directory 'hdfs://host/models' cannot be mirrored: "
        "'hdfs' storage is not supported. Use one of abfs, abfss, az, file, gcs, gs, memory, s3, s3a, sftp.",
    ),
    Case(
        code="mirror-overlap",
        name="itself",
        good=mirror("/models", {"directory": "/models2"}),
        bad=mirror("/models", {"directory": "/models/copy"}),
        text="process 'models': the mirror would write file:///data/models/copy, which is inside its source, "
        f"file:///data/models. {OWN}",
    ),
    Case(
        code="mirror-overlap",
        name="around",
        bad=mirror("/a/models", "file:///data/a"),
        text="process 'models': the mirror would write file:///data/a, which is around its source, "
        f"file:///data/a/models. {OWN}",
    ),
    Case(
        code="mirror-overlap",
        name="directories",
        good=mirror({"directories": ["/a/models", "/b/tables"]}, "/all"),
        bad=mirror({"directories": ["/a/models", "/b/models/v1", "/c/models"]}, "/all"),
        text="process 'models': the mirror would write file:///backup/all/models, which is at another target of it, "
        f"file:///backup/all/models. {OWN}",
    ),
    Case(
        code="mirror-overlap",
        name="clusters",
        good=mirror(
            "/models",
            {"directory": "/copy"},
            clusters={name: {"validity": {"start": "2015-01-01T00:00Z"}} for name in ("primary", "backup")},
        ),
        bad=mirror(
            {"cluster": "primary", "directory": "/models"},
            "/models",
            clusters={name: {"validity": {"start": "2015-01-01T00:00Z"}} for name in ("primary", "backup")},
        ),
        text="process 'models': the mirror would write file:///backup/models, which is at its target on cluster "
        f"'backup', file:///backup/models. {OWN}",
    ),
    Case(
        code="mirror-overlap",
        name="feed",
        good=mirror("/models", "/clicks/models"),
        bad=mirror("/models", "/clicks/2015"),
        text="process 'models': the mirror would write file:///backup/clicks/2015, which is around the data of feed "
        f"'clicks' on backup, file:///backup/clicks/${{YEAR}}/${{MONTH}}/${{DAY}}/${{HOUR}}. {OWN}",
    ),
    Case(
        code="mirror-overlap",
        name="storage",
        bad={**mirror("/models", "s3://bucket/data"), **CLOUD},
        text="process 'models': the mirror would write s3://bucket/data, which is at the storage of cluster 'cloud', "
        f"s3://bucket/data. {OWN}",
    ),
    Case(
        code="copy-ring",
        good={**ROUND, "cluster backup/properties": {"from": "c", "to": "d"}},
        bad={**ROUND, "cluster backup/properties": {"from": "b", "to": "a"}},
        text="process 'models': what it copies from file:///round/a to file:///round/b comes back there through "
        "process 'models'. Remove one of these copies, or let it write elsewhere.",
    ),
    Case(
        code="mirror-patterns",
        good={**GOOD, f"{MIRROR}/workflow/mirror/include": ["**.csv", "{a,b}/*"]},
        bad={**GOOD, f"{MIRROR}/workflow/mirror/exclude": ["*.tmp", "{a,b/*"]},
        text="process 'models': mirror.exclude '{a,b/*' is not a glob: its '{' is not closed. "
        "Write globs such as **.csv, {a,b} or [a-z].",
    ),
)
