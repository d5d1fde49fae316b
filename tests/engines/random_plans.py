"""Random programs over two small inputs, and inputs in which one column has other values."""

import random
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from itertools import count

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

SCHEMAS = {"a": ("k", "v", "w", "s"), "late-b": ("k", "z", "t")}
STRINGS = frozenset({"s", "t"})
NAMES = ("a#1", "b, c", "p(q", "x) AS y", "n\nl", "dot.ted", "`q`", '"d"', "ü [1]", "plain", "k#0L")
LITERALS = (*["-"] * 12, "(", ")", "a#1", "x, y", "] AS v#7", "it's", "}{")
Rows = list[tuple[object, ...]]


def contents(seed: int) -> dict[str, Rows]:
    chance = random.Random(seed)
    return {
        name: [tuple(_value(chance, column) for column in columns) for _ in range(7)]
        for name, columns in SCHEMAS.items()
    }


def changed(seed: int, content: Mapping[str, Rows], of: str, column: str) -> dict[str, Rows]:
    chance, place = random.Random(f"{seed} {of} {column}"), SCHEMAS[of].index(column)
    rows = [(*row[:place], _value(chance, column), *row[place + 1 :]) for row in content[of]]
    return {**content, of: rows}


def frames(spark: SparkSession, content: Mapping[str, Rows]) -> dict[str, DataFrame]:
    made = {}
    for name, rows in content.items():
        values = ", ".join(f"({', '.join(map(repr, row))})" for row in rows)
        made[name] = spark.sql(f"SELECT * FROM VALUES {values} AS t({', '.join(SCHEMAS[name])})")
    return made


def _value(chance: random.Random, column: str) -> object:
    return chance.choice(["x", "y", "x,y", "y,z,x", "q(z"]) if column in STRINGS else chance.randint(0, 4)


def column(name: str) -> Column:
    return sf.col(f"`{name.replace('`', '``')}`")


class Program:
    """A program that is made anew from its seed, the same over any inputs."""

    def __init__(self, seed: int, *, with_python: bool) -> None:
        self._seed = seed
        self._with_python = with_python

    def run(self, spark: SparkSession, inputs: Mapping[str, DataFrame]) -> DataFrame:
        self.spark, self.inputs = spark, inputs
        self.chance, self.numbers = random.Random(self._seed), count()
        frame = self._start()
        verbs = [*_VERBS, *(_PYTHON if self._with_python else ())]
        for _ in range(self.chance.randint(2, 5)):
            frame = self.chance.choice(verbs)(self, frame)
            if len(frame.columns) > 9:
                frame = frame.select(*map(column, self.chance.sample(frame.columns, 5)))
        return frame

    def _start(self) -> DataFrame:
        frame = self.inputs[self.chance.choice(list(SCHEMAS))]
        names = [self._name() for _ in frame.columns]
        return frame.toDF(*names) if self.chance.random() < 0.5 else self._suffixed(frame)

    def _suffixed(self, frame: DataFrame) -> DataFrame:
        return frame.select(*(column(name).alias(f"{name}{next(self.numbers)}") for name in frame.columns))

    def _name(self) -> str:
        return f"{self.chance.choice(NAMES)}{next(self.numbers)}"

    def any(self, frame: DataFrame) -> Column:
        return column(self.chance.choice(frame.columns))

    def number(self, frame: DataFrame) -> Column:
        return sf.length(self.any(frame).cast("string")) if self.chance.random() < 0.3 else self._integer(frame)

    def _integer(self, frame: DataFrame) -> Column:
        return sf.coalesce(self.any(frame).cast("string").try_cast("bigint"), sf.lit(-1))

    def text(self, frame: DataFrame) -> Column:
        literal = sf.lit(self.chance.choice(LITERALS))
        return sf.concat_ws(self.chance.choice(LITERALS), self.any(frame).cast("string"), literal)


def _calculate(program: Program, frame: DataFrame) -> DataFrame:
    one, other = program.number(frame), program.number(frame)
    value = program.chance.choice([one + other, (one * other) % 7, sf.when(one > other, one).otherwise(3)])
    return frame.withColumn(program._name(), value).withColumn(program._name(), program.text(frame))


def _replace(program: Program, frame: DataFrame) -> DataFrame:
    return frame.withColumn(program.chance.choice(frame.columns), program.number(frame))


def _filter(program: Program, frame: DataFrame) -> DataFrame:
    return frame.where(program.number(frame) >= program.chance.randint(0, 2))


def _join(program: Program, frame: DataFrame) -> DataFrame:
    other = program._start()
    kind = program.chance.choice(["inner", "left", "right", "full", "leftsemi", "leftanti"])
    return frame.join(other, program.number(frame) == program.number(other), kind)


def _self_join(program: Program, frame: DataFrame) -> DataFrame:
    other = frame.toDF(*(program._name() for _ in frame.columns))
    return frame.join(other, program.number(frame) == program.number(other), "left").limit(10**6)


def _group(program: Program, frame: DataFrame) -> DataFrame:
    value = program.number(frame)
    made = [sf.sum(value), sf.max(program.any(frame)), sf.count(sf.lit(1)), sf.count_distinct(program.any(frame))]
    chosen = program.chance.sample(made, 2)
    keys = [program.number(frame).alias(program._name()), program.any(frame).alias(program._name())]
    keys = keys[: program.chance.randint(0, 2)]
    return frame.groupBy(*keys).agg(*(each.alias(program._name()) for each in chosen))


def _window(program: Program, frame: DataFrame) -> DataFrame:
    part = Window.partitionBy(program.number(frame))
    total = part.orderBy(*map(column, frame.columns))
    made = [
        sf.row_number().over(total),
        sf.sum(program.number(frame)).over(part),
        sf.lag(program.any(frame)).over(total),
        sf.sum(program.number(frame)).over(total),
    ]
    return frame.withColumn(program._name(), program.chance.choice(made))


def _union(program: Program, frame: DataFrame) -> DataFrame:
    names = [column(program.chance.choice(frame.columns)).cast("string") for _ in frame.columns]
    texts = frame.select(*(column(name).cast("string").alias(name) for name in frame.columns))
    other = frame.where(program.number(frame) > 1).select(*names)
    verbs: list[Callable[[DataFrame, DataFrame], DataFrame]] = [
        DataFrame.union,
        DataFrame.intersect,
        DataFrame.subtract,
        DataFrame.exceptAll,
    ]
    return program.chance.choice(verbs)(texts, other)


def _distinct(program: Program, frame: DataFrame) -> DataFrame:
    keys = program.chance.sample(frame.columns, max(1, len(frame.columns) - 1))
    return frame.select(*map(column, keys)).distinct()


def _explode(program: Program, frame: DataFrame) -> DataFrame:
    parts = sf.split(program.any(frame).cast("string"), program.chance.choice([",", r"\(", r"[,\(\]]"]))
    explode = program.chance.choice([sf.explode, sf.explode_outer])
    return frame.select("*", explode(parts).alias(program._name()))


def _pivot(program: Program, frame: DataFrame) -> DataFrame:
    flat = frame.select(
        program.number(frame).alias("g"), program.number(frame).alias("p"), program.any(frame).alias("x")
    )
    return program._suffixed(flat.groupBy("g").pivot("p", [0, 1, 2]).agg(sf.max("x"), sf.count("x")))


def _unpivot(program: Program, frame: DataFrame) -> DataFrame:
    made = frame.select(*(program.number(frame).alias(name) for name in "ijk"))
    return program._suffixed(made.unpivot(["i"], ["j", "k"], "n", "x"))


def _sort(program: Program, frame: DataFrame) -> DataFrame:
    return frame.sort(program.number(frame), *map(column, frame.columns)).limit(program.chance.randint(2, 9))


def _nest(program: Program, frame: DataFrame) -> DataFrame:
    made = frame.select("*", sf.struct(program.any(frame).alias("m"), program.number(frame).alias("o")).alias("st"))
    return made.withColumn(program._name(), sf.col("st.m")).drop("st")


def _view(program: Program, frame: DataFrame) -> DataFrame:
    """A query over a view of three columns."""
    columns = [program.number(frame).alias("i"), program.number(frame).alias("j"), program.any(frame).alias("x")]
    frame.select(*columns).createOrReplaceTempView("mine")
    program.inputs["late-b"].createOrReplaceTempView("other")
    return program._suffixed(program.spark.sql(program.chance.choice(_QUERIES)))


_QUERIES = (
    "WITH c AS (SELECT i, max(x) AS m FROM mine GROUP BY i), d AS (SELECT * FROM c WHERE i > 0) "
    "SELECT c.i, d.m, c.m AS n FROM c LEFT JOIN d ON c.i = d.i + 1",
    "SELECT i, (SELECT max(z) FROM other WHERE other.k = mine.j) AS m, x FROM mine",
    "SELECT i, x FROM mine WHERE j IN (SELECT k FROM other WHERE z > 1)",
    "SELECT i, j IN (SELECT k FROM other) AS f, x FROM mine WHERE i >= (SELECT min(z) FROM other)",
    "SELECT i, j FROM mine WHERE NOT EXISTS (SELECT 1 FROM other WHERE other.k = mine.i AND z > 0)",
    "SELECT i, q FROM mine, LATERAL (SELECT z + mine.j AS q FROM other WHERE other.k = mine.i)",
    "SELECT i, x, sum(j) AS n, grouping(i) AS g FROM mine GROUP BY ROLLUP (i, x)",
    "SELECT i, sum(j) AS n FROM mine GROUP BY i HAVING max(j) > 1",
    "SELECT i + 1 AS y, y * 2 AS yy, transform(array(i, j), e -> e + i) AS t FROM mine",
    "SELECT i, p, e FROM mine LATERAL VIEW OUTER posexplode(split(cast(x AS STRING), ',')) l AS p, e",
    "SELECT i, id FROM mine JOIN range(4) ON id = j",
    "SELECT m.i, o.t FROM mine AS m JOIN (VALUES (0, 'o'), (1, 'p')) AS o(n, t) ON m.j = o.n",
    "SELECT x, count(*) FILTER (WHERE i > 1) AS n, concat(max(j), ' AS (') AS c FROM mine GROUP BY x",
)


def _compute(program: Program, frame: DataFrame) -> DataFrame:
    double = sf.udf(lambda number: number and 2 * number, "bigint")
    return frame.withColumn(program._name(), double(program.number(frame)) + program.number(frame))


def _map(program: Program, frame: DataFrame) -> DataFrame:
    def halve(parts: Iterator[object]) -> Iterator[object]:
        for part in parts:
            yield part[part["i"] > 0]  # type: ignore[index]

    made = frame.select(program.number(frame).alias("i"), program.number(frame).alias("j"))
    return program._suffixed(made.mapInPandas(halve, "i bigint, j bigint"))


def _apply(program: Program, frame: DataFrame) -> DataFrame:
    made = frame.select(program.number(frame).alias("i"), program.number(frame).alias("j"))
    return program._suffixed(made.groupBy("i").applyInPandas(lambda part: part.head(1)[["i"]], "i bigint"))


_VERBS: list[Callable[[Program, DataFrame], DataFrame]] = [
    _calculate,
    _replace,
    _filter,
    _join,
    _self_join,
    _group,
    _window,
    _union,
    _distinct,
    _explode,
    _pivot,
    _unpivot,
    _sort,
    _nest,
    _view,
    _view,
]
_PYTHON = [_compute, _map, _apply]


def run_all(spark: SparkSession, program: Program, contents: list[dict[str, Rows]]) -> list[list[list[str]]]:
    """The values of each column of a program, over each content, in one job."""
    runs = [program.run(spark, frames(spark, content)) for content in contents]
    texts = [
        run.select(
            sf.lit(number).alias("n"), sf.array(*(column(name).cast("string") for name in run.columns)).alias("r")
        )
        for number, run in enumerate(runs)
    ]
    found: list[list[list[str | None]]] = [[] for _ in contents]
    for number, row in reduce(DataFrame.union, texts).collect():
        found[number].append(row)
    width = len(runs[0].columns)
    return [[sorted(str(row[place]) for row in rows) for place in range(width)] for rows in found]
