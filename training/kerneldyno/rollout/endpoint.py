"""An OpenAI-compatible endpoint (vLLM, SGLang, hosted): one chat completion at a time, failures told apart.

    EndpointError
    ├── GenerationFailedError   this prompt got no answer, also after retries: a failed generation
    │   └── ContextFullError    ... because it does not fit the model's context
    └── EndpointRefusedError    no prompt will get one: wrong key, wrong model, wrong address. Stops the run.

429, 5xx, timeouts, broken connections and answers that are no chat completion are tried again, with growing pauses or
after as long as Retry-After says. The key is sent as a bearer token and appears nowhere else: not in logs, errors, files.
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
from typing import Any, ClassVar, Self

import httpx
from kerneldyno.rollout.problems import Message
from kerneldyno.rpc.channel import is_loopback

#: The first pause before another try and the longest, in seconds, doubling in between; up to 50 % of chance is added.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
#: The longest Retry-After that is waited for, in seconds. One that says more has given up on us.
LONGEST_TOLD = 600.0
#: A longer answer is no chat completion of ours.
MAX_ANSWER_BYTES = 32 << 20
#: Longest extract of an endpoint's own error text.
_DETAIL_CHARS = 300
_CONNECT_SECONDS = 10.0
#: Fields that would make something else of a request.
_NOT_CHOSEN = {"messages", "stream", "n", "model"}
#: Statuses that may pass; so may all from 500.
_PASSING = {408, 409, 425, 429}
_REFUSED = {401: "does not accept the key", 403: "forbids this key to use it", 404: "knows no such path or model"}
#: How servers say that a prompt is too long; there is no standard for it.
_CONTEXT_WORDS = (
    "context length",
    "context_length",
    "maximum context",
    "too long",
    "exceeds the model",
    "max_model_len",
)


class SamplingError(ValueError):
    """A way to sample that a rollout cannot use."""


class EndpointError(Exception):
    """No answer."""


class GenerationFailedError(EndpointError):
    """This prompt got no answer."""

    #: How an episode that ends so is recorded.
    ended: ClassVar[str] = "generation_failed"


class ContextFullError(GenerationFailedError):
    """The prompt does not fit into the model's context."""

    ended = "context_full"


class EndpointRefusedError(EndpointError):
    """No prompt will get an answer until something is mended."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How answers are drawn.

    `extra` has further fields of each request, for what servers add (top_k, ...). It wins over the others, and a field
    that is None there is left out: {"max_tokens": None, "max_completion_tokens": 100} for servers that want it so.

    Raises:
        SamplingError: `extra` has a field that is not to be chosen.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 8192
    seed: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if taken := sorted(_NOT_CHOSEN & set(self.extra)):
            raise SamplingError(
                f"the body's {', '.join(taken)} cannot be given: a rollout makes one plain request a turn"
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
    """An answer: its text, why it ended ("stop", "length"), what it cost in tokens (0 when not told) and seconds.

    `reasoning` is what the model thought, where the server tells it apart from the answer; it is in no later prompt.
    """

    text: str
    reasoning: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float


class Endpoint:
    """A connection pool to one endpoint; enter it to use it.

    Parameters:
        base_url: up to and with the version, for example http://127.0.0.1:8000/v1.
        model: the name that the endpoint knows it by.
        key: bearer token, if it wants one.
        timeout: limit of one try, in seconds.
        retries: how often a try that failed by the way is repeated.
        connections: most requests at once.

    Raises:
        ValueError: `base_url` cannot be used; secrets in it are refused, since addresses are logged.
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
            trust_env=not is_loopback(httpx.URL(self.base_url).host),  # no proxy between this machine and itself
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        )
        self._timeout = timeout
        #: Tries that were repeated so far.
        self.retried = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def generate(self, messages: Sequence[Message], sampling: Sampling, *, seed: int | None = None) -> Generation:
        """Return the model's answer to `messages`.

        Raises:
            GenerationFailedError, ContextFullError, EndpointRefusedError.
        """
        body = sampling.body(self.model, messages, seed)
        began = time.monotonic()
        tries = 0
        while True:
            outcome = await self._try(body)
            tries += 1
            if not isinstance(outcome, _Passing):
                return _generation(outcome, time.monotonic() - began)
            if outcome.told is not None and outcome.told > LONGEST_TOLD:
                raise GenerationFailedError(f"{outcome.failure} (and not to come back for {outcome.told:g} s)")
            if tries > self._retries:
                raise GenerationFailedError(f"{outcome.failure} ({tries} tries)")
            self.retried += 1
            await asyncio.sleep(_pause(tries, outcome.told))

    async def _try(self, body: Mapping[str, Any]) -> dict[str, Any] | _Passing:
        """One request: the completion, or a failure that may pass. Raises one that will not."""
        try:
            async with asyncio.timeout(self._timeout):
                async with self._client.stream("POST", f"{self.base_url}/chat/completions", json=body) as response:
                    text = await _read(response)
        except (TimeoutError, httpx.TimeoutException):
            return _Passing(f"{self.base_url} gave no answer within {self._timeout:g} s")
        except (httpx.TransportError, httpx.DecodingError) as error:
            return _Passing(f"{self.base_url} cannot be reached: {self._clean(str(error)) or type(error).__name__}")
        except _TooLargeError:
            return _Passing(f"{self.base_url} answered with more than {MAX_ANSWER_BYTES} bytes")
        status, detail = response.status_code, self._clean(_error_text(text))
        if status in _PASSING or status >= 500:
            return _Passing(f"{self.base_url} answered {status}: {detail}", _told(response.headers.get("Retry-After")))
        if status in _REFUSED:
            raise EndpointRefusedError(f"{self.base_url} {_REFUSED[status]} ({status}, model {self.model!r}): {detail}")
        if status != 200:
            # Compared with the whole text: servers differ in where they say it.
            if status in (400, 413, 422) and any(word in text.lower() for word in _CONTEXT_WORDS):
                raise ContextFullError(f"the prompt does not fit the context: {detail}")
            raise GenerationFailedError(f"{self.base_url} answered {status}: {detail}")
        completion = _completion(text)
        return _Passing(f"{self.base_url} gave no chat completion: {detail}") if completion is None else completion

    def _clean(self, text: str) -> str:
        """Text of the endpoint's that may be shown: short, printable, and without the key, should it repeat it."""
        if self._key:
            text = text.replace(self._key, "***")
        return "".join(c if c.isprintable() else " " for c in text)[:_DETAIL_CHARS]


@dataclass(frozen=True, slots=True)
class _Passing:
    """A failure that may pass, and when to come back, in seconds, if that was said."""

    failure: str
    told: float | None = None


class _TooLargeError(Exception):
    pass


def _checked(base_url: str) -> str:
    try:
        url = httpx.URL(base_url)
    except (httpx.InvalidURL, TypeError) as error:
        raise ValueError(f"{base_url!r} is no URL: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError(f"{base_url!r} is no http(s) URL; give for example http://127.0.0.1:8000/v1")
    if url.userinfo or url.query:
        raise ValueError(
            "the base URL must hold no password and no query; name a variable with the key by --api-key-env"
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
    """The first choice with its message and the usage, if that is what `text` holds."""
    try:
        data = json.loads(text)
        choice = data["choices"][0]
        message = choice["message"]
        content, thoughts = message.get("content"), message.get("reasoning_content") or message.get("reasoning")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return None
    if isinstance(content, list):  # content in parts
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if content is not None and not isinstance(content, str):
        return None
    # None: a model that spent its tokens on thinking, or declined. That is its answer.
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
    # Half a surrogate pair can be spelled in JSON, but neither be sent on nor be written.
    text, reasoning = (completion[name].encode(errors="replace").decode() for name in ("text", "reasoning"))
    return Generation(text, reasoning, str(completion["finish_reason"] or ""), tokens[0], tokens[1], seconds)


def _error_text(text: str) -> str:
    """What an error body says, in the forms that servers use, else the body."""
    try:
        data = json.loads(text)
        error = data.get("error", data)
        return str(error.get("message", error) if isinstance(error, dict) else error)
    except (ValueError, AttributeError, RecursionError):
        return text


def _told(header: str | None) -> float | None:
    """Seconds of a Retry-After header, which is a number or a date."""
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


def _pause(tried: int, told: float | None) -> float:
    if told is not None:
        return told * random.uniform(1.0, 1.1)
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (tried - 1)) * random.uniform(1.0, 1.5)
