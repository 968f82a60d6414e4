"""Sizes that fit together, and what is said of those that do not."""

import json
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.model.config import NAMED, GPTConfig, config_from, fitted, model_config
from penstock.model.gpt import GPT

from .builders import VARIANTS, shape


@pytest.mark.parametrize("variant", VARIANTS)
def test_num_parameters_is_the_real_count(variant: str) -> None:
    config = shape(**VARIANTS[variant])
    assert sum(weight.numel() for weight in GPT(config).parameters()) == config.num_parameters


def test_a_named_size_is_found_by_name() -> None:
    for name, config in NAMED.items():
        assert model_config(name) is config


def test_a_file_gives_the_configuration_that_was_written(tmp_path: Path) -> None:
    config = shape(num_kv_heads=2, qk_norm=True, tied=False)
    (tmp_path / "model.json").write_text(json.dumps(config.as_dict()))
    assert model_config(str(tmp_path / "model.json")) == config


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"dim": 30, "num_heads": 4}, "dim 30 does not divide into 4 heads of even width"),
        ({"dim": 20, "num_heads": 4}, "dim 20 does not divide into 4 heads of even width"),
        ({"num_heads": 4, "num_kv_heads": 3}, "num_heads 4 is not a multiple of num_kv_heads 3"),
        ({"num_layers": 0}, "num_layers must be positive, got 0"),
        ({"vocab_size": -1}, "vocab_size must be positive, got -1"),
        ({"activation": "relu"}, "activation must be 'swiglu' or 'gelu', got 'relu'"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        shape(**settings)


@pytest.mark.parametrize(("name", "value"), [("num_kv_heads", -2), ("num_kv_heads", 0), ("ffn_dim", 0)])
def test_an_optional_size_that_is_not_positive_is_refused(name: str, value: int) -> None:
    with pytest.raises(ConfigError, match=name):
        shape(**{name: value})


@pytest.mark.parametrize("value", ["32", 32.5, None, [32]])
def test_a_size_of_the_wrong_type_in_a_file_is_refused_by_name(value: object) -> None:
    with pytest.raises(ConfigError, match=r"model\.json.*dim"):
        config_from({"dim": value, "num_heads": 4}, where="model.json")


def test_an_unknown_field_is_named_and_so_are_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text(json.dumps({"n_layer": 2, "dim": 32}))
    with pytest.raises(ConfigError, match=r"model\.json: no such setting: n_layer; there are .*num_layers"):
        model_config(str(tmp_path / "model.json"))


def test_a_file_that_is_not_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text("dim: 32")
    with pytest.raises(ConfigError, match=r"model\.json: not JSON"):
        model_config(str(tmp_path / "model.json"))


def test_a_file_with_something_else_than_an_object_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text("[32]")
    with pytest.raises(ConfigError, match="expected an object"):
        model_config(str(tmp_path / "model.json"))


def test_a_missing_file_is_named_with_the_sizes_that_have_names() -> None:
    with pytest.raises(ConfigError, match="'enormous': neither one of tiny, small, medium, large nor a JSON file"):
        model_config("enormous")


def test_a_directory_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        model_config(str(tmp_path))


def test_a_vocabulary_that_is_too_small_is_refused_with_the_next_size() -> None:
    with pytest.raises(ConfigError, match=r"the model has 256 ids, the tokenizer 257; .* at least 384 "):
        fitted(shape(vocab_size=256), vocab_size=257, seq_len=16)


def test_a_model_grows_to_the_length_of_its_rows_and_changes_nothing_else() -> None:
    config = shape(max_seq_len=32)
    assert fitted(config, vocab_size=64, seq_len=32) is config
    grown = fitted(config, vocab_size=64, seq_len=100)
    assert grown == GPTConfig(**{**config.as_dict(), "max_seq_len": 100})
