"""`duebridge serve`: the HTTP interface and the console, from their start to their drain."""

from functools import partial

import typer

from duebridge.cli.session import ConfigOption, load, opened_store
from duebridge.cli.signals import outlive_hangups
from duebridge.errors import ConfigError


def serve(context: typer.Context, config: ConfigOption = None) -> None:
    """Serve envelopes over HTTP, and the console at /, until SIGTERM or SIGINT.

    It listens where serve.listen of the configuration says, by default on 127.0.0.1:8480. At the
    signal it refuses new connections, finishes open requests and exits 0; a second signal ends it
    at once. Any number of processes may serve the same store. Tokens are read again when their file
    changes; another configuration needs a restart, and SIGHUP changes nothing.

    Logs go to standard error: text on a terminal, else one JSON object per line.
    """
    outlive_hangups()  # first: one amid the imports would end the process
    from duebridge.telemetry.logs import configure_logs

    settings = load(context, config)
    try:
        from duebridge.console.routes import console_routes
        from duebridge.http.app import build_app
        from duebridge.http.process import serve as serve_until_signal
        from duebridge.http.site import Site
        from duebridge.http.tokens import NoTokens, TokenFile
    except ImportError as error:
        remedy = "pip install 'duebridge[http]'"
        raise ConfigError(f"serve: package {error.name} is not installed: {remedy}") from error
    from duebridge.config.load import resolved_tokens
    from duebridge.runtime import tuned_gc
    from duebridge.store.server.connection import REPEAT_FOR_S
    from duebridge.store.server.fitness import check_fitness
    from duebridge.telemetry.metrics import observe_store_call
    from duebridge.telemetry.tracing import traced_process

    configure_logs()
    is_open = settings.serve.tokens is None  # the configuration allows it on this machine alone
    tokens = NoTokens() if is_open else TokenFile(partial(resolved_tokens, settings))
    with (
        tuned_gc(),
        opened_store(settings, REPEAT_FOR_S) as connection,
        traced_process() as tracing,
    ):
        connection.actor = ""  # each call has its token's name
        connection.observe = observe_store_call
        check_fitness(connection, settings.store.allow_unfit, REPEAT_FOR_S, settings.needs)
        site = Site(settings, connection, tokens, tracing)
        try:
            serve_until_signal(site, build_app(site, console_routes(site)))
        finally:
            site.close()
