"""To and from directories that `transformers` opens: safetensors and a `config.json`.

SwiGLU is a Llama there, with normed queries and keys a Qwen3, and with GELU an Arcee. Weights are the same numbers
under other names; nothing is converted.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from penstock.errors import ConfigError, MissingExtra
from penstock.model.config import GPTConfig
from penstock.shards.atomic import replacing

WEIGHTS: Final = "model.safetensors"
CONFIG: Final = "config.json"
_KINDS: Final = {
    "llama": ("LlamaForCausalLM", "swiglu", False),
    "qwen3": ("Qwen3ForCausalLM", "swiglu", True),
    "arcee": ("ArceeForCausalLM", "gelu", False),
}


def export_model(
    directory: Path,
    config: GPTConfig,
    weights: Mapping[str, Tensor],
    *,
    eos_id: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Writes the model to `directory`, weights first: a `config.json` is there only when all of it is."""
    kind = _kind(config)
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.to(dtype).contiguous() for name, tensor in _renamed(config, weights).items()}
    data = _safetensors().save(tensors, metadata={"format": "pt"})
    with replacing(directory / WEIGHTS) as file:
        file.write(data)
    with replacing(directory / CONFIG) as file:
        file.write((json.dumps(_transformers_config(config, kind, eos_id, dtype), indent=2) + "\n").encode())


def import_model(directory: Path) -> tuple[GPTConfig, dict[str, Tensor]]:
    """The configuration and weights in a directory that `transformers` would open."""
    try:
        raw = json.loads((directory / CONFIG).read_bytes())
        data = (directory / WEIGHTS).read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ConfigError(f"{directory}: has no {CONFIG} and {WEIGHTS}; `penstock export` makes them") from error
    kind = str(raw.get("model_type"))
    if kind not in _KINDS:
        raise ConfigError(f"{directory}: a {kind!r} model; only {', '.join(_KINDS)} can be loaded")
    _, activation, qk_norm = _KINDS[kind]
    rope: Mapping[str, Any] = raw.get("rope_parameters") or {}
    config = GPTConfig(
        vocab_size=raw["vocab_size"],
        max_seq_len=raw["max_position_embeddings"],
        num_layers=raw["num_hidden_layers"],
        num_heads=raw["num_attention_heads"],
        num_kv_heads=raw.get("num_key_value_heads"),
        dim=raw["hidden_size"],
        ffn_dim=raw["intermediate_size"],
        activation="swiglu" if activation == "swiglu" else "gelu",
        qk_norm=qk_norm,
        tied=bool(raw.get("tie_word_embeddings", False)),
        rope_theta=float(rope.get("rope_theta", raw.get("rope_theta", 10_000.0))),
        norm_eps=raw["rms_norm_eps"],
    )
    return config, _own_names(config, _safetensors().load(data))


def _kind(config: GPTConfig) -> str:
    for kind, (_, activation, qk_norm) in _KINDS.items():
        if (config.activation, config.qk_norm) == (activation, qk_norm):
            return kind
    raise ConfigError("no model of `transformers` has both gelu and qk_norm; train with one of them to export")


def _renamed(config: GPTConfig, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our weights under the names that `transformers` uses."""
    heads, kv_heads, width = config.num_heads, config.kv_heads, config.head_dim
    found = {"model.embed_tokens.weight": weights["embedding.weight"], "model.norm.weight": weights["norm.weight"]}
    if not config.tied:
        found["lm_head.weight"] = weights["head.weight"]
    for number in range(config.num_layers):
        ours, theirs = f"blocks.{number}.", f"model.layers.{number}."
        q, k, v = weights[ours + "attention.qkv.weight"].split([heads * width, kv_heads * width, kv_heads * width])
        found |= {
            theirs + "self_attn.q_proj.weight": q,
            theirs + "self_attn.k_proj.weight": k,
            theirs + "self_attn.v_proj.weight": v,
            theirs + "self_attn.o_proj.weight": weights[ours + "attention.out.weight"],
            theirs + "input_layernorm.weight": weights[ours + "attention_norm.weight"],
            theirs + "post_attention_layernorm.weight": weights[ours + "feed_forward_norm.weight"],
            theirs + "mlp.down_proj.weight": weights[ours + "feed_forward.down.weight"],
        }
        up = weights[ours + "feed_forward.up.weight"]
        if config.activation == "swiglu":
            found[theirs + "mlp.gate_proj.weight"], found[theirs + "mlp.up_proj.weight"] = up.chunk(2)
        else:
            found[theirs + "mlp.up_proj.weight"] = up
        if config.qk_norm:
            found[theirs + "self_attn.q_norm.weight"] = weights[ours + "attention.q_norm.weight"]
            found[theirs + "self_attn.k_norm.weight"] = weights[ours + "attention.k_norm.weight"]
    return found


def _own_names(config: GPTConfig, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The way back."""
    embedding = weights["model.embed_tokens.weight"]
    found = {
        "embedding.weight": embedding,
        "norm.weight": weights["model.norm.weight"],
        "head.weight": embedding if config.tied else weights["lm_head.weight"],
    }
    for number in range(config.num_layers):
        ours, theirs = f"blocks.{number}.", f"model.layers.{number}."
        names = ("gate_proj", "up_proj") if config.activation == "swiglu" else ("up_proj",)
        found |= {
            ours + "attention.qkv.weight": torch.cat(
                [weights[f"{theirs}self_attn.{name}_proj.weight"] for name in ("q", "k", "v")]
            ),
            ours + "attention.out.weight": weights[theirs + "self_attn.o_proj.weight"],
            ours + "attention_norm.weight": weights[theirs + "input_layernorm.weight"],
            ours + "feed_forward_norm.weight": weights[theirs + "post_attention_layernorm.weight"],
            ours + "feed_forward.up.weight": torch.cat([weights[f"{theirs}mlp.{name}.weight"] for name in names]),
            ours + "feed_forward.down.weight": weights[theirs + "mlp.down_proj.weight"],
        }
        if config.qk_norm:
            found[ours + "attention.q_norm.weight"] = weights[theirs + "self_attn.q_norm.weight"]
            found[ours + "attention.k_norm.weight"] = weights[theirs + "self_attn.k_norm.weight"]
    return found


def _transformers_config(config: GPTConfig, kind: str, eos_id: int | None, dtype: torch.dtype) -> dict[str, Any]:
    return {
        "architectures": [_KINDS[kind][0]],
        "model_type": kind,
        "vocab_size": config.vocab_size,
        "hidden_size": config.dim,
        "intermediate_size": config.hidden_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu" if config.activation == "swiglu" else "gelu_pytorch_tanh",
        "max_position_embeddings": config.max_seq_len,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "tie_word_embeddings": config.tied,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": eos_id,
        "eos_token_id": eos_id,
        "torch_dtype": str(dtype).removeprefix("torch."),
    }


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise MissingExtra("models are kept in safetensors: pip install safetensors") from error
    return safetensors.torch
