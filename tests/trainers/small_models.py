"""Tokenizers and models that are made on the spot: a token for each byte, ChatML, and weights at random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
#: The form of Qwen's chat templates.
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer that merges nothing: what it encodes it decodes to the same."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={symbol: id for id, symbol in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(list(SPECIAL))
    made = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    made.chat_template = CHAT_TEMPLATE
    return made


def configuration(**changes: Any) -> Qwen2Config:
    """Of a Qwen2 model of some ten thousand weights."""
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
    """A model with weights at random."""
    return Qwen2ForCausalLM(configuration(**changes))


def save(folder: Path) -> Path:
    """Writes tokenizer and configuration as a model folder, without weights: what a rollout worker reads."""
    tokenizer().save_pretrained(folder)
    configuration().save_pretrained(folder)
    return folder
