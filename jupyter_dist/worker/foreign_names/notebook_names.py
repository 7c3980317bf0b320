"""Private names of IPython and ipykernel, and of pandas."""

from __future__ import annotations

from .private_name import Missing, Probe, Row

__all__ = ["DOCUMENTED", "ROWS"]

ROWS: tuple[Row, ...] = (
    Row(
        "IPython.core.compilerop",
        ("_filename_map",),
        ("start/origin",),
        Missing.OFF,
        "Naming the cell of a line in a traceback",
        Probe.WRITTEN,
    ),
    Row(
        "ipykernel.comm.comm",
        ("_reply_subshell_for",),
        ("showing/frontends",),
        Missing.OFF,
        "Reacting to the Stop button while a cell runs",
        Probe.WRITTEN,
    ),
    Row(
        "loguru._handler",
        ("Handler",),
        ("worker/pickling/reducers/__init__",),
        Missing.REFUSE,
        "Sending loguru's handlers",
    ),
    Row(
        "loguru._file_sink",
        ("FileSink",),
        ("worker/pickling/reducers/output_writers",),
        Missing.REFUSE,
        "Sending loguru's handlers",
    ),
    Row(
        "loguru._handler",
        ("_sink", "_enqueue", "_queue", "_confirmation_event", "_confirmation_lock"),
        ("worker/pickling/reducers/output_writers",),
        Missing.REFUSE,
        "Sending loguru's handlers",
        Probe.WRITTEN,
    ),
    Row(
        "numpy",
        ("_core",),
        ("worker/pickling/unpickling",),
        Missing.OFF,
        "Loading arrays of numpy 2 with numpy 1",
        Probe.SOME_BUILDS,
    ),
    Row(
        "pandas._config.config",
        ("_registered_options", "_global_config"),
        ("worker/settings/libraries/numeric",),
        Missing.OFF,
        "Copying pandas' options from the notebook",
    ),
)

DOCUMENTED: dict[str, str] = {
    "_exit": "https://docs.python.org/3/library/os.html#os._exit",
    "_getframe": "https://docs.python.org/3/library/sys.html#sys._getframe",
    "_asdict": "https://docs.python.org/3/library/collections.html#collections.somenamedtuple._asdict",
    "_replace": "https://docs.python.org/3/library/collections.html#collections.somenamedtuple._replace",
    "_field_defaults": "https://docs.python.org/3/library/collections.html#collections.somenamedtuple._field_defaults",
    "_fields": "https://docs.python.org/3/library/collections.html#collections.somenamedtuple._fields",
    **dict.fromkeys(
        [f"_repr_{kind}_" for kind in "html markdown svg png jpeg pdf latex json mimebundle".split()],
        "https://ipython.readthedocs.io/en/stable/config/integrating.html#rich-display",
    ),
    "_ipython_display_": "https://ipython.readthedocs.io/en/stable/config/integrating.html#custom-methods",
    "_render_traceback_": (
        "https://ipython.readthedocs.io/en/stable/config/integrating.html#custom-exception-tracebacks"
    ),
    **dict.fromkeys(
        ("_i", "_ii", "_iii", "_ih", "_oh", "_dh"),
        "https://ipython.readthedocs.io/en/stable/interactive/reference.html#input-caching-system",
    ),
}
"""Names with an underscore that their library documents, with the links."""
