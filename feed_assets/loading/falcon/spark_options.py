"""Convert Falcon's `spark-opts`, one line of spark-submit options, to our `conf` and `submit`, and back."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")  # num-executors
_CONF = ("--conf", "-c")
_SUPERVISE, _SUPERVISE_CONF = "--supervise", "spark.driver.supervise"
_WITHOUT_EFFECT = frozenset({"--verbose", "-v"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """Configuration, other options by their names without dashes, and `faults` for words that are neither."""

    conf: Mapping[str, str]
    submit: Mapping[str, str]
    faults: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


def parse_spark_options(text: str) -> SparkOptions:
    """Parse a line of options.

    >>> options = parse_spark_options("--num-executors 2 --conf 'spark.executor.extraJavaOptions=-Da=1 -Db=2' --x=1 y")
    >>> dict(options.conf), dict(options.submit), options.faults
    ({'spark.executor.extraJavaOptions': '-Da=1 -Db=2'}, {'num-executors': '2', 'x': '1'}, ("'y' is not an option",))
    """
    try:
        words = shlex.split(text)
    except ValueError as exc:
        return SparkOptions(conf={}, submit={}, faults=(f"its quotes do not match ({exc})",))
    conf: dict[str, str] = {}
    submit: dict[str, str] = {}
    faults: list[str] = []
    ignored: list[str] = []
    waiting = iter(words)
    for word in waiting:
        option, has_value, value = word.partition("=")
        if word in _WITHOUT_EFFECT:
            ignored.append(word)
        elif word == _SUPERVISE:
            conf[_SUPERVISE_CONF] = "true"
        elif not option.startswith("--") and option not in _CONF:
            faults.append(f"{word!r} is not an option")
        else:
            text_of = value if has_value else next(waiting, None)
            if text_of is None:
                faults.append(f"{word!r} has no value")
            elif option in _CONF:
                name, separator, setting = text_of.partition("=")
                if separator:
                    conf[name] = setting
                else:
                    faults.append(f"{text_of!r} is not name=value")
            else:
                submit[option.removeprefix("--")] = text_of
    return SparkOptions(conf=conf, submit=submit, faults=tuple(faults), ignored=tuple(ignored))


def render_spark_options(conf: Mapping[str, str], submit: Mapping[str, str]) -> str:
    """Render options as one line; options whose names are not valid there are left out.

    >>> render_spark_options({"spark.a": "1 2"}, {"num-executors": "2"})
    "--num-executors 2 --conf 'spark.a=1 2'"
    """
    words = [word for name, value in submit.items() if _is_option(name) for word in (f"--{name}", value)]
    words += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    return shlex.join(words)


def _is_option(name: str) -> bool:
    option = f"--{name}"
    return _NAME.fullmatch(name) is not None and option not in (*_CONF, _SUPERVISE, *_WITHOUT_EFFECT)
