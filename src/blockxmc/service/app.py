"""The application: addresses, and what answers them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from blockxmc.data.named import named_function
from blockxmc.errors import BlockXMCError, ModelFormatError
from blockxmc.service import annif_rest, answers, explore
from blockxmc.service.annif_rest import AnnifRequests
from blockxmc.service.answers import Requests
from blockxmc.service.connections import Outbox
from blockxmc.service.gate import Gate
from blockxmc.service.guard import Guard, as_problem
from blockxmc.service.models import Models, ServedModel
from blockxmc.service.monitoring import Monitor, log
from blockxmc.service.openapi import JSON, describe
from blockxmc.service.problems import Problem
from blockxmc.service.settings import Settings, read_token
from blockxmc.service.shapes import Object, Whole

# The web page: every file by name, with its kind. Nothing else on the disk can be asked for.
PAGE = Path(__file__).with_name("page")
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
FORM = "application/x-www-form-urlencoded"
# An update may take as long as it takes; nobody waits for a day.
_UPDATE_SECONDS = 86_400.0
# Bytes of a body that are read in a moment, less than it takes to hand them to a thread.
_SHORT_BODY = 1 << 15


def create_app(settings: Settings) -> Starlette:
    """The service as an ASGI application: models are loaded now, and watched as long as it runs."""
    return Service(settings).app


class Service:
    """The handlers of one service."""

    def __init__(self, settings: Settings) -> None:
        settings.check()
        self.settings, self.limits = settings, settings.limits
        self.token = None if settings.token_file is None else read_token(settings.token_file)
        self.monitor = Monitor(access_log=settings.access_log)
        extra = None if settings.extra is None else named_function(settings.extra)
        self.models = Models(settings.models, log, extra)
        self.requests, self.annif = Requests(self.limits), AnnifRequests(self.limits)
        self.description = orjson.dumps(describe(self.requests, self.annif, token=self.token is not None))
        self.files = {file.name: file.read_bytes() for file in PAGE.iterdir() if file.suffix in KINDS}
        self.gate, self.outbox = Gate(settings.threads, self.limits), Outbox(self.limits)
        middleware = [Middleware(Guard, settings=settings, token=self.token, monitor=self.monitor)]
        if settings.cors:
            allowed: dict[str, Any] = {
                "allow_methods": ["GET", "POST"],
                "allow_headers": ["authorization", "content-type"],
            }
            middleware.insert(0, Middleware(CORSMiddleware, allow_origins=list(settings.cors), **allowed))
        self.app = Starlette(
            routes=self._routes(),
            middleware=middleware,
            exception_handlers={HTTPException: _refused, Problem: _problem},
            lifespan=self._watching,
        )

    def _routes(self) -> list[Any]:
        one = "/v1/models/{name}"
        return [
            Route(f"{one}/suggest", self.suggest, methods=["POST"]),
            Route(f"{one}/explain", self.explain, methods=["POST"]),
            Route(f"{one}/update", self.update, methods=["POST"]),
            Route("/v1/models", self.list_models),
            Route(one, self.card),
            Route(f"{one}/blocks", self.blocks),
            Route(f"{one}/blocks/{{number}}", self.block),
            Route(f"{one}/labels", self.labels),
            Route(f"{one}/labels", self.add_labels, methods=["POST"]),
            Route(f"{one}/labels/{{number}}", self.label),
            Route(f"{one}/map", self.map),
            Route("/v1/", self.annif_about),
            Route("/v1/projects", self.projects),
            Route("/v1/projects/{name}", self.project),
            Route("/v1/projects/{name}/suggest", self.annif_suggest, methods=["POST"]),
            Route("/v1/projects/{name}/suggest-batch", self.annif_batch, methods=["POST"]),
            Route("/healthz", self.healthy),
            Route("/readyz", self.ready),
            Route("/metrics", self.metrics),
            Route("/openapi.json", self.openapi),
            Route("/", self.page),
            Route("/{file}", self.page),
        ]

    @asynccontextmanager
    async def _watching(self, app: Starlette) -> AsyncIterator[None]:
        watcher = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watcher.cancel()
            with suppress(asyncio.CancelledError):
                await watcher
            self.gate.close()

    async def _watch(self) -> None:
        """Look for replaced models now and then."""
        while True:
            await asyncio.sleep(self.settings.reload_seconds)
            try:
                await asyncio.to_thread(self.models.refresh)
            except Exception as error:
                log("error", "models could not be looked at", error=type(error).__name__)

    # ---- answers ----
    async def suggest(self, request: Request) -> Response:
        """Labels of one text, of many, or of sparse rows."""
        model = self._model(request)
        body = await self._json(request, self.requests.suggest)
        return self.outbox.answer(await self._suggested(answers.suggest, model, body))

    async def _suggested(self, suggest: Callable[..., Any], model: ServedModel, body: dict[str, Any]) -> Any:
        if answers.is_short(model, body):
            found = _answered(suggest, model, body)
        else:
            found = await self.gate.run(_answered, suggest, model, body)
        self.monitor.texts(model.name, answers.n_texts(body))
        return found

    async def explain(self, request: Request) -> Response:
        """Why labels fit a text, or where they were lost."""
        model = self._model(request)
        body = await self._json(request, self.requests.explain)
        return self.outbox.answer(await self.gate.run(_answered, answers.explain, model, body))

    async def update(self, request: Request) -> Response:
        """New training rows, where that is allowed; the token was checked before."""
        model, body = await self._change(request, self.requests.update)
        texts, labels = body["texts"], body["labels"]
        if len(texts) != len(labels):
            raise Problem(422, f"there are {len(texts)} texts but {len(labels)} lists of labels")
        learn: Callable[[], ServedModel] = lambda: self.models.update(model.name, texts, labels)  # noqa: E731
        return await self._changed(learn)

    async def add_labels(self, request: Request) -> Response:
        """New labels by what they are called, where updates are allowed."""
        model, body = await self._change(request, self.requests.labels)
        return await self._changed(lambda: self.models.add_labels(model.name, body["labels"]))

    async def _change(self, request: Request, shape: Object) -> tuple[ServedModel, dict[str, Any]]:
        """The model that a request may change, and what is to be learnt."""
        model = self._model(request)
        if not self.settings.allow_update:
            raise Problem(403, "this service does not take updates; start it with --allow-update and --token-file")
        return model, await self._json(request, shape)

    async def _changed(self, learn: Callable[[], ServedModel]) -> Response:
        updated = await self.gate.run(_answered, learn, seconds=_UPDATE_SECONDS)
        return self.outbox.answer({"model": updated.name, "version": updated.version})

    # ---- looking into models ----
    async def list_models(self, request: Request) -> Response:
        """The cards of all models."""
        cards = [answers.card(model) for model in self.models]
        return self.outbox.answer({"models": cards, "updates": self.settings.allow_update})

    async def card(self, request: Request) -> Response:
        """The card of one model."""
        return self.outbox.answer(answers.card(self._model(request)))

    async def blocks(self, request: Request) -> Response:
        """All blocks of a model."""
        return self.outbox.answer({"blocks": await self.gate.run(_answered, explore.blocks, self._model(request))})

    async def block(self, request: Request) -> Response:
        """One block and its labels."""
        return self.outbox.answer(await self.gate.run(_answered, explore.block, self._model(request), _number(request)))

    async def labels(self, request: Request) -> Response:
        """Labels whose name has the words of the query ``q``."""
        words = request.query_params.get("q", "")
        if len(words) > 200:
            raise Problem(422, "q must be a string of at most 200 characters")
        limit = Whole(1, 100).read(_as_whole(request.query_params.get("limit", "20")), "limit")
        found = await self.gate.run(_answered, explore.search, self._model(request), words, limit)
        return self.outbox.answer({"labels": found})

    async def label(self, request: Request) -> Response:
        """One label: counts, blocks, and what it comes with."""
        return self.outbox.answer(await self.gate.run(_answered, explore.label, self._model(request), _number(request)))

    async def map(self, request: Request) -> Response:
        """Rows and labels by block."""
        return self.outbox.answer(await self.gate.run(_answered, explore.block_map, self._model(request)))

    # ---- Annif's interface ----
    async def annif_about(self, request: Request) -> Response:
        """Who is speaking."""
        return self.outbox.answer(annif_rest.about())

    async def projects(self, request: Request) -> Response:
        """The models that take text, as projects."""
        return self.outbox.answer(
            {"projects": [annif_rest.project(model) for model in self.models if model.vectorizer is not None]}
        )

    async def project(self, request: Request) -> Response:
        """One model as a project."""
        return self.outbox.answer(annif_rest.project(self._model(request)))

    async def annif_suggest(self, request: Request) -> Response:
        """Subjects of one text, asked for by a form."""
        model = self._model(request)
        body = self.annif.form(await self._body(request, FORM))
        found = await self._suggested(annif_rest.suggestions, model, body)
        return self.outbox.answer({"results": found[0]})

    async def annif_batch(self, request: Request) -> Response:
        """Subjects of many texts."""
        model = self._model(request)
        numbers = self.annif.numbers(request.query_params)
        documents = (await self._json(request, self.annif.batch))["documents"]
        if not documents:
            return self.outbox.answer([])
        texts = [document["text"] for document in documents]
        found = await self._suggested(annif_rest.suggestions, model, {"texts": texts, **numbers})
        pairs = zip(documents, found, strict=True)
        return self.outbox.answer([{"results": rows, "document_id": given.get("document_id")} for given, rows in pairs])

    # ---- the service itself ----
    async def healthy(self, request: Request) -> Response:
        """The process answers."""
        return self.outbox.answer({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Models are loaded: they were before the service began to listen."""
        return self.outbox.answer({"status": "ready"})

    async def metrics(self, request: Request) -> Response:
        """Numbers for Prometheus."""
        return Response(self.monitor.page(), media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        """The description of all this."""
        return Response(self.description, media_type=JSON)

    async def page(self, request: Request) -> Response:
        """A file of the web page."""
        name = request.path_params.get("file", "index.html")
        if name not in self.files:
            raise Problem(404, "there is nothing at this address")
        return Response(self.files[name], media_type=KINDS[Path(name).suffix])

    # ---- reading requests ----
    def _model(self, request: Request) -> ServedModel:
        return self.models[request.path_params["name"]]

    async def _json(self, request: Request, shape: Object) -> dict[str, Any]:
        """What a body says; a long one is read in a thread: everybody else would wait for it."""
        content = await self._body(request, JSON)
        return _read(content, shape) if len(content) <= _SHORT_BODY else await self.gate.run(_read, content, shape)

    async def _body(self, request: Request, kind: str) -> bytes:
        given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if given != kind:
            raise Problem(415, f"the body must be sent as Content-Type: {kind}")
        most, parts, size = self.limits.body_bytes, [], 0
        too_large = Problem(413, f"the body is larger than {most} bytes; send less at a time")
        length = request.headers.get("content-length", "0")
        if length.isdigit() and int(length) > most:
            raise too_large
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                async for part in request.stream():
                    size += len(part)
                    if size > most:
                        raise too_large
                    parts.append(part)
        except TimeoutError:
            seconds = self.limits.body_seconds
            raise Problem(408, f"the body did not come within {seconds:g} s", {"Connection": "close"}) from None
        return b"".join(parts)


def _answered(work: Callable[..., Any], *args: Any) -> Any:
    """The result of a function of the library; what it refuses is the fault of the request."""
    try:
        return work(*args)
    except ModelFormatError as error:
        log("error", "model damaged", error=str(error))
        raise answers.without_paths(error) from None
    except BlockXMCError as error:
        raise Problem(422, str(error)) from None


def _read(content: bytes, shape: Object) -> dict[str, Any]:
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise Problem(400, f"the body is not valid JSON: {error.msg} (character {error.pos})") from None
    return shape.read(value)


def _number(request: Request) -> int:
    return Whole(0, 2**31 - 1).read(_as_whole(request.path_params["number"]), "the number in the address")


def _as_whole(text: str) -> Any:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else text


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return as_problem(error).response()


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error.response()
