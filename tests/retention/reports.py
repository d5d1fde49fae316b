"""Reads Falcon's `evicted-instancePaths.csv`."""


def parse_evicted_paths(text: str) -> list[str]:
    """The paths in the content of such a file, also of Falcon's own, which ends with a comma."""
    return [path for path in text.strip().removeprefix("instancePaths=").split(",") if path]
