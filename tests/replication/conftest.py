from tests.instances.interruptions import make_storage

__all__ = ["make_storage"]
