"""What judge and runner send each other: values as JSON, with described tensors, in frames that nobody can abuse."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import pytest
import torch

from kerneldyno.evaluator.shared import tree, wire

pytestmark = pytest.mark.pure

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "value",
    [None, True, 3, 2.5, "text", [1, (2, 3)], {"a": [1], 2: None}, torch.float16, (torch.ones(2), [torch.zeros(1)])],
)
def test_round_trip(value: Any) -> None:
    structure, tensors = tree.flatten(value)
    back = tree.rebuild(wire.decode(wire.encode({"v": structure})[4:])["v"], tensors, CPU)
    assert type(back) is type(value)
    assert str(back) == str(value)


@pytest.mark.parametrize(("view", "left"), [((3, 4), 44), ((2, 5), 36), ((0, 3), 0)])
def test_tensors_need_the_memory_of_all_their_elements(view: tuple[int, int], left: int) -> None:
    tensor = torch.zeros(12).as_strided(view, (4, 1))
    needed = 4 * (4 * (view[0] - 1) + view[1]) if view[0] else 0
    tensor.untyped_storage().resize_(needed)
    tree.flatten(tensor)
    tensor.untyped_storage().resize_(left)
    if needed == left:
        tree.flatten(tensor)
        return
    with pytest.raises(tree.UnsupportedValueError, match=f"need {needed} bytes, and {left} are left"):
        tree.flatten(tensor)


def test_only_sketches_may_be_without_memory() -> None:
    tensor = torch.zeros(3, device="meta")
    assert tree.flatten([tensor], is_sketch=True)[1] == [tensor]
    with pytest.raises(tree.UnsupportedValueError, match="meta"):
        tree.flatten([tensor])


def test_tensors_in_dicts_are_numbered_by_their_keys() -> None:
    one, other = torch.zeros(1), torch.ones(1)
    structure, tensors = tree.flatten({"b": one, "a": other})
    assert (structure, tensors) == ({"dict": [["b", {"tensor": 1}], ["a", {"tensor": 0}]]}, [other, one])
    assert list(tree.rebuild(structure, tensors, CPU)) == ["b", "a"]
    assert list(tree.mapped({"b": one, "a": other}, torch.Tensor.neg)) == ["b", "a"]


@pytest.mark.parametrize("value", [["x" * 16 * 9_998], [0] * 9_999, ["x" * 15] * 9_999])
def test_values_have_at_most_so_many_parts(value: Any) -> None:
    tree.flatten(value)
    with pytest.raises(tree.UnsupportedValueError, match="more than 10000 parts"):
        tree.flatten([*value, *[0] * 3])


@pytest.mark.parametrize("value", [object(), {1, 2}, lambda: None, b"bytes"])
def test_unsupported_values_are_named(value: Any) -> None:
    with pytest.raises(tree.UnsupportedValueError, match=type(value).__name__):
        tree.flatten([value])


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 4),
        torch.randn(3, 4).t(),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.randn(4).expand(3, 4),
        torch.randn(8)[::2],
        torch.tensor(1.5),
        torch.empty(0, 3),
        torch.arange(5, dtype=torch.int8),
        torch.randn(3).bfloat16(),
        torch.tensor([True, False]),
    ],
)
def test_tensors_keep_values_and_dense_layouts(tensor: torch.Tensor) -> None:
    spec = tree.describe(tensor)
    assert tree.TensorSpec.from_json(spec.to_json()) == spec
    _, size = tree.layout([spec, spec])
    region = torch.zeros(size, dtype=torch.uint8)
    for view in tree.views(region, [spec, spec]):
        view.copy_(tensor)
    for view in tree.views(region, [spec, spec]):
        assert torch.equal(view, tensor)
        assert view.dtype == tensor.dtype
    if tensor.dim() == 4:
        assert spec.stride == tensor.stride()


@pytest.mark.parametrize(
    "forged",
    [
        None,
        [],
        ["float32"],
        ["float32", [-1], [1], True],
        ["float32", [1], [1, 1], True],
        ["float32", [2.5], [1], True],
    ],
)
def test_forged_descriptions_are_refused(forged: Any) -> None:
    with pytest.raises(tree.UnsupportedValueError):
        tree.TensorSpec.from_json(forged)


def test_unknown_dtype_is_refused() -> None:
    with pytest.raises(tree.UnsupportedValueError, match="load"):
        _ = tree.TensorSpec("load", (1,), (1,), False).torch_dtype


def test_frames_carry_descriptors() -> None:
    left, right = socket.socketpair()
    reading, writing = os.pipe()
    wire.send(left, {"op": "x"}, (writing,))
    received = wire.receive(right)
    assert received is not None
    frame, (descriptor,) = received
    assert frame == {"op": "x"}
    os.write(descriptor, b"through")
    assert os.read(reading, 10) == b"through"
    left.close()
    assert wire.receive(right) is None
    for fd in (reading, writing, descriptor):
        os.close(fd)
    right.close()


@pytest.mark.parametrize("garbage", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x03abc", b"\x00\x00\x00\x02[]"])
def test_garbage_is_a_protocol_error(garbage: bytes) -> None:
    left, right = socket.socketpair()
    with left, right:
        left.sendall(garbage)
        with pytest.raises(wire.ProtocolError):
            wire.receive(right, limit=1024)


def test_the_deepest_output_passes_and_deeper_frames_are_refused() -> None:
    """A value that the parser accepts could still be too deep for code that compares or prints it."""
    deepest: Any = torch.ones(1)
    for _ in range(32):
        deepest = {"part": deepest}
    structure, tensors = tree.flatten(deepest)
    back = tree.rebuild(wire.decode(wire.encode({"ok": {"structure": structure}})[4:])["ok"]["structure"], tensors, CPU)
    for _ in range(32):
        back = back["part"]
    assert back is tensors[0]
    for deep in (b'{"a":' * wire.MAX_LEVELS + b"1" + b"}" * wire.MAX_LEVELS, b'{"a":%s}' % (b"[" * 127 + b"]" * 127)):
        wire.decode(deep)
        with pytest.raises(wire.ProtocolError, match="levels"):
            wire.decode(b'{"ok":%s}' % deep)


async def test_what_a_peer_said_before_it_died_is_read_although_a_write_has_failed() -> None:
    ours, theirs = socket.socketpair()
    reader, writer = await wire.connect(ours)
    for number in range(3):
        wire.send(theirs, {"number": number})
    theirs.close()
    wire.write_frame(writer, {"op": "anything"})  # the peer is gone, so asyncio closes the connection at once
    assert [await wire.read_frame(reader) for _ in range(4)] == [{"number": 0}, {"number": 1}, {"number": 2}, None]
    writer.close()


async def test_a_peer_that_dies_in_the_middle_of_a_frame_has_closed() -> None:
    ours, theirs = socket.socketpair()
    reader, writer = await wire.connect(ours)
    theirs.send(wire.encode({"op": "result"})[:-1])
    theirs.close()
    wire.write_frame(writer, {"op": "anything"})
    assert await wire.read_frame(reader) is None
    writer.close()


async def test_a_peer_that_refuses_what_is_written_and_sends_on_and_on_holds_nobody_up() -> None:
    """A candidate can do this with its own end of the socket (SHUT_RD, and a writer that is fast enough)."""
    pieces = 0

    class Endless(socket.socket):
        def recv(self, size: int, flags: int = 0) -> bytes:
            nonlocal pieces
            pieces += 1
            assert pieces < 1000, "it is read for as long as there is more"
            return b"\x00\x00\x00\x02{}" * (size // 6)

    reader = asyncio.StreamReader()
    ours, theirs = socket.socketpair()
    with Endless(fileno=ours.detach()) as endless, theirs:
        wire._ToTheEnd(reader, endless).connection_lost(BrokenPipeError())
    while await wire.read_frame(reader) is not None:
        pass
    assert 1 < pieces <= 64
