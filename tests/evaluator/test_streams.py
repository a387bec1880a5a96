"""Which sources count as using several streams: their evaluations get runners that take seconds longer to start."""

from __future__ import annotations

import pytest

from kerneldyno.evaluator.judge.runners.streams import may_use_several

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    "source",
    [
        "s = torch.cuda.Stream()",
        "from torch.cuda import Stream as S",
        "with torch.cuda.stream(s):",
        "torch.cuda.ExternalStream(pointer)",
        "cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);",
        "auto s = at::cuda::getStreamFromPool();",
        "g = torch.cuda.CUDAGraph()",
        "cudaGraphLaunch(g, s);",
        "self.rnn = nn.LSTM(8, 8)",
        "nn.GRUCell(8, 8)",
        "torch._VF.gru(x, h)",
        "model = torch.compile(model)",
        "@torch.compile\ndef f(x):",
        "from torch import compile",
    ],
)
def test_these_may(source: str) -> None:
    assert may_use_several(["x = 1", source])


@pytest.mark.parametrize(
    "source",
    [
        "# Compile the inline CUDA code for element-wise addition",
        "cudaStream_t stream = at::cuda::getCurrentCUDAStream();\nk<<<g, b, 0, stream>>>(x);",
        "#include <c10/cuda/CUDAStream.h>",
        "stream = torch.cuda.current_stream().cuda_stream",
        "PATTERN = re.compile('a+')",
        "compiled = cute.compile(host, x)",
        "congruent = a % b",
        "torch.utils.cpp_extension.load_inline(name='x')",
    ],
)
def test_these_do_not(source: str) -> None:
    assert not may_use_several([source])
