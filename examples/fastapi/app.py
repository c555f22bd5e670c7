"""A service that schedules and cancels reminders: `fastapi run app.py`.

One producer serves all requests; it opens with the service and closes with it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from duebridge import AsyncProducer, EnvelopeError, StoreError, UnknownRoute

ROUTE = "reminders"


class Reminder(BaseModel):
    text: str
    delay: str


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with AsyncProducer.from_config("duebridge.yaml") as producer:
        app.state.producer = producer
        yield


def find_producer(request: Request) -> AsyncProducer:
    producer: AsyncProducer = request.app.state.producer
    return producer


app = FastAPI(lifespan=lifespan)
Scheduler = Annotated[AsyncProducer, Depends(find_producer)]


@app.put("/reminders/{name}", status_code=202)
async def schedule(name: str, reminder: Reminder, producer: Scheduler) -> dict[str, str | int]:
    """Safe to repeat: the id is the client's, so a second PUT is answered `duplicate`."""
    body = reminder.text.encode()
    receipt = await producer.schedule(ROUTE, body, delay=reminder.delay, id=name)
    if receipt.status == "conflict":
        raise HTTPException(409, f"{name} exists with other content")
    return {"id": receipt.id, "status": receipt.status, "due_at_ms": receipt.due_at_ms}


@app.delete("/reminders/{name}")
async def cancel(name: str, producer: Scheduler) -> dict[str, str]:
    """Answer 200 only if the reminder will never be delivered."""
    answer = await producer.cancel(ROUTE, name)
    if answer == "unknown":
        raise HTTPException(404, "no such reminder")
    if answer != "cancelled":
        raise HTTPException(409, answer)
    return {"id": name, "status": answer}


@app.exception_handler(EnvelopeError)
async def refuse(_: Request, error: EnvelopeError) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 422)


@app.exception_handler(UnknownRoute)
async def tell_what_is_configured(_: Request, error: UnknownRoute) -> JSONResponse:
    """The service and its duebridge.yaml disagree: nothing that the client could mend."""
    return JSONResponse({"detail": str(error)}, 500)


@app.exception_handler(StoreError)
async def ask_to_repeat(_: Request, error: StoreError) -> JSONResponse:
    """Whether the envelope was stored is not known; the same PUT again settles it."""
    return JSONResponse({"detail": str(error)}, 503, {"Retry-After": "1"})
