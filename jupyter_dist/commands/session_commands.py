"""Commands for sessions."""

from __future__ import annotations

import time

from pydantic import Field

from .. import backends
from ..errors import InputError
from ..launch import session_link
from ..record.sessions import StoredSession, list_sessions
from ..start import session_default, session_end
from ..text.format import count, duration
from ..text.table import Message, Table
from ..worker.session import place
from .run_commands import Context, Empty, command

__all__ = ["SESSION_COMMANDS"]

_SHOWN_NAMES = 8
_COMMANDS = {
    **dict.fromkeys(("close", "end", "stop"), "%dist close"),
    "kill": "%dist close --kill",
    "list": "%dist sessions",
}
"""Words that users write behind `%dist session`, and the commands for them."""
_SOON_S = 600.0
"""A session that would end within this time shows the time that is left, as in the sidebar."""


def _sessions(context: Context, _: Empty, __: tuple[str, ...]) -> Table:
    found = list_sessions()
    rows = [
        (
            one.name,
            str(one.about["backend"]),
            str(one.world_size),
            one.host,
            _doing(one),
            _names(one),
            _ends(one),
        )
        for one in found
    ]
    columns = ("session", "backend", "np", "host", "now", "names on rank 0", "ends when idle for")
    data = [dict(one.about) for one in found]
    return Table(columns, rows, data=data, empty="there are no sessions")


def _doing(session: StoredSession) -> str:
    about = session.about
    dead = [str(rank["rank"]) for rank in about["ranks"] if rank["state"] not in ("running", "pending")]
    gone = f"; rank {', '.join(dead)} has ended" if dead else ""
    if about["runs"] is not None:
        queued = f", {len(about['queued'])} queued" if about["queued"] else ""
        return f"runs {about['runs']}{queued}{gone}"
    idle_s = time.time() - float(about["idle_since"])
    return f"idle for {duration(idle_s)}{_left(about['idle_timeout_s'], idle_s)}{gone}"


def _left(limit_s: float | None, idle_s: float) -> str:
    if limit_s is None or limit_s - idle_s >= min(_SOON_S, limit_s / 2):
        return ""
    return f"; ends in {duration(max(0.0, limit_s - idle_s))} if no cell uses it"


def _names(session: StoredSession) -> str:
    names = [f"{name} ({kind})" for name, kind in sorted(session.about["names"].items())]
    more = len(names) - _SHOWN_NAMES
    return ", ".join(names[:_SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")


def _ends(session: StoredSession) -> str:
    limit = session.about["idle_timeout_s"]
    return "never" if limit is None else duration(float(limit))


class _Close(Empty):
    kill: bool = Field(False, description="Kill the ranks at once, also if the session does not answer")


def _close(context: Context, flags: _Close, names: tuple[str, ...]) -> Message:
    chosen = [session_link.existing(name) for name in names or (place.DEFAULT,)]
    lines = []
    for session in chosen:
        if flags.kill:
            ended, more = _kill(session)
        else:
            ended, more = session_end.close(session)
        if ended:
            lines.append(f"closed the session {session.name} with {count(session.world_size, 'rank')}")
        lines += [] if more is None else [more]
    return Message("\n".join(lines))


def _kill(session: StoredSession) -> tuple[bool, str | None]:
    """Kill a session's supervisor. Returns the same as `session_end.close`."""
    if not session_link.kill(session):
        return False, f"the supervisor of the session {session.name} was killed, but has not ended yet"
    if not backends.declared(session.about["backend"]).capabilities.outlives:
        return True, None
    grace = duration(float(session.about["options"].get("grace") or 300.0))
    return True, f"its hosts end the ranks when no supervisor has answered for {grace}"


def _session(context: Context, _: Empty, names: tuple[str, ...]) -> Message:
    if context.terminal:
        raise InputError(
            "`session` works only in a notebook. In a terminal, write "
            "`jupyter dist run --session=NAME SCRIPT`"
        )
    if not names:
        name = session_default.get()
        return Message(
            "cells of this notebook use no session" if name is None else f"cells use the session {name}"
        )
    if names[0] == "off":
        session_default.set(None)
        return Message("%%distribute starts new ranks for each cell again")
    command_for = _COMMANDS.get(names[0])
    if command_for is not None and names[0] not in {one.name for one in list_sessions()}:
        raise InputError(f"there is no session {names[0]!r}. Did you mean `{command_for}`?")
    if not place.is_name(names[0]):
        raise InputError(f"{names[0]!r} is not the name of a session. Use letters, digits, dots, - and _")
    session_default.set(names[0])
    return Message(f"%%distribute sends cells to the session {names[0]} until `%dist session off`")


SESSION_COMMANDS = (
    command("sessions", "", "List the sessions: their ranks, what they do, what they have.", _sessions),
    command(
        "session",
        "[NAME|off]",
        "Send plain %%distribute cells of this notebook to a session, until `%dist session off`.",
        _session,
        at_most=1,
    ),
    command("close", "[NAME…]", "End sessions and their ranks. Default: main.", _close, _Close, at_most=None),
)
