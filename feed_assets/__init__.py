"""The public interface: declare entities in Python, and build Dagster definitions from them or from files.

Names are loaded on first use, so that code without Dagster does not import it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from feed_assets.context.errors import InstanceNotThereError as InstanceNotThereError
    from feed_assets.engines.port import Context as Context
    from feed_assets.engines.port import InputEvent as InputEvent
    from feed_assets.entities.cluster import Cluster as Cluster
    from feed_assets.entities.cluster import ClusterInterface as ClusterInterface
    from feed_assets.entities.cluster import ClusterLocations as ClusterLocations
    from feed_assets.entities.cluster import InterfaceType as InterfaceType
    from feed_assets.entities.cluster import SparkConfig as SparkConfig
    from feed_assets.entities.common import Acl as Acl
    from feed_assets.entities.common import ColumnMetadata as ColumnMetadata
    from feed_assets.entities.common import EntityMetadata as EntityMetadata
    from feed_assets.entities.common import Kind as Kind
    from feed_assets.entities.common import Level as Level
    from feed_assets.entities.common import Locations as Locations
    from feed_assets.entities.common import Notification as Notification
    from feed_assets.entities.common import Occasion as Occasion
    from feed_assets.entities.common import Retention as Retention
    from feed_assets.entities.common import RetentionAction as RetentionAction
    from feed_assets.entities.common import RetentionType as RetentionType
    from feed_assets.entities.common import Sla as Sla
    from feed_assets.entities.common import SweepLimits as SweepLimits
    from feed_assets.entities.common import Validity as Validity
    from feed_assets.entities.content.made_up import MadeUpColumn as MadeUpColumn
    from feed_assets.entities.content.made_up import MadeUpDecimal as MadeUpDecimal
    from feed_assets.entities.content.quality import Comparison as Comparison
    from feed_assets.entities.content.quality import OnFail as OnFail
    from feed_assets.entities.content.quality import Quality as Quality
    from feed_assets.entities.copies.mirror import Mirror as Mirror
    from feed_assets.entities.copies.mirror import MirrorSnapshots as MirrorSnapshots
    from feed_assets.entities.copies.mirror import MirrorSource as MirrorSource
    from feed_assets.entities.copies.mirror import MirrorTarget as MirrorTarget
    from feed_assets.entities.copies.mirror import Removal as Removal
    from feed_assets.entities.copies.mirror import RemovalLimits as RemovalLimits
    from feed_assets.entities.copies.options import Columns as Columns
    from feed_assets.entities.copies.options import Existing as Existing
    from feed_assets.entities.copies.options import Preserve as Preserve
    from feed_assets.entities.copies.options import RemovedFiles as RemovedFiles
    from feed_assets.entities.copies.options import Verification as Verification
    from feed_assets.entities.datasource import Credential as Credential
    from feed_assets.entities.datasource import Datasource as Datasource
    from feed_assets.entities.datasource import DatasourceType as DatasourceType
    from feed_assets.entities.datasource import Driver as Driver
    from feed_assets.entities.datasource import Export as Export
    from feed_assets.entities.datasource import ExportTarget as ExportTarget
    from feed_assets.entities.datasource import Extract as Extract
    from feed_assets.entities.datasource import ExtractType as ExtractType
    from feed_assets.entities.datasource import Fields as Fields
    from feed_assets.entities.datasource import Import as Import
    from feed_assets.entities.datasource import ImportSource as ImportSource
    from feed_assets.entities.datasource import IncrementBy as IncrementBy
    from feed_assets.entities.datasource import Interface as Interface
    from feed_assets.entities.datasource import Interfaces as Interfaces
    from feed_assets.entities.datasource import Load as Load
    from feed_assets.entities.datasource import LoadType as LoadType
    from feed_assets.entities.datasource import MergePolicy as MergePolicy
    from feed_assets.entities.datasource import PasswordAlias as PasswordAlias
    from feed_assets.entities.errors import MetadataRefusedError as MetadataRefusedError
    from feed_assets.entities.feed import ClusterRole as ClusterRole
    from feed_assets.entities.feed import Duplicates as Duplicates
    from feed_assets.entities.feed import Feed as Feed
    from feed_assets.entities.feed import FeedCluster as FeedCluster
    from feed_assets.entities.feed import FeedFormat as FeedFormat
    from feed_assets.entities.feed import Inbox as Inbox
    from feed_assets.entities.feed import Instances as Instances
    from feed_assets.entities.feed import LateArrival as LateArrival
    from feed_assets.entities.feed import Lifecycle as Lifecycle
    from feed_assets.entities.feed import ProducedBy as ProducedBy
    from feed_assets.entities.feed import RetentionStage as RetentionStage
    from feed_assets.entities.feed import SchemaSource as SchemaSource
    from feed_assets.entities.process import CatchUp as CatchUp
    from feed_assets.entities.process import Input as Input
    from feed_assets.entities.process import LateProcess as LateProcess
    from feed_assets.entities.process import OnTimeout as OnTimeout
    from feed_assets.entities.process import Order as Order
    from feed_assets.entities.process import Output as Output
    from feed_assets.entities.process import Process as Process
    from feed_assets.entities.process import ProcessCluster as ProcessCluster
    from feed_assets.entities.process import ProcessSla as ProcessSla
    from feed_assets.entities.process import Retry as Retry
    from feed_assets.entities.process import RetryPolicy as RetryPolicy
    from feed_assets.entities.process import Take as Take
    from feed_assets.entities.replication import Replication as Replication
    from feed_assets.entities.triggers import AllOf as AllOf
    from feed_assets.entities.triggers import AnyOf as AnyOf
    from feed_assets.entities.triggers import Backlog as Backlog
    from feed_assets.entities.triggers import BatchRules as BatchRules
    from feed_assets.entities.triggers import OnPause as OnPause
    from feed_assets.entities.triggers import OnUpdate as OnUpdate
    from feed_assets.entities.triggers import StartFrom as StartFrom
    from feed_assets.entities.triggers import Trigger as Trigger
    from feed_assets.entities.triggers import Unchanged as Unchanged
    from feed_assets.entities.workflow import Step as Step
    from feed_assets.entities.workflow import StepEngine as StepEngine
    from feed_assets.entities.workflow import Workflow as Workflow
    from feed_assets.entities.workflow import WorkflowEngine as WorkflowEngine
    from feed_assets.errors import FeedAssetsError as FeedAssetsError
    from feed_assets.loading.process_functions import process as process
    from feed_assets.orchestration.component import FeedAssetsComponent as FeedAssetsComponent
    from feed_assets.orchestration.definitions import build_assets as build_assets
    from feed_assets.orchestration.definitions import build_definitions as build_definitions
    from feed_assets.orchestration.definitions import build_io_manager as build_io_manager
    from feed_assets.orchestration.graph.keys import get_asset_key as get_asset_key
    from feed_assets.orchestration.graph.translator import FeedAssetsTranslator as FeedAssetsTranslator
    from feed_assets.orchestration.graph.translator import FeedAssetsTranslatorData as FeedAssetsTranslatorData
    from feed_assets.orchestration.user_assets.loading import FeedIOManager as FeedIOManager
    from feed_assets.orchestration.user_assets.loading import load_instance as load_instance
    from feed_assets.orchestration.user_assets.loading import locate_instance as locate_instance
    from feed_assets.programs.calls import open_metadata as open_metadata
    from feed_assets.receivers import Channel as Channel

    __version__: str

_NAMES = {
    "feed_assets.engines.port": "Context InputEvent",
    "feed_assets.entities.cluster": "Cluster ClusterInterface ClusterLocations InterfaceType SparkConfig",
    "feed_assets.entities.common": (
        "Acl ColumnMetadata EntityMetadata Kind Level Locations Notification Occasion Retention "
        "RetentionAction RetentionType Sla SweepLimits Validity"
    ),
    "feed_assets.entities.content.made_up": "MadeUpColumn MadeUpDecimal",
    "feed_assets.entities.content.quality": "Comparison OnFail Quality",
    "feed_assets.entities.copies.mirror": "Mirror MirrorSnapshots MirrorSource MirrorTarget Removal RemovalLimits",
    "feed_assets.entities.copies.options": "Columns Existing Preserve RemovedFiles Verification",
    "feed_assets.entities.datasource": (
        "Credential Datasource DatasourceType Driver Export ExportTarget Extract ExtractType Fields Import "
        "ImportSource IncrementBy Interface Interfaces Load LoadType MergePolicy PasswordAlias"
    ),
    "feed_assets.entities.errors": "MetadataRefusedError",
    "feed_assets.entities.feed": (
        "ClusterRole Duplicates Feed FeedCluster FeedFormat Inbox Instances LateArrival Lifecycle ProducedBy "
        "RetentionStage SchemaSource"
    ),
    "feed_assets.entities.process": (
        "CatchUp Input LateProcess OnTimeout Order Output Process ProcessCluster ProcessSla Retry RetryPolicy Take"
    ),
    "feed_assets.entities.replication": "Replication",
    "feed_assets.entities.triggers": "AllOf AnyOf Backlog BatchRules OnPause OnUpdate StartFrom Trigger Unchanged",
    "feed_assets.entities.workflow": "Step StepEngine Workflow WorkflowEngine",
    "feed_assets.errors": "FeedAssetsError",
    "feed_assets.loading.process_functions": "process",
    "feed_assets.context.errors": "InstanceNotThereError",
    "feed_assets.programs.calls": "open_metadata",
    "feed_assets.orchestration.component": "FeedAssetsComponent",
    "feed_assets.orchestration.definitions": "build_assets build_definitions build_io_manager",
    "feed_assets.orchestration.graph.keys": "get_asset_key",
    "feed_assets.orchestration.graph.translator": "FeedAssetsTranslator FeedAssetsTranslatorData",
    "feed_assets.orchestration.user_assets.loading": "FeedIOManager load_instance locate_instance",
    "feed_assets.receivers": "Channel",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("feed-assets")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
