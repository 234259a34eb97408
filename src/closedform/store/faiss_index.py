"""FaissIndex: approximate search in large sets of demonstrations (extra `ann`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from closedform.errors import DataError, LoadError, SaveError
from closedform.files import BLOCK as BYTES
from closedform.files import name_of
from closedform.store.faiss_file import IndexFile, IndexSeal
from closedform.store.index import ExactIndex
from closedform.store.recall import BLOCK, Judged, Recall, import_faiss, single

_POINTS_PER_LIST, _ITERATIONS = 64, 8  # of the k-means that makes the lists


class FaissIndex:
    """A faiss inverted file: each row is in the list of its nearest center, and a query visits only a few lists.

    Rows are quantized to 8 bits per number. With thousands of neighbors to find, HNSW graphs are slower to search and
    to build (`make bench`, "more demonstrations"). The file never changes; rows added later are searched exactly, so
    the next query finds them.

    Args:
        features: (n, D), an array or computed on demand.
        faiss_index: the index of the first rows.
        recall: its measured recall.
        added: the features of the remaining rows.
        hidden: (r, 2), ranges first, ..., end - 1 of rows that no query returns; ascending.
        source: the file that it was read from, if it was not built.
    """

    def __init__(
        self,
        features: Any,
        faiss_index: Any,
        recall: Recall,
        added: ExactIndex,
        hidden: np.ndarray | None = None,
        source: Source | None = None,
    ):
        self._features = features
        self._faiss = faiss_index
        self._added = added
        self._hidden = np.empty((0, 2), np.int64) if hidden is None else hidden
        self._shown = _bits_of(faiss_index.ntotal, self._hidden) if len(self._hidden) else None
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
        """Builds the lists, and finds how many of them must be visited to reach a recall.

        Args:
            features: (n, D)
            target: the required recall of neighbors that carry weight.
            k: neighbors per query.
            weigh: returns the weights of some rows for a query's features (D,), the largest being 1.
            episodes: (n,), the episode of each row.
            longest: the number of rows of the longest episode.
            progress: called with a description and the fraction done.
        """
        faiss = import_faiss()
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
        index.train(single(features[sample]))
        for start in range(0, n, BLOCK):
            progress("filling lists", start / n)
            index.add(single(features[start : start + BLOCK]))
        judged = Judged.exactly(features, k, weigh, episodes, longest, progress)

        def search(queries: np.ndarray, asked: int, n_probes: int) -> np.ndarray:
            return index.search(queries, asked, params=faiss.SearchParametersIVF(nprobe=n_probes))[1]

        recall = judged.recall_with_fewest_lists(search, n_lists, target, began)
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
        """Opens an index of `n_indexed` rows written by `write`; its lists are memory-mapped.

        Args:
            file, path: the open file and its path.
            features: (n, D), of all rows.
            recall: its measured recall.
            n_indexed: how many of the rows are indexed.
            seal: what `write` returned; None for an index saved before there were checksums.
            whole: whether to verify the checksum of the whole file, not only of its head.
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
        """Writes the inverted file; rows added since are recovered from the demonstrations."""
        with path.open("wb") as file:
            if self._source is None:
                faiss = import_faiss()
                faiss.write_index(self._faiss, faiss.PyCallbackIOWriter(file.write, BYTES))
            else:  # of a memory-mapped index, faiss itself would write only the file's path
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
        saved = None if source else import_faiss().serialize_index(self._faiss)
        return {**self.__dict__, "_faiss": saved, "_source": source}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["_source"] is None:
            self.__dict__.update(state, _faiss=import_faiss().deserialize_index(state["_faiss"]))
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
        """The index with more rows (m, D); `all_features` are then the features of all rows."""
        added = self._added.add(features)
        return FaissIndex(all_features, self._faiss, self.recall, added, self._hidden, self._source)

    def hiding(self, first: int, end: int) -> FaissIndex:
        """The index without rows first, ..., end - 1, which no query returns."""
        hidden = np.concatenate([self._hidden, [[first, end]]])
        hidden = hidden[np.argsort(hidden[:, 0])]
        return FaissIndex(self._features, self._faiss, self.recall, self._added, hidden, self._source)

    @property
    def n_hidden(self) -> int:
        """How many rows no query returns."""
        return int(np.diff(self._hidden).sum())

    def n_compared(self, k: int) -> int:
        """How many rows the planner compares a query with for k neighbors: only those found."""
        return k

    def query(self, query: np.ndarray, k: int) -> np.ndarray:
        """The rows found near the query, ascending: k, or all if there are fewer."""
        n_probes, n_shown = self.recall.n_probes, len(self) - self.n_hidden
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
        faiss, n = import_faiss(), self._faiss.ntotal
        selector = {} if self._shown is None else {"sel": faiss.IDSelectorBitmap(self._shown)}
        parameters = faiss.SearchParametersIVF(nprobe=n_probes, **selector)
        distances, rows = self._faiss.search(single(query[None]), min(k, n), params=parameters)
        distances, rows = distances[0], rows[0]
        if len(rows) and not -1 <= rows.min() <= rows.max() < n:  # -1 is for none
            raise LoadError(
                f"{self._source.path if self._source else 'the index'}: expected {n} rows, found row "
                f"{rows.max() if rows.max() >= n else rows.min()}: the index is damaged; rebuild it"
            )
        if len(self._added):
            hidden = int(np.diff(np.maximum(self._hidden, n)).sum())
            late = self._added.query(query, min(k + hidden, len(self._added)))
            differences = self._added.rows()[late] - query
            distances = np.concatenate([distances, np.einsum("nd,nd->n", differences, differences)])
            rows = np.concatenate([rows, late + n])
        shown = rows >= 0
        if len(self._hidden):
            before = np.searchsorted(self._hidden[:, 0], rows, side="right") - 1
            shown &= (before < 0) | (rows >= self._hidden[before, 1])
        distances, rows = distances[shown], rows[shown]
        if len(rows) > k:
            rows = rows[np.argpartition(distances, k - 1)[:k]]
        return np.sort(rows)


@dataclass(frozen=True)
class Source:
    """An open index file.

    Attributes:
        path: its path.
        data: (n,), its bytes, memory-mapped; they remain valid when the file is replaced.
        seal: its checksums.
    """

    path: Path
    data: np.ndarray
    seal: IndexSeal


def _open(file: BinaryIO, path: Path, seal: IndexSeal | None, *, whole: bool) -> tuple[Any, Source, IndexFile]:
    """Opens an index file, whose lists are memory-mapped."""
    faiss = import_faiss()
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


def _bits_of(n: int, hidden: np.ndarray) -> np.ndarray:
    """(n / 8,), a bit for each of n rows that is set if no range hides it, as faiss reads them."""
    bits = np.full((n + 7) // 8, 255, np.uint8)
    for first, end in np.minimum(hidden, n).tolist():
        begin, stop = first // 8, (end + 7) // 8
        some = np.unpackbits(bits[begin:stop], bitorder="little")
        some[first - 8 * begin : end - 8 * begin] = 0
        bits[begin:stop] = np.packbits(some, bitorder="little")
    return bits
