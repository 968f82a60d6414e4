"""Exported models are the same function in `transformers`, and come back as they went."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from penstock.errors import ConfigError
from penstock.model.export import CONFIG, WEIGHTS, export_model, import_model
from penstock.model.gpt import GPT

from .builders import VARIANTS, made, shape

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning:transformers")


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS)
def test_an_exported_model_has_the_same_logits_in_transformers(variant: str, tmp_path: Path) -> None:
    config = shape(**VARIANTS[variant])
    model = made(config)
    export_model(tmp_path, config, model.state_dict(), eos_id=3)
    theirs, loading = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(loading.values()), loading
    assert theirs.config.eos_token_id == 3
    assert theirs.dtype == torch.float32
    ids_BT = torch.randint(0, config.vocab_size, (3, config.max_seq_len), generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(model(ids_BT), theirs(ids_BT).logits, rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS)
def test_an_exported_model_comes_back_bit_for_bit(variant: str, tmp_path: Path) -> None:
    config = shape(**VARIANTS[variant])
    model = made(config)
    export_model(tmp_path, config, model.state_dict())
    found, weights = import_model(tmp_path)
    again = GPT(found).eval()
    again.load_state_dict(weights)
    assert {name: value for name, value in found.as_dict().items() if name not in ("ffn_dim", "num_kv_heads")} == {
        name: value for name, value in config.as_dict().items() if name not in ("ffn_dim", "num_kv_heads")
    }
    assert (found.hidden_dim, found.kv_heads) == (config.hidden_dim, config.kv_heads)
    for name, weight in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight), name


def test_export_in_bfloat16_is_opened_in_bfloat16(tmp_path: Path) -> None:
    config = shape()
    export_model(tmp_path, config, made(config).state_dict(), dtype=torch.bfloat16)
    assert AutoModelForCausalLM.from_pretrained(tmp_path, dtype="auto").dtype == torch.bfloat16


def test_a_model_with_gelu_and_qk_norm_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    config = shape(activation="gelu", qk_norm=True)
    with pytest.raises(ConfigError, match="both gelu and qk_norm"):
        export_model(tmp_path / "out", config, made(config).state_dict())
    assert not (tmp_path / "out").exists()


def test_import_of_a_directory_without_a_model_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="penstock export"):
        import_model(tmp_path / "nothing")


def test_import_of_a_kind_that_is_not_known_names_it(tmp_path: Path) -> None:
    (tmp_path / CONFIG).write_text(json.dumps({"model_type": "mamba"}))
    (tmp_path / WEIGHTS).write_bytes(b"")
    with pytest.raises(ConfigError, match="'mamba' model; only llama, qwen3, arcee"):
        import_model(tmp_path)
