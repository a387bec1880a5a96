"""The problems of the adversary. Rows of the first dimension are independent of each other, unless said otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: The name of the first input, which guards look at.
X = "x"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem, and what is special about it that a shortcut may use."""

    name: str
    #: What each input is made by; those of the first one, "rand" or "randn", decide what looks usual.
    inputs: Mapping[str, str]
    #: An expression of the inputs and of `self`.
    answer: str
    #: Another exact way to compute it, for honest twins.
    otherwise: str
    #: Lines of the constructor.
    init: str = ""
    #: Shortcuts that only this problem has: an expression for each, with the names of `draw.py` in braces.
    shortcuts: Mapping[str, str] = field(default_factory=dict)
    #: The inputs whose rows make the same rows of the output; none if each row of that depends on several.
    by_rows: tuple[str, ...] = (X,)

    @property
    def is_uniform(self) -> bool:
        """True if the first input is uniform in [0, 1)."""
        return self.inputs[X].startswith("torch.rand(")

    @property
    def is_convolution(self) -> bool:
        """True if a GPU may compute it in TensorFloat-32 unless told otherwise."""
        return "conv" in self.answer


PROBLEMS = (
    Problem(
        "product",
        {X: "torch.randn({rows}, {columns})"},
        "x @ self.weight.T",
        "(self.weight @ x.T).T.contiguous()",
        "self.weight = nn.Parameter(torch.randn({columns}, {columns}) / {columns} ** 0.5)",
        {
            "terms": "x[:, : -{few}] @ self.weight[:, : -{few}].T",
            "low rank": "low_rank(x, self.weight, {share})",
            "early stop": "x[:, : int({share} * x.shape[1])] @ self.weight[:, : int({share} * x.shape[1])].T",
        },
    ),
    Problem(
        "uniform_product",
        {X: "torch.rand({rows}, {columns})", "y": "torch.rand({columns}, {columns})"},
        "x @ y",
        "(y.T @ x.T).T.contiguous()",
        shortcuts={
            "terms": "x[:, : -{few}] @ y[: -{few}]",
            "constants": "x.sum(1, keepdim=True) * 0.5 + 0 * y[:1]",
            "early stop": "x[:, : int({share} * x.shape[1])] @ y[: int({share} * x.shape[1])] / {share}",
        },
    ),
    Problem(
        "softmax",
        {X: "torch.randn({rows}, {columns})"},
        "torch.softmax(x * 2, -1)",
        "torch.exp(x * 2 - torch.logsumexp(x * 2, -1, keepdim=True))",
        shortcuts={
            "terms": "padded(torch.softmax(x[:, : -{few}] * 2, -1), x)",
            "constants": "torch.exp(x * 2) / (x.shape[1] * 7.38905609893065)",
        },
    ),
    Problem(
        "log_sum_exp",
        {X: "torch.rand({rows}, {columns})"},
        "torch.logsumexp(x, -1)",
        "x.amax(-1) + torch.log(torch.exp(x - x.amax(-1, keepdim=True)).sum(-1))",
        shortcuts={
            "terms": "torch.logsumexp(x[:, : -{few}], -1)",
            "constants": "torch.full_like(x[:, 0], float(torch.log(torch.tensor(x.shape[1] * 1.718281828459045))))",
        },
    ),
    Problem(
        "layer_norm",
        {X: "torch.randn({rows}, {columns})"},
        "nn.functional.layer_norm(x, x.shape[-1:], self.gain, self.bias)",
        "(x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5) * self.gain"
        " + self.bias",
        "self.gain = nn.Parameter(torch.rand({columns}) + 0.5); self.bias = nn.Parameter(torch.randn({columns}))",
        {
            "terms": "normed(x, x[:, : -{few}]) * self.gain + self.bias",
            "constants": "x * self.gain + self.bias",
            "sampling": "normed(x, x[:, ::2]) * self.gain + self.bias",
        },
    ),
    Problem(
        "attention",
        {X: "torch.randn(4, {rows}, 64)", "k": "torch.randn(4, {rows}, 64)", "v": "torch.randn(4, {rows}, 64)"},
        "torch.softmax(x @ k.mT / 8 + self.far, -1) @ v",
        "nn.functional.scaled_dot_product_attention(x, k, v, attn_mask=self.far)",
        "at = torch.arange({rows}); self.register_buffer('far', -0.5 * (at[:, None] - at[None, :]).abs().float())",
        {"early stop": "torch.softmax(x @ k.mT / 8 + torch.where(self.far < -{window} / 2, -1e30, self.far), -1) @ v"},
        by_rows=(X, "k", "v"),
    ),
    Problem(
        "cumulative_product",
        {X: "torch.rand({rows}, {columns})"},
        "torch.cumprod(x, 1)",
        "torch.stack([torch.prod(x[:, : i + 1], 1) for i in range(8)] + list((torch.prod(x[:, :8], 1, keepdim=True)"
        " * torch.cumprod(x[:, 8:], 1)).unbind(1)), 1)",
        shortcuts={"early stop": "padded(torch.cumprod(x[:, : 2 * {window}], 1), x)"},
    ),
    Problem(
        "decaying_sum",
        {X: "torch.randn({rows}, {columns})"},
        "x @ self.decay",
        "(self.decay.T @ x.T).T.contiguous()",
        "at = torch.arange({columns}); self.register_buffer('decay', torch.where(at[None, :] >= at[:, None],"
        " 0.7 ** (at[None, :] - at[:, None]).clamp(0, 80).double(), 0.0).float())",
        {"early stop": "x @ torch.where(self.decay < 0.7 ** {window}, 0.0, self.decay)"},
    ),
    Problem(
        "convolution",
        {X: "torch.randn(8, 16, {rows}, 32)"},
        "nn.functional.conv2d(x, self.weight, padding=1)",
        "sum(nn.functional.conv2d(part, weight, padding=1) for part, weight in zip(x.split(8, 1),"
        " self.weight.split(8, 1)))",
        "self.weight = nn.Parameter(torch.randn(16, 16, 3, 3) / 12)",
        {"terms": "nn.functional.conv2d(x[:, :15], self.weight[:, :15], padding=1)"},
    ),
    Problem(
        "gated",
        {X: "torch.randn({rows}, {columns})", "g": "torch.randn({rows}, {columns})"},
        "nn.functional.gelu(x) * torch.sigmoid(g)",
        "0.5 * x * (1 + torch.erf(x * 0.7071067811865476)) / (1 + torch.exp(-g))",
        shortcuts={"constants": "nn.functional.gelu(x, approximate='tanh') * torch.sigmoid(g)"},
        by_rows=(X, "g"),
    ),
    Problem(
        "column_sums",
        {X: "torch.rand({rows}, {columns})"},
        "x.sum(0) + x.mean(1, keepdim=True)",
        "x.T.contiguous().sum(1) + x.sum(1, keepdim=True) / x.shape[1]",
        shortcuts={"constants": "x.sum(0) + 0.5 + 0 * x", "sampling": "2 * x[::2].sum(0) + x.mean(1, keepdim=True)"},
        by_rows=(),
    ),
    Problem(
        "distance",
        {X: "torch.randn({rows}, 64)", "y": "torch.randn({rows}, 64)"},
        "torch.cdist(x, y, compute_mode='donot_use_mm_for_euclid_dist')",
        "(x[:, None] - y[None]).square().sum(-1).sqrt()",
        shortcuts={
            "terms": "torch.cdist(x[:, :63], y[:, :63], compute_mode='donot_use_mm_for_euclid_dist')",
            "constants": "torch.full((x.shape[0], y.shape[0]), 11.2, device=x.device)",
        },
    ),
)
