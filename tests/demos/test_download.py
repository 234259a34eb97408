"""Downloads survive every bad server, and archives cannot write where they should not."""

import hashlib
import http.server
import io
import os
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
import urllib.request
import zipfile
from pathlib import Path

import numpy as np
import pytest

from closedform import ClosedFormError, load_demos
from closedform.cli import main
from closedform.demos.catalog import CATALOG, Dataset, RemoteFile, cached_path, dataset_path
from closedform.demos.download import _Redirects, download, get_dataset, unpack
from closedform.demos.verify import verify_demos

CONTENT = np.random.default_rng(0).integers(0, 256, 300_000, dtype=np.uint8).tobytes()
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serves CONTENT badly: the first requests as `faults` say, the others well."""

    daemon_threads = True

    def __init__(self, faults=(), content=CONTENT):
        super().__init__(("127.0.0.1", 0), Handler)
        self.faults, self.content, self.ranges, self.sent = list(faults), content, [], 0
        self.released = threading.Event()  # what stalls goes on
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/data.bin"


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, format, *args):
        pass

    def do_GET(self):
        server = self.server
        assert isinstance(server, Server)
        fault = server.faults.pop(0) if server.faults else "none"
        server.ranges.append(self.headers.get("Range"))
        content = server.content
        start = int(self.headers["Range"].split("=")[1].rstrip("-")) if self.headers.get("Range") else 0
        if fault.startswith("redirect"):
            self.send_response(302)
            self.send_header("Location", fault.removeprefix("redirect").strip() or "/other.bin")
            self.end_headers()
            return
        if fault in ("404", "500"):
            self.send_error(int(fault))
            return
        if fault == "wrong bytes":
            content = bytes(len(CONTENT))
        if fault == "a part":  # which nobody asked for, or another one
            start, content = 100, content[:1000]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(server.content)}")
        elif fault == "little":  # the part that was asked for, but not to its end
            content = content[: start + 1000]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(server.content)}")
        elif fault == "no range" or start == 0:
            start = 0
            self.send_response(200)
        else:
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        body = content[start:]
        length = len(body) + {"longer": 1000, "shorter": -1000}.get(fault, 0)
        if fault != "endless":
            self.send_header("Content-Length", str(length))
        self.send_header("ETag", '"other"' if fault == "changed" else '"v1"')
        self.end_headers()
        try:
            if fault == "endless":
                for _ in range(1000):
                    self.wfile.write(body)
                    server.sent += len(body)
            elif fault == "cut":
                self.wfile.write(body[: len(body) // 2])
            elif fault == "stall":
                self.wfile.write(body[:50_000])
                self.wfile.flush()
                server.released.wait()
            else:
                self.wfile.write(body)
            self.wfile.flush()
        except OSError:
            pass
        self.close_connection = True


def fetch(faults, target, **options):
    server = Server(faults)
    try:
        download(server.url, target, progress=False, timeout=1.0 if "stall" in faults else 60.0, **options)
    finally:
        server.released.set()
        server.shutdown()
    return server


@pytest.mark.parametrize(
    "faults",
    [
        [],
        ["redirect"],
        ["redirect", "redirect"],
        ["cut"],
        ["cut", "cut", "cut", "cut", "cut", "cut", "cut"],
        ["cut", "no range"],
        ["cut", "500", "500"],
        ["stall"],
        ["cut", "stall", "cut"],
        ["longer"],
        ["longer", "no range"],
        ["a part"],
        ["cut", "a part"],
        ["cut", "little", "little"],
    ],
    ids="-".join,
)
def test_the_whole_file_arrives(tmp_path, faults):
    fetch(faults, tmp_path / "data.bin", sha256=SHA256, size=len(CONTENT))
    assert (tmp_path / "data.bin").read_bytes() == CONTENT
    assert not list(tmp_path.glob("*.part*"))


def test_a_cut_download_is_continued_and_not_begun_anew(tmp_path):
    server = fetch(["cut", "cut"], tmp_path / "data.bin", sha256=SHA256)
    assert server.ranges == [None, "bytes=150000-", "bytes=225000-"]


@pytest.mark.parametrize(
    ("faults", "options", "message"),
    [
        (["wrong bytes"], {"sha256": SHA256}, "expected sha256 .* download discarded"),
        (["shorter"], {"size": len(CONTENT)}, "expected 300000 bytes, found 299000; download discarded"),
        (["404"], {}, "expected a file, found HTTP 404"),
        (["500"] * 9, {}, "interrupted 5 times, last by: HTTP 500"),
        (["stall"] * 9, {"attempts": 2}, "interrupted 2 times"),
        (["a part"] * 9, {}, r"last by: expected the whole file \(HTTP 200\), found HTTP 206"),
        (["redirect ftp://127.0.0.1:1/x"], {}, "expected http or https throughout, found a redirect to ftp:"),
    ],
    ids=["wrong", "short", "404", "500", "stall", "part", "ftp"],
)
def test_what_is_not_right_never_gets_its_name(tmp_path, faults, options, message):
    with pytest.raises(ClosedFormError, match=message):
        fetch(faults, tmp_path / "data.bin", **options)
    assert not (tmp_path / "data.bin").exists()
    fetch([], tmp_path / "data.bin", sha256=SHA256)  # and the cache is still usable
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


def test_a_part_is_not_the_file_even_if_nothing_is_known_of_it(tmp_path):
    fetch(["a part"], tmp_path / "one")
    (tmp_path / "two.part").write_bytes(CONTENT[:1000])
    (tmp_path / "two.part.tag").write_text('"v1"')
    fetch(["little"], tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes() == CONTENT


def test_a_redirect_does_not_leave_https_at_any_step():
    request = urllib.request.Request("https://here.invalid/x")
    for address in ("http://here.invalid/x", "ftp://here.invalid/x"):
        with pytest.raises(ClosedFormError, match=f"expected https throughout, found a redirect to {address}"):
            _Redirects().redirect_request(request, None, 302, "Found", {}, address)


def test_a_download_without_end_stops_at_its_size(tmp_path):
    server = Server(["endless"] * 9)
    with pytest.raises(ClosedFormError, match="expected 300000 bytes, found more; download discarded"):
        download(server.url, tmp_path / "data.bin", size=len(CONTENT), progress=False)
    server.shutdown()
    assert len(server.ranges) == 1 and server.sent < 100 * len(CONTENT)
    assert not list(tmp_path.glob("data.bin*"))


def test_a_download_of_unknown_size_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("closedform.demos.download.LARGEST", 1_000_000)
    with pytest.raises(ClosedFormError, match="expected at most 1000000 bytes, found more"):
        fetch(["endless"], tmp_path / "data.bin")
    assert not list(tmp_path.glob("data.bin*"))


def test_nobody_there_and_other_schemes(tmp_path):
    with pytest.raises(ClosedFormError, match=r"interrupted 2 times, last by: .*refused"):
        download("http://127.0.0.1:9/x", tmp_path / "x", attempts=2, progress=False)
    with pytest.raises(ClosedFormError, match="starts with http:// or https://"):
        download("file:///etc/passwd", tmp_path / "x")


def test_a_name_that_cannot_be_resolved_asks_about_the_internet(tmp_path, monkeypatch):
    def resolve(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", resolve)
    monkeypatch.setattr("urllib.request.getproxies", dict)
    (tmp_path / "x.part").write_bytes(b"begun")
    with pytest.raises(ClosedFormError, match=r"no internet\? Download it elsewhere and put it at .*x, or try again"):
        download("https://nowhere.invalid/x", tmp_path / "x", progress=False)
    assert (tmp_path / "x.part").read_bytes() == b"begun"


@pytest.mark.parametrize("arrived", [0, 1, 1000, 150_000, 299_999, 300_000])
def test_going_on_after_an_interruption_at_any_byte(tmp_path, arrived):
    (tmp_path / "data.bin.part").write_bytes(CONTENT[:arrived])
    (tmp_path / "data.bin.part.tag").write_text('"v1"')
    fetch([], tmp_path / "data.bin", sha256=SHA256, size=len(CONTENT))
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


def test_a_file_that_changed_on_the_server_is_begun_anew(tmp_path):
    """If-Range makes an honest server send all of a changed file; sha256 catches a dishonest one."""
    (tmp_path / "data.bin.part").write_bytes(b"old" * 1000)
    fetch([], tmp_path / "data.bin", sha256=SHA256)  # there is no tag, so nothing is continued
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


def test_a_killed_download_can_be_continued(tmp_path):
    server = Server(["stall"])
    code = (
        f"from closedform.demos.download import download; from pathlib import Path; download({server.url!r}, Path('x'))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stderr=subprocess.DEVNULL)
    while not server.ranges and process.poll() is None:  # killed while the server stalls
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    server.released.set()
    assert not (tmp_path / "x").exists()
    download(server.url, tmp_path / "x", sha256=SHA256, progress=False)
    server.shutdown()
    assert (tmp_path / "x").read_bytes() == CONTENT


def zip_of(path: Path, names):
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, b"evil")
    return path


def tar_of(path: Path, *members):
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(b"evil"[: member.size]))
    return path


def tar_member(name, kind=tarfile.REGTYPE, link=""):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    member.size = 4 if kind == tarfile.REGTYPE else 0
    return member


@pytest.mark.parametrize(
    "make",
    [
        lambda p: zip_of(p, ["good", "../evil"]),
        lambda p: zip_of(p, ["/evil"]),
        lambda p: zip_of(p, ["a/../../evil"]),
        lambda p: zip_of(p, ["C:\\evil"]),
        lambda p: tar_of(p, tar_member("../evil")),
        lambda p: tar_of(p, tar_member("/evil")),
        lambda p: tar_of(p, tar_member("link", tarfile.SYMTYPE, "/etc/passwd")),
        lambda p: tar_of(p, tar_member("link", tarfile.LNKTYPE, "../evil")),
        lambda p: tar_of(p, tar_member("device", tarfile.CHRTYPE)),
    ],
)
def test_archives_stay_in_their_folder(tmp_path, make):
    folder = tmp_path / "inside"
    folder.mkdir()
    archive = make(tmp_path / "archive")
    with pytest.raises(ClosedFormError, match="nothing was unpacked"):
        unpack(archive, folder)
    assert list(folder.iterdir()) == [] and not (tmp_path / "evil").exists()


def test_archives_are_bounded(tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(5_000_000))
    with pytest.raises(ClosedFormError, match="expected at most 1000000 unpacked bytes"):
        unpack(tmp_path / "bomb.zip", tmp_path, largest=1_000_000)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bomb.zip"]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04nonsense", b"\x1f\x8bnonsense", b"text"])
def test_broken_archives_are_refused(tmp_path, content):
    (tmp_path / "archive").write_bytes(content)
    with pytest.raises(ClosedFormError, match="archive"):
        unpack(tmp_path / "archive", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]


def test_a_dataset_is_got_once(tmp_path, monkeypatch):
    monkeypatch.setenv("CLOSEDFORM_DATA", str(tmp_path / "cache"))
    np.savez(tmp_path / "demos.npz", observations=np.zeros((4, 2)), actions=np.ones((4, 1)), episode_ends=[2, 4])
    content = tar_with(tmp_path / "demos.npz")
    server = Server(content=content)
    file = RemoteFile("toy/toy.tar.gz", server.url, sha256=hashlib.sha256(content).hexdigest(), member="toy/demos.npz")
    toy = Dataset("toy", "a toy", "MIT", "arrays", (file,), ("toy/demos.npz",))
    monkeypatch.setitem(CATALOG, "toy", toy)
    with pytest.raises(ClosedFormError, match="download it with 'closedform data get toy'"):
        dataset_path("toy")
    assert cached_path(toy) is None
    paths = [get_dataset(toy, progress=False) for _ in range(2)]
    server.shutdown()
    assert server.ranges == [None] and paths == [dataset_path("toy")] * 2
    assert len(load_demos("toy")) == 2


@pytest.fixture
def unknown(tmp_path, monkeypatch):
    """A dataset whose checksum nobody knows, and the server it comes from."""
    monkeypatch.setenv("CLOSEDFORM_DATA", str(tmp_path / "cache"))
    np.savez(tmp_path / "demos.npz", observations=np.zeros((4, 2)), actions=np.ones((4, 1)), episode_ends=[2, 4])
    server = Server(content=(tmp_path / "demos.npz").read_bytes())
    toy = Dataset("toy", "a toy", "MIT", "arrays", (RemoteFile("toy/toy.npz", server.url),), ("toy/toy.npz",))
    monkeypatch.setitem(CATALOG, "toy", toy)
    yield toy, server
    server.shutdown()


def test_what_has_no_known_checksum_is_only_downloaded_on_trust(unknown):
    toy, server = unknown
    message = r"no checksum is known; it comes over plain http, .*pass --trust"
    with pytest.raises(ClosedFormError, match=message):
        get_dataset(toy, progress=False)
    assert server.ranges == [] and cached_path(toy) is None
    path = get_dataset(toy, progress=False, trust=True)
    noted = (path.parent / "toy.npz.sha256").read_text()
    assert noted == f"{hashlib.sha256(path.read_bytes()).hexdigest()}  toy.npz\n"
    path.unlink()
    assert get_dataset(toy, progress=False) == path  # known from now on
    path.unlink()
    server.content = server.content[:-1] + b"?"
    with pytest.raises(ClosedFormError, match=r"expected sha256 .*; download discarded"):
        get_dataset(toy, progress=False, trust=True)
    assert not path.exists()


@pytest.mark.parametrize(("answer", "downloaded"), [("y\n", True), ("n\n", False), ("\n", False), ("", False)])
def test_the_command_asks_on_a_terminal(unknown, monkeypatch, capsys, answer, downloaded):
    toy, server = unknown

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stdin", Terminal(answer))
    try:
        main(["data", "get", "toy"])
    except SystemExit as stop:
        assert stop.code == 2
    said = capsys.readouterr()
    assert "no checksum is known; it comes over plain http" in said.err and "[y/N]" in said.err
    assert (cached_path(toy) is not None) == downloaded == bool(server.ranges)


def test_the_command_does_not_ask_where_there_is_no_terminal(unknown, monkeypatch, capsys):
    toy, server = unknown
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(SystemExit):
        main(["data", "get", "toy"])
    assert "--trust" in capsys.readouterr().err and server.ranges == []
    main(["data", "get", "toy", "--trust"])
    assert capsys.readouterr().out == f"{cached_path(toy)}\n"


def test_what_is_unpacked_is_noted_too(tmp_path, monkeypatch):
    monkeypatch.setenv("CLOSEDFORM_DATA", str(tmp_path / "cache"))
    np.savez(tmp_path / "demos.npz", observations=np.zeros((4, 2)), actions=np.ones((4, 1)), episode_ends=[2, 4])
    server = Server(content=tar_with(tmp_path / "demos.npz"))
    file = RemoteFile("toy/toy.tar.gz", server.url, member="toy/demos.npz")
    toy = Dataset("toy", "a toy", "MIT", "arrays", (file,), ("toy/demos.npz",))
    path = get_dataset(toy, progress=False, trust=True)
    server.shutdown()
    assert sorted(p.name for p in path.parent.glob("*.sha256")) == ["demos.npz.sha256", "toy.tar.gz.sha256"]
    assert "1 downloaded files (sha256)" in verify_demos(path).verified
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(ClosedFormError, match="checksum mismatch"):
        verify_demos(path)


def test_every_checksum_of_the_catalog_is_one():
    for dataset in CATALOG.values():
        for file in dataset.files:
            assert file.sha256 is None or len(bytes.fromhex(file.sha256)) == 32


def tar_with(path: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.add(path, "toy/demos.npz")
    return buffer.getvalue()
