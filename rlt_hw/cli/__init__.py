"""The command line. Each command is a module, imported when it is called.

Exit codes: 0 done; 1 an error inside rlt-hw; 2 wrong usage or input; 3 the hardware, the packages or the
memory cannot serve what was asked. Errors say what was found, what is allowed and what to do, on stderr;
with `--json` also as one JSON object on stdout.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")

OK, INTERNAL, USAGE, UNSUPPORTED = 0, 1, 2, 3

# Command -> the function that serves it. Its docstring is the help text.
COMMANDS = {
    "probe": "rlt_hw.cli.probe:probe",
    "doctor": "rlt_hw.cli.doctor:doctor",
    "plan": "rlt_hw.cli.plan:plan",
    "generate": "rlt_hw.cli.generate:generate",
    "eval": "rlt_hw.cli.eval:eval",
    "bench": "rlt_hw.cli.bench:bench",
    "verify": "rlt_hw.cli.verify:verify",
}


class LazyCommands(TyperGroup):
    """A group that imports a command's module when the command is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module, _, function = COMMANDS[cmd_name].partition(":")
        single = typer.Typer(add_completion=False)
        single.command(cmd_name)(getattr(importlib.import_module(module), function))
        return typer.main.get_command(single)


app = typer.Typer(
    cls=LazyCommands,
    name="rlt-hw",
    help="Run looped transformers on the accelerator that is here, and say why it was chosen.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def options() -> None:
    """Run looped transformers on the accelerator that is here, and say why it was chosen."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Never raises, but for an interrupt."""
    from rlt_hw.errors import RltHwError

    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        _start_logging()
        app(args=words, prog_name="rlt-hw")
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else INTERNAL if ending.code else OK
    except RltHwError as error:
        return _report(error, as_json="--json" in words)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone; nobody is left to complain to
        return OK
    except Exception:  # noqa: BLE001 - the last place; whatever arrives here is a fault of ours
        import traceback

        traceback.print_exc()
        print("rlt-hw: an error inside rlt-hw; please report the lines above.", file=sys.stderr)
        return INTERNAL
    return OK


def _start_logging() -> None:
    """Log to stderr at RLT_HW_LOG_LEVEL, where it is set. Raises ConfigError for another value."""
    import os

    from rlt_hw.devices.variables import LOG_LEVEL
    from rlt_hw.errors import ConfigError

    level = os.environ.get(LOG_LEVEL)
    if level is None:
        return
    if level not in LOG_LEVELS:
        raise ConfigError(LOG_LEVEL, found=repr(level), allowed=", ".join(LOG_LEVELS))
    import logging

    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)


def exit_code(error: Exception) -> int:
    """The exit code of an error raised on purpose."""
    from rlt_hw.errors import CapacityError, CheckpointError, ConfigError, UnsupportedError

    if isinstance(error, (UnsupportedError, CapacityError)):
        return UNSUPPORTED
    return USAGE if isinstance(error, (ConfigError, CheckpointError)) else INTERNAL


def _report(error: Any, as_json: bool) -> int:
    """Print an error of the RltHwError tree and return its exit code."""
    if as_json:
        from rlt_hw.cli.output import write_json

        decision = getattr(error, "decision", None)
        write_json({"error": {**error.to_json(), "decision": decision.to_json() if decision else None}})
    print(f"rlt-hw: {error}", file=sys.stderr)
    return exit_code(error)
