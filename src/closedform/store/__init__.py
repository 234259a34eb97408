"""The demonstrated windows: where they are kept, and how the nearest are found."""

from closedform.store.build import build_model
from closedform.store.faiss_index import FaissIndex
from closedform.store.index import ExactIndex
from closedform.store.model import Model
from closedform.store.recall import Recall
from closedform.store.store import Store

__all__ = ["ExactIndex", "FaissIndex", "Model", "Recall", "Store", "build_model"]
