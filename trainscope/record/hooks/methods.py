"""``__call__`` of models and ``step`` of optimizers, watched through their classes.

Nothing is put on an instance, so a pickle, a ``torch.save`` or a deepcopy carries nothing of ours.
A class is patched once per process, whoever watches; its other instances pass straight through.
"""

from __future__ import annotations

import functools
import inspect
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from torch.compiler import is_dynamo_compiling

from trainscope.record.hooks.instances import InstancePatch
from trainscope.record.hooks.patch import Patch, hide_from_dynamo, stays_beneath
from trainscope.record.hooks.watch import Watched, Watcher

__all__ = ["CALLS", "STEPS", "Entry", "MethodTable", "steps_of"]


class Entry(Watched):
    """One watched object: its watchers, and the wrapper that answers for it.

    A subclass and its base may both be patched; only the wrapper with this ``marker`` acts.
    """

    __slots__ = ("instance_patch", "marker", "reference")

    def __init__(self, marker: object, reference: object) -> None:
        super().__init__()
        self.marker = marker
        self.reference = reference
        self.instance_patch: InstancePatch | None = None


class MethodTable:
    """The watched objects of one method name, and the patches on their classes."""

    def __init__(self, name: str, wrap: Callable[[dict[int, Entry], type, object], Any]) -> None:
        self.name = name
        self.entries: dict[int, Entry] = {}
        self._wrap = wrap
        self._patches: dict[type, tuple[Patch, object]] = {}

    def watch(self, target: Any, watcher: Watcher) -> None:
        """Tell ``watcher`` of each ``target.<name>()``; patches its class if need be."""
        entry = self.entries.get(id(target))
        if entry is None:
            entry = self._new_entry(target)
            self.entries[id(target)] = entry
        entry.add(watcher)

    def told(self, target: Any, watchers: Sequence[Watcher]) -> bool:
        """Whether one of ``watchers`` is told of ``target`` already."""
        entry = self.entries.get(id(target))
        return entry is not None and any(each in watchers for each in entry.watchers)

    def unwatch(self, watchers: frozenset[Watcher]) -> tuple[str, ...]:
        """Forget ``watchers`` and unpatch each class nobody watches; in words what must stay."""
        buried: list[str] = []
        for key, entry in list(self.entries.items()):
            entry.discard(watchers)
            if not entry.watchers:  # also those that an interrupted call has left
                if entry.instance_patch is not None and not entry.instance_patch.remove():
                    buried.append(f"the {self.name} of one instance")
                self.entries.pop(key, None)
        in_use = {id(entry.marker) for entry in self.entries.values()}
        for cls, (patch, marker) in list(self._patches.items()):
            if id(marker) not in in_use:
                if not patch.remove():
                    buried.append(f"{cls.__module__}.{cls.__qualname__}.{self.name}")
                del self._patches[cls]
        return tuple(stays_beneath(what) for what in buried)

    def _new_entry(self, target: Any) -> Entry:
        shadowed = self.name != "__call__" and self.name in getattr(target, "__dict__", {})
        marker = object() if shadowed else self._marker(type(target))
        entry = Entry(marker, self._reference(target))
        if shadowed:
            entry.instance_patch = InstancePatch(target, self.name, entry)
        return entry

    def _marker(self, cls: type) -> object:
        known = self._patches.get(cls)
        if known is not None and known[0].on_top:
            return known[1]
        marker = object()
        self._patches[cls] = Patch(cls, self.name, self._wrap(self.entries, cls, marker)), marker
        return marker

    def _reference(self, target: Any) -> object:
        key = id(target)
        try:
            return weakref.ref(target, lambda _: self.entries.pop(key, None))
        except TypeError:  # an object with __slots__ and no __weakref__: keep it, ids are reused
            return target


def _wrapped_call(entries: dict[int, Entry], cls: type, marker: object) -> Any:
    """The new ``cls.__call__``; one that ``cls`` inherits is looked up anew at each call.

    torch.fx replaces ``Module.__call__`` while it traces, and must find itself called.
    """
    own = vars(cls).get("__call__")
    if own is not None:
        return _wrapped_method(entries, own, marker)
    provider: Any = next(base for base in cls.__mro__[1:] if "__call__" in vars(base))

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling():
            return provider.__call__(self, *args, **kwargs)
        entry = entries.get(id(self))
        if entry is None or entry.marker is not marker:
            return provider.__call__(self, *args, **kwargs)
        watcher = entry.watcher
        token = None if watcher is None else watcher.begin(self, args)
        if watcher is None or token is None:
            return provider.__call__(self, *args, **kwargs)
        try:
            return provider.__call__(self, *args, **kwargs)
        finally:
            watcher.end(token)

    hide_from_dynamo(call)
    return functools.wraps(provider.__call__)(call)


def _wrapped_step(entries: dict[int, Entry], cls: type, marker: object) -> Any:
    return _wrapped_method(entries, inspect.getattr_static(cls, "step"), marker)


def _wrapped_method(entries: dict[int, Entry], found: object, marker: object) -> Any:
    method = _unbound(found)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling():
            return method(self, *args, **kwargs)
        entry = entries.get(id(self))
        if entry is None or entry.marker is not marker:
            return method(self, *args, **kwargs)
        watcher = entry.watcher
        token = None if watcher is None else watcher.begin(self, args)
        if watcher is None or token is None:
            return method(self, *args, **kwargs)
        try:
            return method(self, *args, **kwargs)
        finally:
            watcher.end(token)

    hide_from_dynamo(call)
    return functools.wraps(method)(call)


def _unbound(found: object) -> Callable[..., Any]:
    """What stands in a class's ``__dict__``, as a function that takes the instance first."""
    if isinstance(found, types.FunctionType):
        return found

    def bound_anew(self: Any, *args: Any, **kwargs: Any) -> Any:
        bound = found.__get__(self, type(self)) if hasattr(found, "__get__") else found  # type: ignore[attr-defined]
        return bound(*args, **kwargs)  # type: ignore[operator]

    return bound_anew


def steps_of(optimizer: Any) -> Any:
    """The object whose ``step`` it is, for a shell that passes attributes on with __getattr__."""
    try:
        inspect.getattr_static(optimizer, "step")
    except AttributeError:
        return getattr(optimizer.step, "__self__", optimizer)
    return optimizer


CALLS = MethodTable("__call__", _wrapped_call)
STEPS = MethodTable("step", _wrapped_step)
