"""blockxmc serve: models as an HTTP service with a web page."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from blockxmc.cli._text_options import ExtraColumns
from blockxmc.errors import MissingExtraError


def serve(
    models: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Model directories.")],
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on.")] = 8080,
    workers: Annotated[int, typer.Option("--workers", min=1, max=256, help="Number of processes.")] = 1,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="File with the token that requests must carry.")
    ] = None,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Answer everybody without a token, also from other machines.")
    ] = False,
    allow_update: Annotated[
        bool, typer.Option("--allow-update", help="Let clients with the token add new rows to models.")
    ] = False,
    extra: ExtraColumns = None,
    cors: Annotated[
        list[str] | None,
        typer.Option("--cors", metavar="ORIGIN", help="Web site whose pages may call the service; repeatable."),
    ] = None,
    access_log: Annotated[bool, typer.Option("--log/--no-log", help="Log every request as a JSON line.")] = True,
) -> None:
    """Run an HTTP service with a web page, a JSON interface, and Annif's interface for its clients."""
    try:
        from blockxmc.service.server import serve as run
        from blockxmc.service.settings import Settings
    except ImportError as error:
        raise MissingExtraError(error.name or "starlette", "serve") from None
    settings = Settings(
        models=tuple(str(model) for model in models),
        host=host,
        port=port,
        workers=workers,
        token_file=None if token_file is None else str(token_file),
        no_token=no_token,
        allow_update=allow_update,
        extra=extra,
        cors=tuple(cors or ()),
        access_log=access_log,
    )
    # To be stopped is no failure: the server has ended in order.
    with suppress(KeyboardInterrupt):
        run(settings)
