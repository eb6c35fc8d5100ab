"""Read a ``.wandb`` file back: LevelDB's log framing around protobuf records."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# with wandb's own messages: whoever imports this without wandb is skipped
Record: Any = vars(pytest.importorskip("wandb.proto.wandb_internal_pb2"))["Record"]
BLOCK_BYTES = 32768
FILE_HEADER = b":W&B" + struct.pack("<HB", 0xBEE1, 0)
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def frames(data: bytes) -> Iterator[bytes]:
    """The payloads: each is one chunk, or a first, middle and last ones over several blocks."""
    assert data.startswith(FILE_HEADER), data[:16]
    place = len(FILE_HEADER)
    parts: list[bytes] = []
    while place + 7 <= len(data):
        left_in_block = BLOCK_BYTES - place % BLOCK_BYTES
        if left_in_block < 7:
            place += left_in_block
            continue
        checksum, length, kind = struct.unpack_from("<IHB", data, place)
        payload = data[place + 7 : place + 7 + length]
        assert len(payload) == length, "cut off"
        assert zlib.crc32(bytes([kind]) + payload) == checksum, f"checksum at {place}"
        place += 7 + length
        parts.append(payload)
        if kind in (FULL, LAST):
            yield b"".join(parts)
            parts = []
        else:
            assert kind in (FIRST, MIDDLE), kind


def history(path: Path) -> list[dict[str, Any]]:
    """Every history row of the run, keys joined with ``/``."""
    rows = []
    for payload in frames(path.read_bytes()):
        record = Record()
        record.ParseFromString(payload)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            rows.append({"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in items})
    return rows


def run_record(path: Path) -> Any:
    """The run's own record: project, group, name, job type."""
    for payload in frames(path.read_bytes()):
        record = Record()
        record.ParseFromString(payload)
        if record.WhichOneof("record_type") == "run":
            return record.run
    raise AssertionError(f"{path} holds no run")
