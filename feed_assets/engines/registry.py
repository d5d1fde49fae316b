"""The engines by their names in `workflow.engine`. Only an engine's run loads pyspark, not this module."""

from importlib import import_module
from types import MappingProxyType

from feed_assets.engines.errors import UnknownEngineError
from feed_assets.engines.port import Engine

_ENGINES = MappingProxyType(
    {
        "python": ("feed_assets.engines.python_engine", "PythonEngine"),
        "sql": ("feed_assets.engines.sql_engine", "SqlEngine"),
        "spark-submit": ("feed_assets.engines.spark_submit_engine", "SparkSubmitEngine"),
        "generate": ("feed_assets.engines.generate_engine", "GenerateEngine"),
    }
)
ENGINE_NAMES = tuple(_ENGINES)


def open_engine(name: str) -> Engine:
    """Return the engine of a name.

    Raises:
        UnknownEngineError: no engine has this name.

    >>> type(open_engine("python")).__name__
    'PythonEngine'
    """
    try:
        module, attribute = _ENGINES[name]
    except KeyError as exc:
        raise UnknownEngineError(name=name, known=ENGINE_NAMES) from exc
    engine = getattr(import_module(module), attribute)()
    assert isinstance(engine, Engine)
    return engine
