"""Downloads from a real server on loopback that breaks off, lies, and changes its mind."""

import hashlib
import json
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from experiments.setup.download import LEDGER, DownloadError, download, look
from experiments.setup.prefetch import unpack

CONTENT = bytes(range(256)) * 4000  # a megabyte
DIGITS = hashlib.sha256(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Serves `server.content` with ranges; `server.breaks` is a list of the bytes after which the
    next connections end."""

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()

    def do_GET(self):
        content, start = self.server.content, 0
        self.server.asked.append(self.headers.get("Range"))
        if self.server.refuses:
            self.send_error(self.server.refuses)
            return
        tag = '"' + hashlib.sha256(content).hexdigest()[:8] + '"'
        same = self.headers.get("If-Range") == tag
        if self.headers.get("Range") and same and self.server.ranges:
            start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
        else:
            self.send_response(200)
        body = content[start:]
        self.send_header("Content-Length", str(len(body) + self.server.lie))
        self.send_header("ETag", tag)
        self.end_headers()
        end = self.server.breaks.pop(0) if self.server.breaks else len(body)
        self.wfile.write(body[:end])

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    found = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.content, found.breaks, found.asked, found.lie = CONTENT, [], [], 0
    found.ranges, found.refuses = True, 0
    found.url = f"http://127.0.0.1:{found.server_address[1]}"
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()


def fetch(server, tmp_path, name="file.bin", **options):
    return download(f"{server.url}/{name}", tmp_path / name, pause=0.01, **options)


def test_a_file_comes_whole_and_once(server, tmp_path):
    path = fetch(server, tmp_path)
    assert path.read_bytes() == CONTENT
    assert look(f"{server.url}/file.bin").size == len(CONTENT)
    fetch(server, tmp_path)
    assert server.asked == [None]
    assert {p.name for p in tmp_path.iterdir()} == {"file.bin", LEDGER}
    (kept,) = json.loads((tmp_path / LEDGER).read_text()).values()
    assert kept == {"size": len(CONTENT), "sha256": DIGITS}


def test_a_broken_download_goes_on(server, tmp_path):
    server.breaks = [300_000, 400_000]
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=300000-", "bytes=700000-"]


def test_what_came_is_kept_for_the_next_command(server, tmp_path):
    server.breaks = [100_000, 100_000]
    with pytest.raises(DownloadError, match=r"after 2 attempts; 200,000 bytes are kept"):
        fetch(server, tmp_path, attempts=2)
    assert not (tmp_path / "file.bin").exists()
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert server.asked[-1] == "bytes=200000-"


def test_a_server_without_ranges_begins_again(server, tmp_path):
    server.breaks, server.ranges = [300_000], False
    assert fetch(server, tmp_path).read_bytes() == CONTENT


def test_a_file_that_was_replaced_meanwhile_is_not_glued(server, tmp_path):
    server.breaks = [300_000]
    with pytest.raises(DownloadError):
        fetch(server, tmp_path, attempts=1)
    server.content = CONTENT[::-1]
    assert fetch(server, tmp_path).read_bytes() == CONTENT[::-1]


def test_a_server_that_promises_more_than_it_sends(server, tmp_path):
    server.lie = 1000
    with pytest.raises(DownloadError, match="after 3 attempts"):
        fetch(server, tmp_path, attempts=3)
    assert not (tmp_path / "file.bin").exists()


def test_the_digits_in_a_name_are_held_against_the_file(server, tmp_path):
    good = f"weights-{DIGITS[:8]}.pth"
    assert fetch(server, tmp_path, good).read_bytes() == CONTENT
    assert not (tmp_path / LEDGER).exists()  # its source says what it must be
    with pytest.raises(DownloadError, match=f"begins with {DIGITS[:8]}, must 01234567"):
        fetch(server, tmp_path, "weights-01234567.pth")
    assert {p.name for p in tmp_path.iterdir()} == {good}


def test_a_later_download_must_equal_the_first(server, tmp_path):
    fetch(server, tmp_path).unlink()
    server.content = CONTENT[:-1] + b"x"
    with pytest.raises(DownloadError, match="at the first download it was"):
        fetch(server, tmp_path)
    assert not (tmp_path / "file.bin").exists()


def test_a_refusal_is_told_at_once(server, tmp_path):
    server.refuses = 404
    with pytest.raises(DownloadError, match=r"file\.bin: 404 Not Found"):
        fetch(server, tmp_path)
    assert len(server.asked) == 1
    with pytest.raises(DownloadError, match=r"127\.0\.0\.1:1/x: "):
        look("http://127.0.0.1:1/x")


def test_an_archive_cannot_leave_its_folder(tmp_path):
    (tmp_path / "inside").mkdir()
    for name, members in (("good.zip", ["a/b.txt"]), ("bad.zip", ["../evil.txt"])):
        with zipfile.ZipFile(tmp_path / "inside" / name, "w") as archive:
            for member in members:
                archive.writestr(member, "text")
    unpack(tmp_path / "inside" / "good.zip")
    assert (tmp_path / "inside" / "a" / "b.txt").read_text() == "text"
    with pytest.raises(DownloadError, match=r"evil\.txt leaves the folder"):
        unpack(tmp_path / "inside" / "bad.zip")
    assert not (tmp_path / "evil.txt").exists()
    (tmp_path / "inside" / "broken.zip").write_bytes(b"PK")
    with pytest.raises(DownloadError, match=r"broken\.zip"):
        unpack(tmp_path / "inside" / "broken.zip")
