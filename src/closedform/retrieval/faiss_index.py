"""FaissIndex: approximate search in large sets of demonstrations (extra `ann`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from closedform.errors import DataError, LoadError, MissingExtraError, SaveError
from closedform.files import BLOCK as BYTES
from closedform.files import name_of
from closedform.retrieval.faiss_file import IndexFile, IndexSeal
from closedform.retrieval.index import ExactIndex

BLOCK = 100_000  # rows whose features are computed at once
_POINTS_PER_LIST, _ITERATIONS = 64, 8  # of the k-means that makes the lists
N_QUERIES = 200  # windows that recall is measured with
_CARRIES_WEIGHT = 1e-3  # of the largest weight
_FOR_THE_METRIC = 0.8  # of all neighbors, which the local metric is measured from


@dataclass(frozen=True)
class Recall:
    """How much of what exact search finds an index finds, for windows whose own episode is left out.

    Attributes:
        target: the share of neighbors that carry weight that was asked for.
        weighty: the share that is found.
        all: the share of all k neighbors that is found, which the metric is measured from.
        n_queries: windows that were asked for.
        n_probes, n_lists: lists that a query looks through, and how many there are.
        seconds: that building took.
    """

    target: float
    weighty: float
    all: float
    n_queries: int
    n_probes: int
    n_lists: int
    seconds: float


class FaissIndex:
    """An inverted file of faiss: rows in lists around the nearest of many centers, of which a query visits a few.

    Rows are compared in 8 bits a number. With thousands of neighbors to find, hierarchical navigable small worlds
    (HNSW) are slower to search and to build (`make bench`, "more demonstrations"). The file never changes; rows added
    later are searched exactly, and so they are found by the next query.

    Args:
        features: (n, D), an array, or one that is computed.
        faiss_index: of the first rows.
        recall: what was measured.
        added: the rows after those.
        hidden: the first row, and the one after the last, that no query is to find.
        source: the file that it lies in, if it was not built.
    """

    def __init__(
        self,
        features: Any,
        faiss_index: Any,
        recall: Recall,
        added: ExactIndex,
        hidden: tuple[int, int] = (0, 0),
        source: Source | None = None,
    ):
        self._features = features
        self._faiss = faiss_index
        self._added = added
        self._hidden = hidden
        self._source = source
        self.recall = recall

    @classmethod
    def build(
        cls,
        features: Any,
        target: float,
        k: int,
        weigh: Callable[[np.ndarray, np.ndarray], np.ndarray],
        episodes: Any,
        longest: int,
        progress: Callable[[str, float], object] = lambda what, share: None,
    ) -> FaissIndex:
        """Builds the lists, and finds how many of them must be visited for a recall.

        Args:
            features: (n, D)
            target: the share to find of the neighbors that carry weight.
            k: neighbors that are asked for.
            weigh: of a query's features (D,) and some rows, the weights of these, the largest being 1.
            episodes: (n,), the episode of each row.
            longest: the number of rows of the longest episode.
            progress: is told what is being done and which share of it is.
        """
        faiss = _import_faiss()
        began = time.perf_counter()
        n, width = len(features), features[:1].shape[1]
        n_lists = max(1, min(int(2 ** np.round(np.log2(4 * np.sqrt(n)))), n // _POINTS_PER_LIST))
        quantizer = faiss.IndexFlatL2(width)
        index = faiss.IndexIVFScalarQuantizer(quantizer, width, n_lists, faiss.ScalarQuantizer.QT_8bit)
        index.own_fields = True
        quantizer.this.disown()
        index.cp.niter, index.cp.max_points_per_centroid, index.cp.min_points_per_centroid = (
            _ITERATIONS,
            _POINTS_PER_LIST,
            1,
        )
        progress("finding centers", 0.0)
        sample = np.unique(np.linspace(0, n - 1, min(n, _POINTS_PER_LIST * n_lists)).astype(np.int64))
        index.train(_single(features[sample]))
        for start in range(0, n, BLOCK):
            progress("filling lists", start / n)
            index.add(_single(features[start : start + BLOCK]))
        judged = _Judged.exactly(features, k, weigh, episodes, longest, progress)
        n_probes = 1
        while n_probes < n_lists and not judged.suffices(index, n_probes, target):
            n_probes *= 2
        low, high = n_probes // 2, min(n_probes, n_lists)
        while high - low > 1:  # the fewest lists that reach the target
            middle = (low + high) // 2
            low, high = (low, middle) if judged.suffices(index, middle, target) else (middle, high)
        weighty, found = judged.recall_of(index, high)
        seconds = time.perf_counter() - began
        recall = Recall(target, weighty, found, len(judged.queries), high, n_lists, seconds)
        return cls(features, index, recall, ExactIndex(np.empty((0, width))))

    @classmethod
    def read(
        cls,
        file: BinaryIO,
        path: Path,
        features: Any,
        recall: Recall,
        n_indexed: int,
        seal: IndexSeal | None,
        *,
        whole: bool,
    ) -> FaissIndex:
        """Opens an index of `n_indexed` rows that `write` wrote; its lists stay on disk until they are visited.

        Args:
            file, path: the file, open, and where it is.
            features: (n, D), of all rows.
            recall: what was measured.
            n_indexed: how many of the rows are indexed.
            seal: what `write` returned; None for an index that was saved before there were checksums.
            whole: whether to compare all of the file with it, and not its head only.
        """
        index, source, facts = _open(file, path, seal, whole=whole)
        width = features[:1].shape[1]
        if (facts.width, facts.n_rows, facts.n_lists) != (width, n_indexed, recall.n_lists):
            raise LoadError(
                f"{path}: expected an index of {n_indexed} rows of {width} numbers in {recall.n_lists} lists, found "
                f"{facts.n_rows} of {facts.width} in {facts.n_lists}; build it again"
            )
        if n_indexed > len(features):
            raise LoadError(f"{path}: expected an index of at most {len(features)} rows, found {n_indexed}")
        return cls(features, index, recall, ExactIndex(features[n_indexed:]), source=source)

    def write(self, path: Path) -> IndexSeal:
        """Writes the inverted file; rows added since are found again in the demonstrations."""
        with path.open("wb") as file:
            if self._source is None:
                faiss = _import_faiss()
                faiss.write_index(self._faiss, faiss.PyCallbackIOWriter(file.write, BYTES))
            else:  # of an index that is mapped, faiss itself would only write where its file is
                for start in range(0, len(self._source.data), BYTES):
                    file.write(self._source.data[start : start + BYTES].data)
        data = np.memmap(path, np.uint8, "r")
        try:
            return IndexSeal.of(data, IndexFile.parse(data).head)
        except ValueError as error:
            raise SaveError(f"{path.name}: expected faiss to write a complete index, found {error}") from error

    @property
    def n_indexed(self) -> int:
        """How many rows are in the inverted file."""
        return self._faiss.ntotal

    def __len__(self) -> int:
        return self._faiss.ntotal + len(self._added)

    def __getstate__(self) -> dict[str, Any]:
        source = None if self._source is None else (self._source.path, self._source.seal)
        saved = None if source else _import_faiss().serialize_index(self._faiss)
        return {**self.__dict__, "_faiss": saved, "_source": source}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["_source"] is None:
            self.__dict__.update(state, _faiss=_import_faiss().deserialize_index(state["_faiss"]))
            return
        path, seal = state["_source"]
        try:
            with path.open("rb") as file:
                index, source, _ = _open(file, path, seal, whole=False)
        except OSError as error:
            raise LoadError(f"{path}: expected the index that was opened, found {error.strerror}") from error
        self.__dict__.update(state, _faiss=index, _source=source)

    def rows(self) -> Any:
        """(n, D), the features."""
        return self._features

    def add(self, features: np.ndarray, all_features: Any) -> FaissIndex:
        """Appends rows, (m, D), after which the features of all rows are the others."""
        return FaissIndex(all_features, self._faiss, self.recall, self._added.add(features), source=self._source)

    def hiding(self, first: int, end: int) -> FaissIndex:
        """The index with rows first, ..., end - 1 hidden."""
        return FaissIndex(self._features, self._faiss, self.recall, self._added, (first, end), self._source)

    def n_compared(self, k: int) -> int:
        """With how many rows the planner compares a query for k neighbors: those that were found."""
        return k

    def query(self, query: np.ndarray, k: int) -> np.ndarray:
        """The rows found near the query, k if there are as many, in ascending order."""
        n_probes, n_shown = self.recall.n_probes, len(self) - (self._hidden[1] - self._hidden[0])
        rows = self._search(query, k, n_probes)
        while len(rows) < min(k, n_shown) and n_probes < self.recall.n_lists:  # where lists are short or empty
            n_probes *= 2
            rows = self._search(query, k, n_probes)
        if not len(rows):
            raise DataError(
                "an observation cannot be compared with the demonstrations: its distance to them is not finite; is it "
                "in their units?"
            )
        return rows

    def _search(self, query: np.ndarray, k: int, n_probes: int) -> np.ndarray:
        faiss, n = _import_faiss(), self._faiss.ntotal
        first, end = self._hidden
        parameters = faiss.SearchParametersIVF(nprobe=n_probes)
        distances, rows = self._faiss.search(_single(query[None]), min(k + end - first, n), params=parameters)
        distances, rows = distances[0], rows[0]
        if len(rows) and not -1 <= rows.min() <= rows.max() < n:  # -1 is for none
            raise LoadError(
                f"{self._source.path if self._source else 'the index'}: expected {n} rows, found one of number "
                f"{rows.max() if rows.max() >= n else rows.min()}: it was damaged; build it again"
            )
        if len(self._added):
            late = self._added.query(query, min(k + end - first, len(self._added)))
            differences = self._added.rows()[late] - query
            distances = np.concatenate([distances, np.einsum("nd,nd->n", differences, differences)])
            rows = np.concatenate([rows, late + n])
        shown = (rows >= 0) & ((rows < first) | (rows >= end))
        distances, rows = distances[shown], rows[shown]
        if len(rows) > k:
            rows = rows[np.argpartition(distances, k - 1)[:k]]
        return np.sort(rows)


@dataclass(frozen=True)
class _Judged:
    """Windows with the neighbors that exact search finds for them in other episodes.

    Attributes:
        queries: (q, D), float32.
        own: (q,), the episode of each.
        near: q arrays of the k nearest rows, ascending.
        weighty: the same, of those of them that carry weight.
        episodes: (n,), the episode of each row.
        asked: how many neighbors to ask for, so that k are left when those of the own episode are dropped.
    """

    queries: np.ndarray
    own: np.ndarray
    near: list[np.ndarray]
    weighty: list[np.ndarray]
    episodes: Any
    asked: int

    @classmethod
    def exactly(
        cls,
        features: Any,
        k: int,
        weigh: Callable[[np.ndarray, np.ndarray], np.ndarray],
        episodes: Any,
        longest: int,
        progress: Callable[[str, float], object],
    ) -> _Judged:
        """Searches among all rows, as `FaissIndex.build` was asked to."""
        faiss, n = _import_faiss(), len(features)
        asked = min(n, k + longest)
        chosen = np.unique(np.linspace(0, n - 1, min(N_QUERIES, n)).astype(np.int64))
        queries = features[chosen]
        single = _single(queries)
        distances, rows = np.empty((len(chosen), 0), np.float32), np.empty((len(chosen), 0), np.int64)
        for start in range(0, n, BLOCK):
            progress("measuring recall", start / n)
            block = _single(features[start : start + BLOCK])
            nearer, found = faiss.knn(single, block, min(asked, len(block)))
            distances, rows = np.concatenate([distances, nearer], 1), np.concatenate([rows, found + start], 1)
            if rows.shape[1] > asked:
                kept = np.argpartition(distances, asked - 1, axis=1)[:, :asked]
                distances, rows = (np.take_along_axis(array, kept, 1) for array in (distances, rows))
        own, near, weighty = episodes[chosen], [], []
        for index, query in enumerate(queries):
            order = rows[index][np.argsort(distances[index])]
            others = order[episodes[order] != own[index]][:k]
            near.append(np.sort(others))
            weighty.append(near[-1][weigh(query, near[-1]) > _CARRIES_WEIGHT] if len(others) else others)
        return cls(single, own, near, weighty, episodes, asked)

    def suffices(self, index: Any, n_probes: int, target: float) -> bool:
        """Whether so many lists are enough: for the target, and for a metric that is about the exact one."""
        weighty, found = self.recall_of(index, n_probes)
        return weighty >= target and found >= _FOR_THE_METRIC

    def recall_of(self, index: Any, n_probes: int) -> tuple[float, float]:
        """The share found of the neighbors that carry weight and of all, averaged over queries."""
        parameters = _import_faiss().SearchParametersIVF(nprobe=n_probes)
        _, rows = index.search(self.queries, self.asked, params=parameters)
        shares = []
        for found, own, near, weighty in zip(rows, self.own, self.near, self.weighty, strict=True):
            found = found[found >= 0]
            found = found[self.episodes[found] != own][: len(near)]
            if len(near):
                shares.append([np.isin(wanted, found).mean() for wanted in (weighty, near)])
        means = np.mean(shares, axis=0) if shares else (1.0, 1.0)
        return float(means[0]), float(means[1])


def _import_faiss() -> Any:
    """The package faiss, or says what is missing."""
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError("faiss-cpu", "ann", "the index 'faiss'") from error
    return faiss


@dataclass(frozen=True)
class Source:
    """The file of an index that was opened.

    Attributes:
        path: where it was.
        data: (n,), its bytes, mapped; they stay when it is replaced.
        seal: its checksums.
    """

    path: Path
    data: np.ndarray
    seal: IndexSeal


def _open(file: BinaryIO, path: Path, seal: IndexSeal | None, *, whole: bool) -> tuple[Any, Source, IndexFile]:
    """An index in a file, whose lists stay there until they are visited."""
    faiss = _import_faiss()
    try:
        data = np.memmap(file, np.uint8, "r")
        facts = IndexFile.parse(data)
        found = IndexSeal.of(data, facts.head, whole=whole)
        if seal is not None and not found.agrees(seal):
            raise LoadError(f"{path}: checksum mismatch: the index was damaged or replaced")
        index = faiss.read_index(name_of(file, path), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
        lists = faiss.downcast_InvertedLists(index.invlists)
    except (RuntimeError, AttributeError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0][:200]
        raise LoadError(f"{path}: expected an index saved by closedform, found {reason}; rebuild it") from error
    if hasattr(lists, "prefetch_nthread"):
        lists.prefetch_nthread = 0  # starting threads takes longer than reading what is in memory
    return index, Source(path, data, seal or found), facts


def _single(features: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(features, np.float32)
