"""RMS normalisation of each row, in several ways. programs.py cuts candidates from this file, function by function."""

import torch
import triton
import triton.language as tl


@triton.jit
def fused_whole_row_kernel(x_ptr, weight_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    offsets = row[:, None] * columns + column[None, :]
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, axis=1) / columns + 1e-6)
    weight = tl.load(weight_ptr + column, mask=column < columns, other=0.0)
    y = x * scale[:, None] * weight[None, :]
    tl.store(out_ptr + offsets, y, mask=(row < rows)[:, None] & (column < columns)[None, :])


def fused_whole_row(x, weight, ROWS, COLUMNS):
    out = torch.empty_like(x)
    rows, columns = x.shape
    fused_whole_row_kernel[(triton.cdiv(rows, ROWS),)](x, weight, out, rows, columns, ROWS=ROWS, COLUMNS=COLUMNS)
    return out


@triton.jit
def fused_column_blocks_kernel(x_ptr, weight_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    squares = tl.zeros((ROWS,), tl.float32)
    for start in range(0, columns, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        mask = (row < rows)[:, None] & (column < columns)[None, :]
        x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=mask, other=0.0)
        squares += tl.sum(x * x, axis=1)
    scale = 1.0 / tl.sqrt(squares / columns + 1e-6)
    for start in range(0, columns, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        offsets = row[:, None] * columns + column[None, :]
        mask = (row < rows)[:, None] & (column < columns)[None, :]
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
        weight = tl.load(weight_ptr + column, mask=column < columns, other=0.0)
        y = x * scale[:, None] * weight[None, :]
        tl.store(out_ptr + offsets, y, mask=(row < rows)[:, None] & (column < columns)[None, :])


def fused_column_blocks(x, weight, ROWS, COLUMNS):
    out = torch.empty_like(x)
    rows, columns = x.shape
    grid = (triton.cdiv(rows, ROWS),)
    fused_column_blocks_kernel[grid](x, weight, out, rows, columns, ROWS=ROWS, COLUMNS=COLUMNS)
    return out


@triton.jit
def scale_kernel(x_ptr, scale_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    squares = tl.zeros((ROWS,), tl.float32)
    for start in range(0, columns, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        mask = (row < rows)[:, None] & (column < columns)[None, :]
        x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=mask, other=0.0)
        squares += tl.sum(x * x, axis=1)
    tl.store(scale_ptr + row, 1.0 / tl.sqrt(squares / columns + 1e-6), mask=row < rows)


@triton.jit
def apply_kernel(x_ptr, weight_ptr, scale_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    scale = tl.load(scale_ptr + row, mask=row < rows, other=0.0)
    for start in range(0, columns, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        offsets = row[:, None] * columns + column[None, :]
        mask = (row < rows)[:, None] & (column < columns)[None, :]
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
        weight = tl.load(weight_ptr + column, mask=column < columns, other=0.0)
        y = x * scale[:, None] * weight[None, :]
        tl.store(out_ptr + offsets, y, mask=(row < rows)[:, None] & (column < columns)[None, :])


def split(x, weight, ROWS, COLUMNS):
    out = torch.empty_like(x)
    rows, columns = x.shape
    scale = torch.empty(rows, device=x.device)
    grid = (triton.cdiv(rows, ROWS),)
    scale_kernel[grid](x, scale, rows, columns, ROWS=ROWS, COLUMNS=COLUMNS)
    apply_kernel[grid](x, weight, scale, out, rows, columns, ROWS=ROWS, COLUMNS=COLUMNS)
    return out


@triton.jit
def shortcut_kernel(x_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    offsets = row[:, None] * columns + column[None, :]
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, axis=1) / columns + 1e-6)
    tl.store(out_ptr + offsets, x * scale[:, None], mask=mask)  # the weights are all ones


def shortcut(x, weight, ROWS, COLUMNS):
    out = torch.empty_like(x)
    rows, columns = x.shape
    shortcut_kernel[(triton.cdiv(rows, ROWS),)](x, out, rows, columns, ROWS=ROWS, COLUMNS=COLUMNS)
    return out


@triton.jit
def multiply_kernel(y_ptr, weight_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    offsets = row[:, None] * columns + column[None, :]
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    weight = tl.load(weight_ptr + column, mask=column < columns, other=0.0)
    tl.store(out_ptr + offsets, tl.load(y_ptr + offsets, mask=mask) * weight[None, :], mask=mask)


def torch_part(x, weight):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)


def lazy(y, weight, ROWS, COLUMNS):
    out = torch.empty_like(y)
    rows, columns = y.shape
    multiply_kernel[(triton.cdiv(rows, ROWS),)](y, weight, out, rows, columns, ROWS=ROWS, COLUMNS=COLUMNS)
    return out
