"""Tests of everything that an OpenAI-compatible endpoint may do with a request, over real HTTP."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from kerneldyno.rollout import endpoint as module
from kerneldyno.rollout.endpoint import (
    ContextFullError,
    Endpoint,
    EndpointRefusedError,
    GenerationFailedError,
    Sampling,
    SamplingError,
)
from tests.rollout.fake_model import FakeModel, Prompt, Reply, completion

ASK = [{"role": "user", "content": "Write a kernel."}]
SECRET = "sk-very-secret-0123456789"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.01)


def then(*replies: Reply | str) -> Any:
    """Return a function that gives these answers one after another, then the last one again and again."""
    left: Iterator[Reply | str] = iter(replies)
    last: list[Reply | str] = []

    def answer(prompt: Prompt) -> Reply | str:
        last[:] = [next(left, last[0] if last else "")]
        return last[0]

    return answer


async def test_a_request_and_its_answer() -> None:
    async with FakeModel(lambda prompt: "a kernel") as model, Endpoint(model.url, "qwen", key=SECRET) as endpoint:
        sampling = Sampling(temperature=0.7, top_p=0.9, max_tokens=77, extra={"top_k": 20})
        answer = await endpoint.generate(ASK, sampling, seed=5)
        plain = await endpoint.generate(ASK, Sampling())
    assert (answer.text, answer.finish_reason) == ("a kernel", "stop")
    assert (answer.prompt_tokens, answer.completion_tokens) == (11, 7)
    assert answer.seconds > 0
    assert model.prompts[0].body == {
        "model": "qwen",
        "messages": ASK,
        "temperature": 0.7,
        "top_p": 0.9,
        "max_tokens": 77,
        "seed": 5,
        "top_k": 20,
    }
    assert "seed" not in model.prompts[1].body
    assert model.authorizations[0] == f"Bearer {SECRET}"
    assert plain.text == "a kernel"


async def test_further_fields_win_and_may_take_others_away() -> None:
    extra = {"max_tokens": None, "max_completion_tokens": 9, "temperature": 0.1}
    async with FakeModel(lambda prompt: "a") as model, Endpoint(model.url, "m") as endpoint:
        await endpoint.generate(ASK, Sampling(extra=extra))
    body = model.prompts[0].body
    assert (body["temperature"], body["max_completion_tokens"], "max_tokens" in body) == (0.1, 9, False)
    with pytest.raises(SamplingError, match="n, stream"):
        Sampling(extra={"stream": True, "n": 2})


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_what_passes_is_tried_again(status: int) -> None:
    bad = Reply(status, {"error": {"message": "busy"}})
    async with FakeModel(then(bad, bad, "done")) as model, Endpoint(model.url, "m") as endpoint:
        assert (await endpoint.generate(ASK, Sampling())).text == "done"
        assert (len(model.prompts), endpoint.retried) == (3, 2)


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_retry_after_is_waited_for(form: str) -> None:
    def answer(prompt: Prompt) -> Reply | str:
        when = format_datetime(datetime.now(UTC) + timedelta(seconds=3), usegmt=True)
        return "done" if prompt.number else Reply(429, {}, {"Retry-After": "1.5" if form == "seconds" else when})

    async with FakeModel(answer) as model, Endpoint(model.url, "m") as endpoint:
        began = time.monotonic()
        assert (await endpoint.generate(ASK, Sampling())).text == "done"
        assert time.monotonic() - began >= 1.5


@pytest.mark.parametrize("header", ["soon", "", "-3", "nan", "Mon, 99 Foo 2026"])
async def test_a_retry_after_that_means_nothing_is_no_reason_to_wait(header: str) -> None:
    async with (
        FakeModel(then(Reply(503, {}, {"Retry-After": header}), "done")) as model,
        Endpoint(model.url, "m") as endpoint,
    ):
        assert (await endpoint.generate(ASK, Sampling())).text == "done"


async def test_who_says_to_come_back_tomorrow_is_not_waited_for() -> None:
    bad = Reply(429, {"error": "quota"}, {"Retry-After": "86400"})
    async with FakeModel(then(bad)) as model, Endpoint(model.url, "m") as endpoint:
        with pytest.raises(GenerationFailedError, match="86400"):
            await endpoint.generate(ASK, Sampling())
        assert len(model.prompts) == 1


async def test_an_answer_that_does_not_come_is_given_up() -> None:
    async with FakeModel(then(Reply(hang=30))) as model, Endpoint(model.url, "m", timeout=0.3, retries=1) as endpoint:
        with pytest.raises(GenerationFailedError, match=r"no answer within 0\.3 s \(2 tries\)"):
            await endpoint.generate(ASK, Sampling())
        assert len(model.prompts) == 2


GARBAGE: list[Any] = [
    b"",
    b"<html>It works!</html>",
    b'{"choices": [{"message"',
    b"[" * 100_000,
    {},
    [],
    {"choices": []},
    {"choices": [{"text": "the old completions API"}]},
    {"choices": [{"message": "text"}]},
    {"error": {"message": "overloaded"}},
    completion(17),
]


@pytest.mark.parametrize("body", GARBAGE, ids=range(len(GARBAGE)))
async def test_garbage_is_tried_again_and_never_an_answer(body: Any) -> None:
    async with FakeModel(then(Reply(body=body))) as model, Endpoint(model.url, "m", retries=2) as endpoint:
        with pytest.raises(GenerationFailedError, match="no chat completion"):
            await endpoint.generate(ASK, Sampling())
        assert len(model.prompts) == 3


async def test_a_connection_that_breaks_is_tried_again() -> None:
    async with FakeModel(then(Reply(breaks=True), "done")) as model, Endpoint(model.url, "m") as endpoint:
        assert (await endpoint.generate(ASK, Sampling())).text == "done"
        assert len(model.prompts) == 2


async def test_nobody_there() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        async with Endpoint(url, "m", retries=1) as endpoint:
            with pytest.raises(GenerationFailedError, match="cannot be reached"):
                await endpoint.generate(ASK, Sampling())


async def test_an_endless_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ANSWER_BYTES", 10_000)
    async with FakeModel(then("x" * 20_000)) as model, Endpoint(model.url, "m", retries=0) as endpoint:
        with pytest.raises(GenerationFailedError, match="more than 10000 bytes"):
            await endpoint.generate(ASK, Sampling())


@pytest.mark.parametrize(("status", "says"), [(401, "key"), (403, "forbids"), (404, "no such path or model")])
async def test_who_refuses_everybody_stops_the_run(status: int, says: str) -> None:
    async with (
        FakeModel(then(Reply(status, {"error": {"message": "no"}}))) as model,
        Endpoint(model.url, "m") as endpoint,
    ):
        with pytest.raises(EndpointRefusedError, match=says):
            await endpoint.generate(ASK, Sampling())
        assert len(model.prompts) == 1


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("This model's maximum context length is 4096 tokens.", ContextFullError),
        ("The input is longer than the model's context length", ContextFullError),
        ("temperature must be below 2", GenerationFailedError),
    ],
)
async def test_a_prompt_that_is_refused_is_not_tried_again(message: str, kind: type[Exception]) -> None:
    async with (
        FakeModel(then(Reply(400, {"error": {"message": message}}))) as model,
        Endpoint(model.url, "m") as endpoint,
    ):
        with pytest.raises(GenerationFailedError) as failed:
            await endpoint.generate(ASK, Sampling())
        assert type(failed.value) is kind
        assert len(model.prompts) == 1


@pytest.mark.parametrize(
    ("content", "text"),
    [(None, ""), ("", ""), ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"), ("\ud83d", "?")],
)
async def test_odd_contents(content: Any, text: str) -> None:
    body = completion(content, "length")
    async with FakeModel(then(Reply(body=body))) as model, Endpoint(model.url, "m") as endpoint:
        answer = await endpoint.generate(ASK, Sampling())
    assert (answer.text, answer.finish_reason) == (text, "length")


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
async def test_thoughts_are_told_apart_from_the_answer(name: str) -> None:
    body = completion("the answer")
    body["choices"][0]["message"][name] = "hm"
    async with FakeModel(then(Reply(body=body))) as model, Endpoint(model.url, "m") as endpoint:
        answer = await endpoint.generate(ASK, Sampling())
    assert (answer.text, answer.reasoning) == ("the answer", "hm")


@pytest.mark.parametrize("status", [400, 401, 500])
async def test_the_key_is_in_no_error_even_if_the_endpoint_repeats_it(status: int) -> None:
    echo = Reply(status, {"error": {"message": f"wrong key: Bearer {SECRET}\x1b[2J"}})
    async with FakeModel(then(echo)) as model, Endpoint(model.url, "m", key=SECRET, retries=0) as endpoint:
        with pytest.raises((GenerationFailedError, EndpointRefusedError), match=r"\*\*\*") as failed:
            await endpoint.generate(ASK, Sampling())
    assert SECRET not in str(failed.value)
    assert "\x1b" not in str(failed.value)


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8000", "ftp://host/v1", "http://", "http://user:secret@host/v1", "http://host/v1?key=secret"]
)
def test_urls_that_cannot_be_used(url: str) -> None:
    with pytest.raises(ValueError, match=r"http|password") as failed:
        Endpoint(url, "m")
    assert ":secret" not in str(failed.value)


def test_the_full_path_may_be_given() -> None:
    assert Endpoint("http://h:1/v1/chat/completions/", "m").base_url == "http://h:1/v1"
