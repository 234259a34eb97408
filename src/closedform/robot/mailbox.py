"""Mailbox: the newest message from one process to another, through shared memory and without locks."""

from __future__ import annotations

import struct
import zlib
from multiprocessing.shared_memory import SharedMemory

from closedform.errors import ConfigError

_SLOTS = 4
_TRIES = 16
_NUMBER = struct.Struct("@Q")
_HEAD = struct.Struct("@QII")  # number of the message, its length, checksum of both and of the message


class Mailbox:
    """Shared memory in which one process writes messages and others read the newest.

    Nobody ever waits for anybody: a process that is stopped, killed or preempted at any instruction leaves the others
    with a complete message. Message n goes into slot n mod 4, and only then is n made public. So the slot of the newest
    message is not touched until three more were begun. A reader copies the slot and then compares the number and a
    checksum of everything; a copy that was overwritten meanwhile, or whose bytes became visible in another order than
    they were written (as processors other than x86 may do), does not match and is read again. A reader tries at most
    16 times and otherwise keeps the message it had.

    Args:
        size: bytes of the longest message.
        name: of the memory to attach to; None makes a new one, which `close` removes.
    """

    def __init__(self, size: int, name: str | None = None):
        self.size, self._owner = size, name is None
        self._slot = (_HEAD.size + size + 7) // 8 * 8
        total = 8 + _SLOTS * self._slot
        self._memory = SharedMemory(name, create=name is None, size=total if name is None else 0)
        if self._memory.size < total:
            self._memory.close()
            raise ConfigError(f"a mailbox: expected {total} bytes of shared memory, found {self._memory.size}")
        assert self._memory.buf is not None  # it is open
        self._bytes: memoryview[int] = self._memory.buf
        self._written = self._newest()
        self._last: tuple[int, bytes] | None = None

    @property
    def name(self) -> str:
        """By which other processes attach."""
        return self._memory.name

    def write(self, message: bytes) -> int:
        """Publishes a message and returns its number, from 1 on; only one thread of one process may write."""
        if len(message) > self.size:
            raise ConfigError(f"a mailbox: expected a message of at most {self.size} bytes, found {len(message)}")
        number = self._written + 1
        begin = 8 + number % _SLOTS * self._slot
        self._bytes[begin + _HEAD.size : begin + _HEAD.size + len(message)] = message
        _HEAD.pack_into(self._bytes, begin, number, len(message), _checksum(number, message))
        _NUMBER.pack_into(self._bytes, 0, number)
        self._written = number
        return number

    def read(self) -> tuple[int, bytes] | None:
        """The newest complete message with its number; None if there never was one."""
        for _ in range(_TRIES):
            number = self._newest()
            if number == (self._last[0] if self._last else 0):
                break
            begin = 8 + number % _SLOTS * self._slot
            found, length, checksum = _HEAD.unpack_from(self._bytes, begin)
            if found != number or length > self.size:
                continue
            message = bytes(self._bytes[begin + _HEAD.size : begin + _HEAD.size + length])
            if _checksum(number, message) == checksum:
                self._last = (number, message)
                break
        return self._last

    def close(self) -> None:
        """Detaches; the process that made the memory also removes it."""
        self._bytes = memoryview(b"")
        self._memory.close()
        if self._owner:
            self._owner = False
            self._memory.unlink()

    def _newest(self) -> int:
        return _NUMBER.unpack_from(self._bytes, 0)[0]


def _checksum(number: int, message: bytes) -> int:
    return zlib.crc32(message, zlib.crc32(_NUMBER.pack(number)))
