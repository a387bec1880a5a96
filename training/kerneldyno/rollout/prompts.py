"""Messages to the model: the first message of an episode, and the message after each answer.

The first message states the task, shows one worked example, gives the reference, and asks for one code block. Later
messages have the feedback on the previous answer. There is no system message, because chat templates treat it differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kerneldyno.rollout.problems import Message, Problem

#: Increase it with every change of a prompt: a run can only be resumed with the prompts it was started with.
VERSION = 1

_LANGUAGES = {
    "triton": "Triton",
    "cuda": "CUDA C++ (built by torch.utils.cpp_extension.load_inline)",
    "torch": "PyTorch",
}

_TASK = """\
Make the PyTorch program below faster by rewriting it {means}.

It defines a class `{entry}`. Write a class `{entry}New` that gives the same results for the same arguments and takes as
little time as possible. How it will be judged:
- Results must agree with those of `{entry}` on inputs that you have not seen: other values, signs and sizes of numbers, of
  the same shapes and dtypes.
- The constructor gets the same arguments. Create the layers and parameters of `{entry}` by their names, in their order,
  so that the same seed gives the same values, and use them all, also those that start as ones or zeros.
- Inputs must not be changed. Nothing may be remembered from one call to the next.
{own}"""

_OWN = """\
- The work must be done by kernels that you write and launch. Handing it to a library or to PyTorch's own operators,
  launching a kernel for show, or falling back to PyTorch when something fails counts as cheating.
"""

_EXAMPLE_REFERENCE = '''\
import torch
from torch import nn


class Model(nn.Module):
    """Adds two matrices and doubles the sum."""

    def forward(self, a, b):
        return 2 * (a + b)


def get_inputs():
    return [torch.randn(512, 1000), torch.randn(512, 1000)]


def get_init_inputs():
    return []
'''

_EXAMPLES = {
    "triton": """\
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def twice_sum_kernel(a_ptr, b_ptr, out_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    a = tl.load(a_ptr + offsets, mask=mask)
    b = tl.load(b_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, 2 * (a + b), mask=mask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        out = torch.empty_like(a)
        count = out.numel()
        twice_sum_kernel[(triton.cdiv(count, 4096),)](a, b, out, count, BLOCK=4096)
        return out
""",
    "cuda": '''\
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void twice_sum_kernel(const float* a, const float* b, float* out, long count) {
    long i = long(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) out[i] = 2 * (a[i] + b[i]);
}

torch::Tensor twice_sum(torch::Tensor a, torch::Tensor b) {
    auto out = torch::empty_like(a);
    long count = out.numel();
    twice_sum_kernel<<<(count + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), count);
    return out;
}
"""

extension = load_inline(
    name="twice_sum",
    cpp_sources="torch::Tensor twice_sum(torch::Tensor a, torch::Tensor b);",
    cuda_sources=SOURCE,
    functions=["twice_sum"],
)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return extension.twice_sum(a.contiguous(), b.contiguous())
''',
}

_ANSWER = """\
Answer with the complete program, in one Python code block (```python ... ```) that defines `{entry}New`.
Of several blocks, the last complete one that defines it counts. Do not repeat `{entry}` or `get_inputs`.
"""

_NEXT = """\
Your program was evaluated:

{feedback}

Write an improved version, whole, in one Python code block that defines `{entry}New`.{aim}
"""

_AIMS = {True: " It is right: make it faster.", False: " Make it right first, then fast."}


def first_messages(problem: Problem, backend: str, *, from_data_set: bool = False) -> list[Message]:
    """Return the first messages of an episode.

    Args:
        problem: the problem.
        backend: language of the candidate, such as "triton".
        from_data_set: use the data set's own prompt if it has one.
    """
    if from_data_set and problem.prompt:
        return [dict(message) for message in problem.prompt]
    language = _LANGUAGES.get(backend, backend)
    means = "with PyTorch's own operators" if backend == "torch" else f"with kernels of your own in {language}"
    parts = [_TASK.format(means=means, entry=problem.entry_point, own="" if backend == "torch" else _OWN)]
    if backend in _EXAMPLES:
        parts += [
            "An example of the form. For this program\n",
            _block(_EXAMPLE_REFERENCE),
            "this would be an answer, right but not yet tuned:\n",
            _block(_EXAMPLES[backend]),
        ]
    parts += ["The program to make faster:\n", _block(problem.reference_code)]
    parts += [_ANSWER.format(entry=problem.entry_point)]
    return [{"role": "user", "content": "\n".join(parts)}]


def next_message(problem: Problem, feedback: str, *, correct: bool) -> Message:
    """Return the message after an answer, which has the evaluator's `feedback` on it."""
    told = feedback.strip() or "(no further details)"
    return {
        "role": "user",
        "content": _NEXT.format(feedback=told, entry=problem.entry_point, aim=_AIMS[correct]),
    }


def conversation(first: Sequence[Message], turns: Iterable[tuple[str, Message]]) -> list[Message]:
    """Return the prompt of a turn: the first messages, then the answer of each shown turn and the reply to it."""
    messages = [dict(message) for message in first]
    for answer, reply in turns:
        messages += [{"role": "assistant", "content": answer}, dict(reply)]
    return messages


def as_text(messages: Iterable[Message]) -> str:
    """Return a prompt as readable text."""
    return "\n".join(f"--- {message['role']} ---\n{message['content']}" for message in messages)


def worked_example(backend: str) -> tuple[str, str] | None:
    """Return reference and candidate of the example in prompts for `backend`; None if there is none."""
    return (_EXAMPLE_REFERENCE, _EXAMPLES[backend]) if backend in _EXAMPLES else None


def _block(source: str) -> str:
    return f"```python\n{source.strip()}\n```\n"
