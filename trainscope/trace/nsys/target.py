"""What an export says of the machine: GPUs, threads, processes, clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainscope.trace.nsys.database import NO_NUMBER, Database
from trainscope.trace.window import Thread

__all__ = ["Target", "read_target"]

_24_BITS = 0xFFFFFF
_MOST_DEVICES = 1024


@dataclass(frozen=True)
class Target:
    """Names of what was recorded."""

    gpus: Mapping[tuple[int, int], str]
    """By process id and the number that this process gives the GPU; process -1: any."""
    threads: Mapping[int, str]
    """By global id."""
    processes: Mapping[int, str]
    """By process id."""
    unix_ns_at_zero: int | None
    version: str
    """Of the nsys that exported, with a space before it; empty where it is not known."""

    def thread(self, global_tid: int) -> Thread:
        """The thread of a global id."""
        tid = global_tid & _24_BITS
        return Thread(
            pid=(global_tid >> 24) & _24_BITS,
            tid=tid,
            name=self.threads.get(global_tid) or f"thread {tid}",
        )

    def devices_of(self, process: int) -> tuple[str, ...]:
        """Names of the GPUs by the numbers that a process gives them; empty for what is unknown."""
        pid = process & _24_BITS
        named = {number: name for (owner, number), name in self.gpus.items() if owner in (-1, pid)}
        return tuple(named.get(number, "") for number in range(max(named, default=-1) + 1))

    def process_name(self, process: int) -> str:
        """The process in words."""
        pid = process & _24_BITS
        name = self.processes.get(pid)
        return f"process {pid} ({name})" if name else f"process {pid}"


def read_target(database: Database, strings: Mapping[int, str]) -> Target:
    """Read it; what the export does not hold is empty or None."""
    return Target(
        gpus=_gpus(database),
        threads=_thread_names(database, strings),
        processes=database.names("PROCESSES", "pid", "name"),
        unix_ns_at_zero=_start(database),
        version=_version(database),
    )


def _gpus(database: Database) -> dict[tuple[int, int], str]:
    """Names by CUDA's numbers, which differ from the machine's under CUDA_VISIBLE_DEVICES."""
    by_machine = database.names("TARGET_INFO_GPU", "id", "name")
    read = database.numbers("TARGET_INFO_CUDA_DEVICE", ["gpuId", "cudaId", "pid"])
    if {"gpuId", "cudaId"} <= set(read):
        owners = read["pid"].tolist() if "pid" in read else [-1] * len(read["gpuId"])
        rows = zip(owners, read["cudaId"].tolist(), read["gpuId"].tolist(), strict=True)
        mapped = {(max(owner, -1), cuda): by_machine.get(gpu, "") for owner, cuda, gpu in rows}
    else:
        by_cuda = database.names("TARGET_INFO_GPU", "cuDevice", "name")
        mapped = {(-1, number): name for number, name in (by_cuda or by_machine).items()}
    return {key: name for key, name in mapped.items() if 0 <= key[1] < _MOST_DEVICES}


def _thread_names(database: Database, strings: Mapping[int, str]) -> dict[int, str]:
    read = database.numbers("ThreadNames", ["globalTid", "nameId"])
    if len(read) < 2:
        return {}
    rows = zip(read["globalTid"].tolist(), read["nameId"].tolist(), strict=True)
    return {tid: strings[name] for tid, name in rows if name in strings}


def _start(database: Database) -> int | None:
    read = database.numbers("TARGET_INFO_SESSION_START_TIME", ["utcEpochNs"])
    found = [number for number in read.get("utcEpochNs", ()) if number > NO_NUMBER]
    return int(found[0]) if found else None


def _version(database: Database) -> str:
    columns = database.columns("META_DATA_EXPORT")
    if not {"name", "value"} <= columns:
        return ""
    names = database.texts("META_DATA_EXPORT", "name")
    values = database.texts("META_DATA_EXPORT", "value")
    found = dict(zip(names, values, strict=True))
    product = found.get("EXPORT_PRODUCT_VERSION")
    return f" {product}" if product else ""
