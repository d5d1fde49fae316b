from tests.shops import postgres_port, shop_postgres
from tests.spark_session import spark

__all__ = ["postgres_port", "shop_postgres", "spark"]
