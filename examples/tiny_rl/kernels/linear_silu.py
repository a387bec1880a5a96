"""A product, a bias and SiLU, in several ways. programs.py cuts candidates from this file, function by function."""

import torch
import triton
import triton.language as tl


@triton.jit
def fused_whole_row_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, rows, columns, outputs,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, OUTPUTS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    output = tl.arange(0, OUTPUTS)
    column = tl.arange(0, COLUMNS)
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=mask, other=0.0)
    w_mask = (column < columns)[:, None] & (output < outputs)[None, :]
    w = tl.load(weight_ptr + output[None, :] * columns + column[:, None], mask=w_mask, other=1.0)
    y = tl.dot(x, w, input_precision="tf32x3")
    y += tl.load(bias_ptr + output, mask=output < outputs, other=0.0)[None, :]
    out_mask = (row < rows)[:, None] & (output < outputs)[None, :]
    tl.store(out_ptr + row[:, None] * outputs + output[None, :], y / (1.0 + tl.exp(-y)), mask=out_mask)


def fused_whole_row(x, weight, bias, ROWS, COLUMNS):
    (rows, columns), outputs = x.shape, weight.shape[0]
    out = torch.empty(rows, outputs, device=x.device)
    fused_whole_row_kernel[(triton.cdiv(rows, ROWS),)](
        x, weight, bias, out, rows, columns, outputs, ROWS, COLUMNS, triton.next_power_of_2(max(outputs, 16))
    )
    return out


@triton.jit
def fused_column_blocks_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, rows, columns, outputs,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, OUTPUTS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    output = tl.arange(0, OUTPUTS)
    y = tl.zeros((ROWS, OUTPUTS), tl.float32)
    for start in range(0, columns, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        mask = (row < rows)[:, None] & (column < columns)[None, :]
        x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=mask, other=0.0)
        w_mask = (column < columns)[:, None] & (output < outputs)[None, :]
        w = tl.load(weight_ptr + output[None, :] * columns + column[:, None], mask=w_mask, other=1.0)
        y += tl.dot(x, w, input_precision="tf32x3")
    y += tl.load(bias_ptr + output, mask=output < outputs, other=0.0)[None, :]
    out_mask = (row < rows)[:, None] & (output < outputs)[None, :]
    tl.store(out_ptr + row[:, None] * outputs + output[None, :], y / (1.0 + tl.exp(-y)), mask=out_mask)


def fused_column_blocks(x, weight, bias, ROWS, COLUMNS):
    (rows, columns), outputs = x.shape, weight.shape[0]
    out = torch.empty(rows, outputs, device=x.device)
    fused_column_blocks_kernel[(triton.cdiv(rows, ROWS),)](
        x, weight, bias, out, rows, columns, outputs, ROWS, COLUMNS, triton.next_power_of_2(max(outputs, 16))
    )
    return out


@triton.jit
def product_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, rows, columns, outputs,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, OUTPUTS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    output = tl.arange(0, OUTPUTS)
    y = tl.zeros((ROWS, OUTPUTS), tl.float32)
    for start in range(0, columns, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        mask = (row < rows)[:, None] & (column < columns)[None, :]
        x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=mask, other=0.0)
        w_mask = (column < columns)[:, None] & (output < outputs)[None, :]
        w = tl.load(weight_ptr + output[None, :] * columns + column[:, None], mask=w_mask, other=1.0)
        y += tl.dot(x, w, input_precision="tf32x3")
    y += tl.load(bias_ptr + output, mask=output < outputs, other=0.0)[None, :]
    out_mask = (row < rows)[:, None] & (output < outputs)[None, :]
    tl.store(y_ptr + row[:, None] * outputs + output[None, :], y, mask=out_mask)


@triton.jit
def silu_kernel(y_ptr, out_ptr, rows, outputs, ROWS: tl.constexpr, OUTPUTS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    output = tl.arange(0, OUTPUTS)
    offsets = row[:, None] * outputs + output[None, :]
    mask = (row < rows)[:, None] & (output < outputs)[None, :]
    y = tl.load(y_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, y / (1.0 + tl.exp(-y)), mask=mask)


def split(x, weight, bias, ROWS, COLUMNS):
    (rows, columns), outputs = x.shape, weight.shape[0]
    y, out = torch.empty(rows, outputs, device=x.device), torch.empty(rows, outputs, device=x.device)
    grid, block = (triton.cdiv(rows, ROWS),), triton.next_power_of_2(max(outputs, 16))
    product_kernel[grid](x, weight, bias, y, rows, columns, outputs, ROWS, COLUMNS, block)
    silu_kernel[grid](y, out, rows, outputs, ROWS, block)
    return out


@triton.jit
def shortcut_kernel(
    x_ptr, weight_ptr, out_ptr, rows, columns, outputs,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, OUTPUTS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    output = tl.arange(0, OUTPUTS)
    column = tl.arange(0, COLUMNS)
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=mask, other=0.0)
    w_mask = (column < columns)[:, None] & (output < outputs)[None, :]
    w = tl.load(weight_ptr + output[None, :] * columns + column[:, None], mask=w_mask, other=0.0)
    y = tl.dot(x, w, input_precision="tf32x3")  # the bias is all zeros
    out_mask = (row < rows)[:, None] & (output < outputs)[None, :]
    tl.store(out_ptr + row[:, None] * outputs + output[None, :], y / (1.0 + tl.exp(-y)), mask=out_mask)


def shortcut(x, weight, bias, ROWS, COLUMNS):
    (rows, columns), outputs = x.shape, weight.shape[0]
    out = torch.empty(rows, outputs, device=x.device)
    shortcut_kernel[(triton.cdiv(rows, ROWS),)](
        x, weight, out, rows, columns, outputs, ROWS, COLUMNS, triton.next_power_of_2(max(outputs, 16))
    )
    return out


def torch_part(x, weight, bias):
    return torch.matmul(x, weight.t()) + bias


def lazy(y, weight, bias, ROWS, COLUMNS):
    rows, outputs = y.shape
    out = torch.empty_like(y)
    silu_kernel[(triton.cdiv(rows, ROWS),)](y, out, rows, outputs, ROWS, triton.next_power_of_2(outputs))
    return out
