"""How native code is compiled quickly, inside a builder's sandbox: nothing here is trusted, and nothing here decides.

Reading order: `program` answers the builder's order, `commands` gets the compilers' command lines from torch, `lean`
chooses the headers, `nvcc` runs both passes of a .cu file side by side, and `errors` says whether a failed build could
have succeeded with all headers.
"""
