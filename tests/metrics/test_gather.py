"""One launch for the values of a call: what is in its parameters, and what is left to torch.

The driver is a stand-in that reads the parameters as the kernel does, on host memory.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import torch
from metrics_rig import Rig, until

from trainscope.metrics import gather, split
from trainscope.metrics.gather import Gather
from trainscope.metrics.gather_kernel import GATHER_LIMIT

_WIDTHS: dict[int, tuple[Any, Any]] = {
    0: (ctypes.c_uint64, ctypes.c_uint64),
    1: (ctypes.c_uint32, ctypes.c_uint32),
    2: (ctypes.c_uint8, ctypes.c_int64),
    3: (ctypes.c_int8, ctypes.c_int64),
    4: (ctypes.c_int16, ctypes.c_int64),
    5: (ctypes.c_uint16, ctypes.c_int64),
    6: (ctypes.c_int32, ctypes.c_int64),
    7: (ctypes.c_uint32, ctypes.c_int64),
}


def _at(address: int, kind: Any) -> Any:
    return kind.from_address(address)


class StandInDriver:
    """``cuLaunchKernelEx`` on the CPU; ``before`` is called as each launch begins."""

    def __init__(self) -> None:
        self.launches: list[int] = []
        self.answer = 0
        self.before: Callable[[], None] = lambda: None

    def launch(self, config_at: Any, function: Any, pointers_at: Any, extra: None) -> int:
        self.before()
        if self.answer:
            return self.answer
        count = ctypes.cast(config_at, ctypes.POINTER(gather._LaunchConfig)).contents.block_x
        parameters = ctypes.cast(pointers_at, ctypes.POINTER(ctypes.c_void_p)).contents.value
        assert parameters is not None
        for i in range(count):
            code = _at(parameters + i, ctypes.c_uint8).value
            to = _at(parameters + 32 + 8 * i, ctypes.c_uint64).value
            from_ = _at(parameters + 32 + 8 * (count + i), ctypes.c_uint64).value
            if code in _WIDTHS:
                source, row = _WIDTHS[code]
                _at(to, row).value = _at(from_, source).value
            elif code == 8:
                bits = _at(from_, ctypes.c_int16).value
                half = torch.tensor(bits, dtype=torch.int16).view(torch.float16)
                _at(to, ctypes.c_float).value = float(half)
            else:
                assert code == 9
                _at(to, ctypes.c_uint32).value = _at(from_, ctypes.c_uint16).value << 16
        self.launches.append(count)
        return 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> StandInDriver:
    made = StandInDriver()

    kernel = made.launch, ctypes.c_void_p(1)

    class Ready(Gather):
        def __init__(self, dtypes: Sequence[torch.dtype], device_index: int) -> None:
            super().__init__(dtypes, device_index)
            self._one_gpu = True
            self.take(kernel)

    monkeypatch.setattr(gather, "_waiting", deque())
    monkeypatch.setattr(split, "Gather", Ready)
    monkeypatch.setattr(
        Gather, "takes", staticmethod(lambda dtypes, _: 0 < len(dtypes) <= GATHER_LIMIT)
    )
    return made


EACH_DTYPE = {
    "f32": (0.1, torch.float32, float(torch.tensor(0.1))),
    "f64": (0.1, torch.float64, 0.1),
    "f16": (1 / 3, torch.float16, 0.333251953125),
    "bf16": (1 / 3, torch.bfloat16, 0.333984375),
    "i64": (2**53 + 1, torch.int64, 2**53 + 1),
    "u64": (2**64 - 1, torch.uint64, 2**64 - 1),
    "i32": (-(2**31), torch.int32, -(2**31)),
    "u32": (2**32 - 1, torch.uint32, 2**32 - 1),
    "i16": (-7, torch.int16, -7),
    "u16": (2**16 - 1, torch.uint16, 2**16 - 1),
    "i8": (-7, torch.int8, -7),
    "u8": (200, torch.uint8, 200),
    "bool": (True, torch.bool, 1),
}


def call_of_each_dtype(device: str) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """A tensor of each dtype, and what arrives of it."""
    call = {
        name: torch.tensor(value, dtype=dtype).to(device)
        for name, (value, dtype, _) in EACH_DTYPE.items()
    }
    return call, {name: expected for name, (_, _, expected) in EACH_DTYPE.items()}


def test_every_dtype_arrives_by_one_launch_a_call(driver: StandInDriver) -> None:
    call, expected = call_of_each_dtype("cpu")
    with Rig() as rig:
        for step in range(3):
            rig.logger.log(step, call)
        assert rig.close() == [(step, expected) for step in range(3)]
    assert driver.launches == [len(call)] * 3


def test_numbers_and_tensors_of_several_dtypes_keep_their_order(driver: StandInDriver) -> None:
    with Rig() as rig:
        for step in range(200):
            total = torch.tensor(step)
            call = {"n": total, "lr": 0.5, "loss": total.float() / 4, "m": total + 1, "batch": 64}
            rig.logger.log(step, call)
            total.fill_(-1)
        rows = rig.close()
    expected = [{"n": s, "lr": 0.5, "loss": s / 4, "m": s + 1, "batch": 64} for s in range(200)]
    assert rows == list(enumerate(expected))
    assert [list(values) for _, values in rows] == [["n", "lr", "loss", "m", "batch"]] * 200
    assert driver.launches == [3] * 200


def test_what_torch_has_to_see_to_is_left_to_it(driver: StandInDriver) -> None:
    negated = torch.tensor(1 - 2j).conj().imag
    assert negated.is_neg()
    zero = torch._efficientzerotensor(())  # pyright: ignore[reportPrivateImportUsage]
    with Rig() as rig:
        for step, x in enumerate([torch.tensor(1.5), negated, zero, torch.tensor([2.5])]):
            rig.logger.log(step, {"x": x})
        rig.logger.log(4, {"x": torch.tensor(3.5)})
        rows = rig.close()
    assert rows == [(s, {"x": x}) for s, x in enumerate([1.5, 2.0, 0.0, 2.5, 3.5])]
    assert driver.launches == [1, 1], "the first and the last are plain"


def test_a_driver_that_refuses_is_asked_no_more(driver: StandInDriver) -> None:
    driver.answer = 400
    asked: list[int] = []
    driver.before = lambda: asked.append(1)
    with Rig() as rig:
        for step in range(3):
            rig.logger.log(step, {"x": torch.tensor(float(step)), "n": torch.tensor(step)})
        assert rig.close() == [(s, {"x": float(s), "n": s}) for s in range(3)]
    assert asked == [1]


def test_a_thread_without_a_context_is_no_reason_to_give_up(driver: StandInDriver) -> None:
    driver.answer = 201
    with Rig() as rig:
        for step in range(3):
            rig.logger.log(step, {"x": torch.tensor(float(step))})
            driver.answer = 0  # torch's copy has made it current
        assert rig.close() == [(s, {"x": float(s)}) for s in range(3)]
    assert driver.launches == [1, 1]


class _Emptied(deque[Gather]):
    """Another worker takes the last one between the look and the taking."""

    def __bool__(self) -> bool:
        return True


def test_two_scopes_workers_may_load_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "_waiting", _Emptied())
    gather.load_awaited()
    assert len(gather._waiting) == 0


def test_a_signal_handler_that_logs_in_the_middle_takes_nobodys_parameters(
    driver: StandInDriver,
) -> None:
    with Rig() as rig:

        def handler() -> None:
            driver.before = lambda: None
            rig.logger.log(1, {"x": torch.tensor(11.0)})

        driver.before = handler
        rig.logger.log(0, {"x": torch.tensor(10.0)})
        assert sorted(rig.close()) == [(0, {"x": 10.0}), (1, {"x": 11.0})]


def test_more_values_than_a_warp_are_left_to_torch(driver: StandInDriver) -> None:
    call = {f"m{i}": torch.tensor(float(i)) for i in range(GATHER_LIMIT + 1)}
    with Rig() as rig:
        rig.logger.log(0, call)
        assert rig.close() == [(0, {f"m{i}": float(i) for i in range(GATHER_LIMIT + 1)})]
    assert driver.launches == []


@pytest.mark.parametrize(
    ("dtypes", "devices", "taken"),
    [
        ([torch.float32, torch.int8], [0, 0], True),
        ([torch.float32, torch.int8], [0, 1], False),
        ([torch.float32, torch.int8], [0, -1], False),
        ([torch.float32], [-1], False),
        ([], [], False),
        ([torch.float32, torch.float8_e5m2], [0], False),
        ([torch.float32] * GATHER_LIMIT, [0], True),
        ([torch.float32] * (GATHER_LIMIT + 1), [0], False),
    ],
)
def test_one_launch_takes_known_dtypes_of_one_gpu(
    monkeypatch: pytest.MonkeyPatch, dtypes: list[torch.dtype], devices: list[int], taken: bool
) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert Gather.takes(dtypes, devices) is taken
    monkeypatch.setattr(torch.version, "cuda", None)
    assert not Gather.takes(dtypes, devices)


def gather_of(rig: Rig, names: Iterable[str]) -> Gather:
    """What launches the copies of a call with these names."""
    found = rig.logger._splitter._layouts[tuple(names)].gather
    assert found is not None
    return found


def test_until_the_kernel_is_loaded_torch_copies(
    driver: StandInDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split, "Gather", Gather)
    monkeypatch.setattr(gather, "_kernels", {-1: (driver.launch, ctypes.c_void_p(1))})
    with Rig(interval_s=60.0) as rig:
        for step in range(3):
            rig.logger.log(step, {"x": torch.tensor(float(step))})
        assert driver.launches == []
        gather_of(rig, "x")._one_gpu = True
        gather.load_awaited()
        rig.logger.log(3, {"x": torch.tensor(3.0)})
        assert driver.launches == [1]
        assert rig.close() == [(s, {"x": float(s)}) for s in range(4)]


def test_values_on_another_device_than_the_current_one_are_left_to_torch(
    driver: StandInDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = iter([-1, 0, -1])
    monkeypatch.setattr(torch.cuda, "current_device", lambda: next(devices))
    with Rig() as rig:
        rig.logger.log(0, {"x": torch.tensor(0.0)})
        gather_of(rig, "x")._one_gpu = False
        for step in range(1, 4):
            rig.logger.log(step, {"x": torch.tensor(float(step))})
        assert rig.close() == [(s, {"x": float(s)}) for s in range(4)]
    assert len(driver.launches) == 3


class LoadingDriver:
    """Notes what is called; ``fails`` is the call that does."""

    def __init__(self, fails: str) -> None:
        self.calls: list[str] = []
        self._fails = fails

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name == self._fails == "cuLaunchKernelEx":
            raise AttributeError(name)

        def call(*_: object) -> int:
            self.calls.append(name)
            return 218 if name == self._fails else 0

        return call


PUSHED = ["cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2"]
POPPED = ["cuCtxPopCurrent_v2", "cuDevicePrimaryCtxRelease_v2"]
LOADED = ["cuModuleLoadData", "cuModuleGetFunction"]


@pytest.mark.parametrize(
    ("fails", "calls"),
    [
        ("nothing", [*PUSHED, *LOADED, *POPPED]),
        ("cuModuleLoadData", [*PUSHED, *LOADED[:1], *POPPED]),
        ("cuCtxPushCurrent_v2", [*PUSHED, *POPPED[1:]]),
        ("cuDevicePrimaryCtxRetain", PUSHED[:2]),
        ("cuLaunchKernelEx", []),
    ],
)
def test_the_kernel_is_loaded_once_a_device_and_the_context_left_as_it_was(
    monkeypatch: pytest.MonkeyPatch, fails: str, calls: list[str]
) -> None:
    loading = LoadingDriver(fails)
    monkeypatch.setattr(gather, "_driver", lambda: loading)
    monkeypatch.setattr(gather, "_waiting", deque())
    monkeypatch.setattr(gather, "_kernels", {})
    two = [Gather([torch.float32], 0), Gather([torch.int64], 0)]
    gather.load_awaited()
    gather.load_awaited()
    assert [each.ready for each in two] == [fails == "nothing"] * 2
    assert loading.calls == calls


@pytest.mark.gpu
def test_the_kernel_itself_on_each_dtype() -> None:
    call, expected = call_of_each_dtype("cuda")
    with Rig(interval_s=0.02) as rig:
        rig.logger.log(0, call)
        until(lambda: gather_of(rig, call).ready)  # the worker has loaded the kernel
        for step in range(1, 4):
            rig.logger.log(step, call)
        assert gather_of(rig, call).ready, "the driver has refused it"
        assert rig.close() == [(step, expected) for step in range(4)]


@pytest.mark.gpu
@pytest.mark.parametrize("count", [1, 2, GATHER_LIMIT])
def test_the_kernel_on_special_values_of_half_precision(count: int) -> None:
    values = [1.0, float("inf"), float("-inf"), 0.0, 2.0**-24, 65504.0, -1.5]
    names = [f"h{i}" for i in range(count)]
    with Rig(interval_s=0.02) as rig:
        for step, value in enumerate(values):
            one = torch.tensor(value, device="cuda")
            halves = (one.half() if i % 2 else one.bfloat16() for i in range(count))
            rig.logger.log(step, dict(zip(names, halves, strict=True)))
            until(lambda: gather_of(rig, names).ready)
        rows = rig.close()
    for (_, arrived), value in zip(rows, values, strict=True):
        for i, name in enumerate(names):
            dtype = torch.float16 if i % 2 else torch.bfloat16
            assert arrived[name] == float(torch.tensor(value).to(dtype))
