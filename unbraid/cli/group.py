"""The group of commands: a mistake in a command line is one sentence, and an old name is answered with the new one."""

from typing import Any

import typer
from typer.core import TyperGroup

from unbraid.errors import UserError

UsageError: Any = typer.BadParameter.__base__
"""What is raised for a bad command line; newer versions of typer have their own."""
COMMANDS = {"judge": "evaluate"}
"""Old names of commands, each with its present one."""
OPTIONS = {"--kept": "--ledger"}
"""The same for options."""


class Commands(TyperGroup):
    """All commands of `unbraid`."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command line; what would be answered with its usage, in several lines, is a `UserError`."""
        try:
            code = super().main(*args, **{**options, "standalone_mode": False})
        except UsageError as problem:
            command = problem.ctx.command_path if problem.ctx is not None else "unbraid"
            raise UserError(f"{problem.format_message().rstrip('.')}; see `{command} --help`") from None
        if code:  # of `typer.Exit`; commands return nothing
            raise SystemExit(code)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:  # the shell completes without arguments
            typer.echo(ctx.get_help(), err=True)
            raise typer.Exit(2)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        name, *words = args
        if name in COMMANDS:
            raise UserError(f"`unbraid {name}` is now `unbraid {COMMANDS[name]}`")
        if old := next((word.split("=")[0] for word in words if word.split("=")[0] in OPTIONS), None):
            raise UserError(f"`unbraid {name} {old}` is now `unbraid {name} {OPTIONS[old]}`")
        if self.get_command(ctx, name) is None:
            from unbraid.config import suggest

            raise UserError(f"there is no command '{name}'; {suggest(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)
