"""What people did to sweeps and holds, in the audit."""

from feed_assets.operations.scene import Scene
from feed_assets.state.audit import Audit
from feed_assets.state.definition_records import AuditEntry
from feed_assets.state.sweep_records import Sweep


def note(scene: Scene, author: str, action: str, sweep: Sweep, **details: object) -> None:
    """Note that somebody did something about a sweep."""
    note_target(scene, author, action, f"sweep {sweep.sweep_id}", cluster=sweep.cluster, **details)


def note_target(scene: Scene, author: str, action: str, target: str, **details: object) -> None:
    """Note that somebody did something about what `target` names."""
    entry = AuditEntry(recorded_at=scene.as_of, author=author, action=action, target=target, details=details)
    with scene.database.begin() as connection:
        Audit(connection).append(entry)
