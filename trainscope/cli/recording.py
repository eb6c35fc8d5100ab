"""The scope that ``trainscope run`` puts around a program, from its start to its report."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter_ns

from trainscope import api as api  # loaded now: later the program's folder may hold any name
from trainscope.cli.script import Program
from trainscope.cli.sudden_ends import SuddenEnds
from trainscope.notice import say, write
from trainscope.record.exit import at_end
from trainscope.record.inference import StepInference, program_begins_in
from trainscope.record.inference.seen import Spot
from trainscope.record.schedule import Schedule
from trainscope.record.scope import Scope
from trainscope.record.session import Session
from trainscope.record.stand_in import stand_in
from trainscope.record.world import this_process
from trainscope.report import text
from trainscope.sync.cuda_present import cuda_present

__all__ = ["Recording"]


class Recording:
    """A scope with every model and optimizer hooked, its steps inferred."""

    def __init__(
        self,
        run_dir: Path,
        *,
        window: tuple[int, int, int],
        sync: str,
        stacks: bool,
        dry_run: bool,
    ) -> None:
        wait, warmup, active = window
        has_gpu = cuda_present()
        # asked now: the program may change its environment
        self._speaks = this_process().rank == 0
        if not has_gpu and not dry_run:
            self._say(
                "no CUDA device here, so this is a dry run: it finds lines that would wait for one"
            )
        self._session: Session | None = None
        self._inference: StepInference | None = None
        self._made_parent = not run_dir.absolute().parent.exists()
        self._ends = SuddenEnds(self._ends_suddenly)
        # before the scope's own, so that on SIGTERM the report comes as at any other end
        self._at_end = at_end(self.finish, flush=self._save)
        self._scope = Scope(
            run_dir,
            schedule=Schedule(wait=wait, warmup=warmup, active=active) if active else None,
            sync=sync,
            stacks=stacks,
            dry_run=dry_run or not has_gpu,
        )
        if self._scope._session is not None:
            self._infer_steps(self._scope._session)

    def _infer_steps(self, session: Session) -> None:
        recorder, loop = session.recorder, session.recorder.loop

        def begin() -> None:
            session.calls.begin_step()
            loop.trial = not inference.known

        def drop() -> None:
            session.calls.drop_step()
            loop.trial = False
            if not recorder.steps_done:
                loop.started = False  # what follows is still set-up

        def claim(belongs: Callable[[Spot], bool]) -> None:
            session.detector.claim_setup(belongs)
            loop.trial = False

        self._session = session
        self._inference = inference = StepInference(
            begin=begin,
            end=session.calls.end_step,
            end_last=lambda: session.calls.end_step(recorder.last_end_ns),
            drop=drop,
            claim=claim,
            backdate=recorder.backdate_step,
            optimizers=lambda: session.hooks.has_optimizers,
            eval_mode=lambda: recorder.loop.eval_mode,
        )
        program_begins_in(Program.run.__code__)
        session.detector.follow_setup(self._inference.spot)
        recorder.on_event = self._on_event
        recorder.loop.check_inside = self._inference.inside
        recorder.loop.check_evaluates = self._inference.evaluates
        session.hooks.add_everything()
        stand_in.offer(self._step_aside, dry_run=session.settings.dry_run)

    def _on_event(self, kind: str) -> bool:
        session, inference = self._session, self._inference
        if session is None or inference is None:
            return False
        calls, began_ns = session.calls, perf_counter_ns()
        told_ns = calls.own_ns
        begins = inference.on_event(kind, within_optimizer=session.hooks.in_optimizer)
        if calls.own_ns == told_ns:  # else it began or ended a step, which may hold a window
            calls.own_ns += perf_counter_ns() - began_ns
        if kind == "backward" and inference.step_is_sure:
            session.recorder.step_is_sure()
            session.recorder.loop.trial = False
        return begins

    def finish(self) -> None:
        """Write what is left and show the report; a fault here is told, the program's end stays."""
        self._end(self._show)

    def finish_left(self) -> None:
        """As ``finish``, after ``sys.exit``: a program that only showed its help has no files."""
        self._end(self._show_or_drop)

    def _end(self, tell: Callable[[Session], None]) -> None:
        session, self._session = self._session, None
        self._at_end.cancel()
        self._ends.forget()
        stand_in.withdraw()
        if session is None or self._inference is None:
            return
        try:
            session.recorder.on_event = session.recorder.loop.check_inside = None
            session.counted_by = self._inference.counted_by
            self._inference.finish()
            self._scope.close()
            if self._speaks:
                tell(session)
        except Exception as fault:
            self._say(f"the report could not be made ({type(fault).__name__}: {fault})")

    def _save(self) -> None:
        if self._session is not None and self._inference is not None:
            self._session.counted_by = self._inference.counted_by
            self._session.save()

    def _ends_suddenly(self, call: str) -> None:
        """Save and say so; nothing is closed, which could wait for a GPU that hangs."""
        session = self._session
        if session is None:
            return
        try:
            self._save()
        except Exception as fault:
            self._say(f"the recording could not be saved ({type(fault).__name__}: {fault})")
        place = session.directory.path
        if call == "os._exit":
            words = f"the program ends in {call}, so it has no report here"
        else:
            words = (
                f"the program replaces itself by another ({call}), which is not recorded; "
                "if that is itself with other environment variables, set them beforehand"
            )
        self._say(f"{words}; the files are in {place}; trainscope report {place}")

    def _show_or_drop(self, session: Session) -> None:
        if not _holds_nothing(session) or this_process().size > 1:
            self._show(session)
            return
        self._discard(session)
        why = (session.counted_by or "").removeprefix("cannot tell: ")
        self._say(f"nothing to report, so no files are left: {why}")

    def _show(self, session: Session) -> None:
        write(f"{text.render(self._scope.report())}\n")
        place = session.directory.path
        self._say(f"the files are in {place}; trainscope report {place}")

    def _step_aside(self) -> None:
        """The program makes a scope of its own: that one records."""
        session, self._session = self._session, None
        if session is None:
            return
        self._ends.forget()
        session.recorder.on_event = session.recorder.loop.check_inside = None
        session.counted_by = "cannot tell: the program's own Scope took over"
        self._scope.close()
        words = "the program makes its own trainscope.Scope, so that one records"
        if session.recorder.steps_done or this_process().size > 1:  # other ranks look for theirs
            words += f"; nothing more goes to {session.directory.path}"
        else:
            self._discard(session)
        self._say(words)

    def _discard(self, session: Session) -> None:
        session.directory.discard()
        if self._made_parent:
            with suppress(OSError):  # something else is in it by now
                session.directory.path.parent.rmdir()

    def _say(self, words: str) -> None:
        if self._speaks:
            say(f"trainscope: {words}")


def _holds_nothing(session: Session) -> bool:
    """Whether no model ran and nothing waited: the program showed its help, say."""
    seen = session.recorder
    happened = seen.steps_done or seen.forwards or seen.backwards or seen.optimizer_steps
    return not happened and not session.detector.sites()
