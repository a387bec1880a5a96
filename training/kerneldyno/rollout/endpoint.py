"""Client of an OpenAI-compatible endpoint (vLLM, SGLang, hosted): one chat completion at a time, failures classified.

429, 5xx, timeouts, broken connections and answers that are not a chat completion are retried, with growing pauses or after
the time that Retry-After says. See errors.py for the errors that remain. The key is sent as a bearer token and appears
nowhere else: not in logs, errors or files.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Self

import httpx

from kerneldyno.rollout.errors import ContextFullError as ContextFullError
from kerneldyno.rollout.errors import EndpointError as EndpointError
from kerneldyno.rollout.errors import EndpointRefusedError as EndpointRefusedError
from kerneldyno.rollout.errors import EndpointURLError
from kerneldyno.rollout.errors import GenerationFailedError as GenerationFailedError
from kerneldyno.rollout.errors import SamplingError as SamplingError
from kerneldyno.rollout.problems import Message
from kerneldyno.rpc.channel import is_loopback

#: First and longest pause before a retry, in seconds; pauses double in between, and up to 50 % is added at random.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
#: Longest Retry-After to wait for, in seconds. If an endpoint asks for more, the generation fails.
LONGEST_RETRY_AFTER = 600.0
#: A longer answer is not accepted.
MAX_ANSWER_BYTES = 32 << 20
#: Longest excerpt of an endpoint's error text that is shown.
_DETAIL_CHARS = 300
_CONNECT_SECONDS = 10.0
#: Fields of a request that the rollout sets itself.
_RESERVED_FIELDS = {"messages", "stream", "n", "model"}
#: Statuses that are retried; so are all from 500.
_RETRIED_STATUSES = {408, 409, 425, 429}
_REFUSED = {401: "does not accept the key", 403: "forbids this key to use it", 404: "knows no such path or model"}
#: Words by which servers report that a prompt is too long; there is no standard for it.
_CONTEXT_WORDS = (
    "context length",
    "context_length",
    "maximum context",
    "too long",
    "exceeds the model",
    "max_model_len",
)


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling options of each generation.

    `extra` has further fields of each request, for options that servers add (top_k, ...). It overrides the other fields. A
    field that is None there is left out, for example {"max_tokens": None, "max_completion_tokens": 100} for servers that
    require the second name.

    Raises:
        SamplingError: `extra` has a field that the rollout sets itself.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 8192
    seed: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if taken := sorted(_RESERVED_FIELDS & set(self.extra)):
            raise SamplingError(
                f"the body's {', '.join(taken)} cannot be set: a rollout sends one plain request for each turn"
            )

    def body(self, model: str, messages: Sequence[Message], seed: int | None) -> dict[str, Any]:
        """Return the body of a request."""
        plain = {
            "model": model,
            "messages": list(messages),
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_tokens,
            "seed": seed,
        }
        return {name: value for name, value in {**plain, **self.extra}.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Generation:
    """An answer: its text, why it ended ("stop", "length"), its cost in tokens (0 if not reported) and in seconds.

    `reasoning` is the model's reasoning, if the server returns it apart from the answer; no later prompt contains it.
    """

    text: str
    reasoning: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float


class Endpoint:
    """A connection pool to one endpoint. It is an asynchronous context manager.

    Args:
        base_url: URL including the version, for example http://127.0.0.1:8000/v1.
        model: name of the model at the endpoint.
        key: bearer token, if the endpoint needs one.
        timeout: time limit of one try, in seconds.
        retries: how often to repeat a try after a failure that may pass.
        connections: largest number of concurrent requests.

    Raises:
        EndpointURLError: `base_url` cannot be used. It must not contain secrets, because addresses are logged.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        key: str = "",
        timeout: float = 600.0,
        retries: int = 5,
        connections: int = 64,
    ) -> None:
        self.base_url = _checked(base_url)
        self.model = model
        self._key = key
        self._retries = retries
        self._client = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(timeout, connect=min(timeout, _CONNECT_SECONDS)),
            trust_env=not is_loopback(httpx.URL(self.base_url).host),  # no proxy for a loopback address
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        )
        self._timeout = timeout
        #: Number of retries so far.
        self.retried = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def generate(self, messages: Sequence[Message], sampling: Sampling, *, seed: int | None = None) -> Generation:
        """Return the model's answer to `messages`.

        Args:
            messages: the prompt.
            sampling: sampling options.
            seed: random seed of this generation; None to send none.

        Raises:
            GenerationFailedError, ContextFullError, EndpointRefusedError: see `kerneldyno.rollout.errors`.
        """
        body = sampling.body(self.model, messages, seed)
        began = time.monotonic()
        tries = 0
        while True:
            outcome = await self._try(body)
            tries += 1
            if not isinstance(outcome, _TransientFailure):
                return _generation(outcome, time.monotonic() - began)
            if outcome.retry_after is not None and outcome.retry_after > LONGEST_RETRY_AFTER:
                raise GenerationFailedError(f"{outcome.failure} (it asks to wait {outcome.retry_after:g} s)")
            if tries > self._retries:
                raise GenerationFailedError(f"{outcome.failure} ({tries} tries)")
            self.retried += 1
            await asyncio.sleep(_pause(tries, outcome.retry_after))

    async def _try(self, body: Mapping[str, Any]) -> dict[str, Any] | _TransientFailure:
        """Send one request; return the completion or a failure that may pass. Raise EndpointError for any other failure."""
        try:
            async with asyncio.timeout(self._timeout):
                async with self._client.stream("POST", f"{self.base_url}/chat/completions", json=body) as response:
                    text = await _read(response)
        except (TimeoutError, httpx.TimeoutException):
            return _TransientFailure(f"{self.base_url} gave no answer within {self._timeout:g} s")
        except (httpx.TransportError, httpx.DecodingError) as error:
            return _TransientFailure(
                f"{self.base_url} cannot be reached: {self._clean(str(error)) or type(error).__name__}"
            )
        except _TooLargeError:
            return _TransientFailure(f"{self.base_url} answered with more than {MAX_ANSWER_BYTES} bytes")
        status, detail = response.status_code, self._clean(_error_text(text))
        if status in _RETRIED_STATUSES or status >= 500:
            return _TransientFailure(
                f"{self.base_url} answered {status}: {detail}", _retry_after(response.headers.get("Retry-After"))
            )
        if status in _REFUSED:
            raise EndpointRefusedError(f"{self.base_url} {_REFUSED[status]} ({status}, model {self.model!r}): {detail}")
        if status != 200:
            # Search the whole text: servers put these words in different fields.
            if status in (400, 413, 422) and any(word in text.lower() for word in _CONTEXT_WORDS):
                raise ContextFullError(f"the prompt does not fit the context: {detail}")
            raise GenerationFailedError(f"{self.base_url} answered {status}: {detail}")
        completion = _completion(text)
        if completion is None:
            return _TransientFailure(f"{self.base_url} gave no chat completion: {detail}")
        return completion

    def _clean(self, text: str) -> str:
        """Return a text of the endpoint that may be shown: short, printable, and with the key removed."""
        if self._key:
            text = text.replace(self._key, "***")
        return "".join(c if c.isprintable() else " " for c in text)[:_DETAIL_CHARS]


@dataclass(frozen=True, slots=True)
class _TransientFailure:
    """A failure that may pass; `retry_after` is the pause that the endpoint asked for, in seconds."""

    failure: str
    retry_after: float | None = None


class _TooLargeError(Exception):
    """An answer has more than MAX_ANSWER_BYTES."""


def _checked(base_url: str) -> str:
    try:
        url = httpx.URL(base_url)
    except (httpx.InvalidURL, TypeError) as error:
        raise EndpointURLError(f"{base_url!r} is not a URL: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise EndpointURLError(f"{base_url!r} is not an http(s) URL; give for example http://127.0.0.1:8000/v1")
    if url.userinfo or url.query:
        raise EndpointURLError(
            "the base URL must not contain a password or a query; put the key into a variable and name it by --api-key-env"
        )
    return str(url).rstrip("/").removesuffix("/chat/completions")


async def _read(response: httpx.Response) -> str:
    parts, size = [], 0
    async for part in response.aiter_bytes():
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            raise _TooLargeError
        parts.append(part)
    return b"".join(parts).decode("utf-8", errors="replace")


def _completion(text: str) -> dict[str, Any] | None:
    """Return the first choice's message and the usage; None if `text` is not a chat completion."""
    try:
        data = json.loads(text)
        choice = data["choices"][0]
        message = choice["message"]
        content, thoughts = message.get("content"), message.get("reasoning_content") or message.get("reasoning")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return None
    if isinstance(content, list):  # the content is a list of parts
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if content is not None and not isinstance(content, str):
        return None
    # No content: the model spent its tokens on reasoning, or declined. That counts as an empty answer.
    return {
        "text": content or "",
        "reasoning": thoughts if isinstance(thoughts, str) else "",
        "finish_reason": choice.get("finish_reason"),
        "usage": data.get("usage"),
    }


def _generation(completion: Mapping[str, Any], seconds: float) -> Generation:
    usage = completion["usage"] if isinstance(completion["usage"], Mapping) else {}
    tokens = [
        value if isinstance(value := usage.get(f"{kind}_tokens"), int) else 0 for kind in ("prompt", "completion")
    ]
    # JSON can contain half a surrogate pair, which can be neither sent nor written: replace it.
    text, reasoning = (completion[name].encode(errors="replace").decode() for name in ("text", "reasoning"))
    return Generation(text, reasoning, str(completion["finish_reason"] or ""), tokens[0], tokens[1], seconds)


def _error_text(text: str) -> str:
    """Return the message of an error body, in any of the forms that servers use; otherwise the body."""
    try:
        data = json.loads(text)
        error = data.get("error", data)
        return str(error.get("message", error) if isinstance(error, dict) else error)
    except (ValueError, AttributeError, RecursionError):
        return text


def _retry_after(header: str | None) -> float | None:
    """Return the seconds that a Retry-After header asks for; it holds a number or a date."""
    if not header:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(header)
    except ValueError:
        return None
    return max(0.0, ((when if when.tzinfo else when.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds())


def _pause(tried: int, retry_after: float | None) -> float:
    if retry_after is not None:
        return retry_after * random.uniform(1.0, 1.1)
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (tried - 1)) * random.uniform(1.0, 1.5)
