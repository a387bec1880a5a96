"""Softmax over each row, in several ways. programs.py cuts candidates from this file, function by function."""

import torch
import triton
import triton.language as tl


@triton.jit
def fused_whole_row_kernel(x_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    offsets = row[:, None] * columns + column[None, :]
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    x = tl.load(x_ptr + offsets, mask=mask, other=-float("inf"))
    e = tl.exp(x - tl.maximum(tl.max(x, axis=1), -1e30)[:, None])
    total = tl.maximum(tl.sum(e, axis=1), 1e-30)
    tl.store(out_ptr + offsets, e / total[:, None], mask=(row < rows)[:, None] & (column < columns)[None, :])


def fused_whole_row(x, ROWS, COLUMNS):
    out = torch.empty_like(x)
    rows, columns = x.shape
    fused_whole_row_kernel[(triton.cdiv(rows, ROWS),)](x, out, rows, columns, ROWS=ROWS, COLUMNS=COLUMNS)
    return out


@triton.jit
def fused_column_blocks_kernel(x_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    largest = tl.full((ROWS,), -1e30, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    for start in range(0, columns, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        offsets = row[:, None] * columns + column[None, :]
        mask = (row < rows)[:, None] & (column < columns)[None, :]
        x = tl.load(x_ptr + offsets, mask=mask, other=-float("inf"))
        new_largest = tl.maximum(largest, tl.max(x, axis=1))
        total = total * tl.exp(largest - new_largest) + tl.sum(tl.exp(x - new_largest[:, None]), axis=1)
        largest = new_largest
    total = tl.maximum(total, 1e-30)
    for start in range(0, columns, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        offsets = row[:, None] * columns + column[None, :]
        mask = (row < rows)[:, None] & (column < columns)[None, :]
        x = tl.load(x_ptr + offsets, mask=mask, other=-float("inf"))
        e = tl.exp(x - largest[:, None])
        tl.store(out_ptr + offsets, e / total[:, None], mask=(row < rows)[:, None] & (column < columns)[None, :])


def fused_column_blocks(x, ROWS, COLUMNS):
    out = torch.empty_like(x)
    rows, columns = x.shape
    fused_column_blocks_kernel[(triton.cdiv(rows, ROWS),)](x, out, rows, columns, ROWS=ROWS, COLUMNS=COLUMNS)
    return out


@triton.jit
def statistics_kernel(x_ptr, largest_ptr, total_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    largest = tl.full((ROWS,), -1e30, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    for start in range(0, columns, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        mask = (row < rows)[:, None] & (column < columns)[None, :]
        x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=mask, other=-float("inf"))
        new_largest = tl.maximum(largest, tl.max(x, axis=1))
        total = total * tl.exp(largest - new_largest) + tl.sum(tl.exp(x - new_largest[:, None]), axis=1)
        largest = new_largest
    tl.store(largest_ptr + row, largest, mask=row < rows)
    tl.store(total_ptr + row, total, mask=row < rows)


@triton.jit
def apply_kernel(x_ptr, largest_ptr, total_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    largest = tl.load(largest_ptr + row, mask=row < rows, other=0.0)
    total = tl.load(total_ptr + row, mask=row < rows, other=1.0)
    for start in range(0, columns, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        offsets = row[:, None] * columns + column[None, :]
        mask = (row < rows)[:, None] & (column < columns)[None, :]
        x = tl.load(x_ptr + offsets, mask=mask, other=-float("inf"))
        y = tl.exp(x - largest[:, None]) / total[:, None]
        tl.store(out_ptr + offsets, y, mask=(row < rows)[:, None] & (column < columns)[None, :])


def split(x, ROWS, COLUMNS):
    out = torch.empty_like(x)
    rows, columns = x.shape
    largest, total = torch.empty(rows, device=x.device), torch.empty(rows, device=x.device)
    grid = (triton.cdiv(rows, ROWS),)
    statistics_kernel[grid](x, largest, total, rows, columns, ROWS=ROWS, COLUMNS=COLUMNS)
    apply_kernel[grid](x, largest, total, out, rows, columns, ROWS=ROWS, COLUMNS=COLUMNS)
    return out


@triton.jit
def shortcut_kernel(x_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    offsets = row[:, None] * columns + column[None, :]
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    e = tl.exp(tl.load(x_ptr + offsets, mask=mask, other=-100.0))  # ordinary inputs are small: no need of the largest
    tl.store(out_ptr + offsets, e / tl.sum(e, axis=1)[:, None], mask=mask)


def shortcut(x, ROWS, COLUMNS):
    out = torch.empty_like(x)
    rows, columns = x.shape
    shortcut_kernel[(triton.cdiv(rows, ROWS),)](x, out, rows, columns, ROWS=ROWS, COLUMNS=COLUMNS)
    return out


@triton.jit
def divide_kernel(e_ptr, total_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    offsets = row[:, None] * columns + column[None, :]
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    total = tl.load(total_ptr + row, mask=row < rows, other=1.0)
    tl.store(out_ptr + offsets, tl.load(e_ptr + offsets, mask=mask) / total[:, None], mask=mask)


def torch_part(x):
    e = (x - x.max(-1, keepdim=True).values).exp()
    return torch.cat([e, e.sum(-1, keepdim=True)], dim=-1)


def lazy(parts, ROWS, COLUMNS):
    e, total = parts[:, :-1].contiguous(), parts[:, -1].contiguous()
    out = torch.empty_like(e)
    rows, columns = e.shape
    divide_kernel[(triton.cdiv(rows, ROWS),)](e, total, out, rows, columns, ROWS=ROWS, COLUMNS=COLUMNS)
    return out
