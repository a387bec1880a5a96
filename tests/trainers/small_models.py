"""Tokenizers and models made at run time: one token per byte, ChatML and random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
#: A chat template in the form of Qwen's.
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer without merges: decoding gives back the encoded text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={symbol: id for id, symbol in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(list(SPECIAL))
    made = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    made.chat_template = CHAT_TEMPLATE
    return made


def configuration(**changes: Any) -> Qwen2Config:
    """Return the configuration of a Qwen2 model with some ten thousand weights."""
    sizes = {
        "vocab_size": 320,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
    }
    return Qwen2Config(architectures=["Qwen2ForCausalLM"], **(sizes | changes))


def model(**changes: Any) -> Qwen2ForCausalLM:
    """Return a model with random weights."""
    return Qwen2ForCausalLM(configuration(**changes))


def save(folder: Path) -> Path:
    """Write a model folder without weights, as a rollout worker reads it: tokenizer and configuration. Return it."""
    tokenizer().save_pretrained(folder)
    configuration().save_pretrained(folder)
    return folder
