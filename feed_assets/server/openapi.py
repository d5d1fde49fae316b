"""The OpenAPI document of the routes, from the declarations of their operations."""

from collections.abc import Mapping, Sequence
from typing import Any

from feed_assets.server.routes import OperationRoute


def describe_routes(routes: Sequence[OperationRoute]) -> Mapping[str, Any]:
    """Return the OpenAPI document."""
    paths = {each.path: {each.method.lower(): {"summary": each.operation.sentence}} for each in routes}
    return {"openapi": "3.1.0", "info": {"title": "feed-assets", "version": "1"}, "paths": paths}
