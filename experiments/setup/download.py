"""Downloads that resume, and that are what their source says they are.

A part that was interrupted is kept as `<name>.part` and continued if the server still has the same
file. A file's SHA-256 is compared with the digits that its source publishes in its name (PyTorch
and torch-fidelity do, `-6726825d.pth`); otherwise the first download's size and SHA-256 are
recorded beside it and later downloads must equal them.
"""

from __future__ import annotations

import re
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from experiments.common.files import file_sha256, read_json, write_json

LEDGER = "checksums.json"
CHUNK = 1 << 20
PUBLISHED = re.compile(r"-([0-9a-f]{8,64})\.\w+$")  # digits of the SHA-256 in a file's name


class DownloadError(ValueError):
    """One line: the address and what went wrong."""


@dataclass(frozen=True)
class Remote:
    """What a server says of a file; `size` None where it does not say."""

    size: int | None
    tag: str | None


def look(url: str, timeout: float = 30) -> Remote:
    """Ask for a file's size without downloading it.

    Raises:
        DownloadError: no such file, or no server.
    """
    request = urllib.request.Request(url, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return remote_of(answer.headers)
    except (OSError, HTTPException) as error:
        raise DownloadError(f"{url}: {reason(error)}") from error


def download(
    url: str, target: Path, attempts: int = 5, pause: float = 1.0, timeout: float = 60
) -> Path:
    """Fetch `url` into `target`, which appears whole or not at all; what is there already stays.

    Args:
        attempts: how often to go on after a broken connection.
        pause: seconds before the second attempt, twice as long before each further one.

    Raises:
        DownloadError: the server refuses, keeps breaking off, or the file is not what it must be.
    """
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    for attempt in range(attempts):
        try:
            size = fetch(url, part, timeout)
            break
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise DownloadError(f"{url}: {reason(error)}") from error
            last: Exception = error
        except (OSError, HTTPException) as error:
            last = error
        time.sleep(pause * 2**attempt)
    else:
        got = part.stat().st_size if part.is_file() else 0
        raise DownloadError(
            f"{url}: {reason(last)} after {attempts} attempts; {got:,} bytes are kept, the same "
            "command goes on"
        )
    try:
        check(url, part, target.parent / LEDGER, size)
    except DownloadError:
        part.unlink()
        raise
    part.replace(target)
    return target


def fetch(url: str, part: Path, timeout: float) -> int | None:
    """Download into `part`, from where it ends if the server still has the same file; returns the
    whole size that the server named. OSError where the connection ended too early."""
    notes = part.with_name(f"{part.name}.json")
    headers, start = {}, part.stat().st_size if part.is_file() else 0
    known = read_json(notes)["tag"] if notes.is_file() else None
    if start and known:
        # Without If-Range a file that was replaced meanwhile would be glued to the old part.
        headers = {"Range": f"bytes={start}-", "If-Range": known}
    request = urllib.request.Request(url, headers=headers)
    try:
        answer = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # the part is the whole file, or more
            raise
        part.unlink()
        return fetch(url, part, timeout)
    with answer:
        resumed = answer.status == 206
        told = remote_of(answer.headers)
        size = None if told.size is None else told.size + (start if resumed else 0)
        write_json(notes, {"url": url, "tag": told.tag})
        with part.open("ab" if resumed else "wb") as file:
            while block := answer.read(CHUNK):
                file.write(block)
    got = part.stat().st_size
    if size is not None and got < size:
        raise OSError(f"the connection ended after {got:,} of {size:,} bytes")
    notes.unlink()
    return size


def check(url: str, part: Path, ledger: Path, size: int | None) -> None:
    """Raise DownloadError where the file is not what its source says, or not what it was before."""
    got, sha256 = part.stat().st_size, file_sha256(part)
    if size is not None and got != size:
        raise DownloadError(f"{url}: {got:,} bytes came, the server said {size:,}")
    name = url.rsplit("/", 1)[1]
    published = PUBLISHED.search(name)
    if published and not sha256.startswith(published[1]):
        raise DownloadError(f"{url}: its SHA-256 begins with {sha256[:8]}, must {published[1]}")
    known = read_json(ledger) if ledger.is_file() else {}
    if not published:
        first = known.setdefault(url, {"size": got, "sha256": sha256})
        if first != {"size": got, "sha256": sha256}:
            raise DownloadError(
                f"{url}: SHA-256 {sha256[:8]}…, {got:,} bytes; at the first download it was "
                f"{first['sha256'][:8]}…, {first['size']:,} bytes ({ledger})"
            )
        write_json(ledger, known)


def remote_of(headers) -> Remote:
    length = headers.get("Content-Length")
    return Remote(int(length) if length else None, headers.get("ETag"))


def reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"{error.code} {error.reason}"
    inner = getattr(error, "reason", None)
    return str(inner or error) or type(error).__name__
