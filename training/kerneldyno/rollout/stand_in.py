"""A fake model: an OpenAI-compatible server that answers with candidates of a folder like examples/problems.

    python -m kerneldyno.rollout.stand_in examples/problems --port 8000

Use it to try `kerneldyno rollout` without a model. It recognises the problem by its reference, which the prompt shows. The
more turns the prompt shows, the more likely its answer is a correct candidate. The same prompt with the same seed gets the
same answer. It uses those candidates of the folder's expected.json that run anywhere and are harmless.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple


class Candidates(NamedTuple):
    """Sources of candidates for one reference."""

    right: list[str]
    wrong: list[str]


def load(folder: Path) -> dict[str, Candidates]:
    """Read the candidates of a folder, by the source of their reference.

    Raises:
        OSError, ValueError, KeyError, TypeError: the folder does not have the form of examples/problems.
    """
    expected: dict[str, dict[str, Any]] = json.loads((folder / "expected.json").read_text())
    found: dict[str, Candidates] = {}
    for name, known in expected.items():
        if known["backend"] != "triton" or known.get("dangerous") or known.get("device"):
            continue
        reference = (folder / name).with_name("reference.py").read_text()
        candidates = found.setdefault(reference.strip(), Candidates([], []))
        kind = candidates.right if known["outcome"] == "CORRECT" else candidates.wrong
        kind.append((folder / f"{name}.py").read_text())
    return found


def answer(known: dict[str, Candidates], request: dict[str, Any]) -> str:
    """Return the answer to a chat request."""
    messages = request["messages"]
    candidates = next((one for reference, one in known.items() if reference in messages[0]["content"]), None)
    if candidates is None:
        return "I do not know this problem."
    turn = sum(message["role"] == "assistant" for message in messages)
    chance = hashlib.sha256(json.dumps([messages, request.get("seed")]).encode()).digest()
    right = chance[0] / 256 < (1 + turn) / (3 + turn) or not candidates.wrong
    kind = candidates.right if right and candidates.right else candidates.wrong
    return f"This is turn {turn + 1}.\n\n```python\n{kind[chance[1] % len(kind)]}```\n"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    known: dict[str, Candidates]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = {"role": "assistant", "content": answer(self.server.known, request)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = json.dumps({"object": "chat.completion", "model": "stand-in", "choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Suppress the access log."""


def main() -> None:
    """Serve on the loopback address until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Answer prompts with candidates of a folder, instead of a model.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=8000, help="port to listen on; 0 chooses a free one")
    options = parser.parse_args()
    try:
        known = load(options.folder)
    except OSError as error:
        parser.error(f"{error.filename or options.folder}: {error.strerror}; give a folder like examples/problems")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        parser.error(
            f"{options.folder / 'expected.json'} does not have the form of the one in examples/problems: {error!r}"
        )
    try:
        server = _Server(("127.0.0.1", options.port), _Handler)
    except (OSError, OverflowError) as error:
        parser.error(f"--port {options.port}: {getattr(error, 'strerror', None) or error}")
    with server:
        server.known = known
        print(f"stand-in http://127.0.0.1:{server.server_port}/v1  {len(server.known)} problems", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
