"""Demonstrations: episodes, layouts, file formats, and the sliding windows cut from episodes."""

from closedform.demos.catalog import CATALOG, Dataset, cache_folder
from closedform.demos.chunks import Chunks
from closedform.demos.demos import Demos
from closedform.demos.download import get_dataset
from closedform.demos.episode import Episode
from closedform.demos.infer import InferredLayouts
from closedform.demos.load import load_demos, save_demos
from closedform.demos.parts import RecordError, recover
from closedform.demos.recorder import Recorder
from closedform.demos.verify import Verification, verify_demos
from closedform.geometry.layout import Entry, Layout

__all__ = [
    "CATALOG",
    "Chunks",
    "Dataset",
    "Demos",
    "Entry",
    "Episode",
    "InferredLayouts",
    "Layout",
    "RecordError",
    "Recorder",
    "Verification",
    "cache_folder",
    "get_dataset",
    "load_demos",
    "recover",
    "save_demos",
    "verify_demos",
]
