"""What a cell uses is recorded as parameters, and nothing that looks like a secret."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import json
import math
import secrets
from typing import Any

import numpy as np
import pytest

from jupyter_dist.capture import parameters
from jupyter_dist.capture.parameters import of_call
from jupyter_dist.plan.rerun_flags import flags_to_keep
from jupyter_dist.text.confidential import is_confidential, reads_like_a_secret


@dataclasses.dataclass
class Config:
    lr: float = 0.1
    api_key: str = "open sesame"


def of_cell(source: str, values: dict[str, Any], inner: dict[str, Any]) -> dict[str, parameters.Value]:
    return parameters.of_cell(ast.parse(source).body, values, inner)


def train(lr: float, epochs: int = 3) -> None: ...


train.__module__ = "__main__"


def test_literals_variables_and_configurations_of_a_cell() -> None:
    source = "\nbatch = 64\nshift = -0.5\ndef own(a, b): g(hidden=3)\nown(1, b=True)\ntrain(0.3, epochs=n)"
    source += "\nprint('x', end='')"
    values: dict[str, Any] = {"train": train, "n": 5, "config": Config(), "rows": [1, 2], "name": "resnet50"}
    values |= {"args": argparse.Namespace(seed=7), "table": {"deep": {"x": 1}, "width": 8}, "_hidden": 1}
    assert of_cell(source, values, {"DEPTH": 18, "n": 6}) == {
        **{"a": 1, "b": True, "lr": 0.3, "batch": 64, "shift": -0.5},
        **{"n": 5, "config.lr": 0.1, "name": "resnet50", "args.seed": 7, "table.width": 8, "DEPTH": 18},
    }


def test_literals_for_libraries_are_no_parameters() -> None:
    class Trainer:
        def fit(self, **more: Any) -> None: ...

    Trainer.__module__ = "__main__"
    source = """
import numpy as np
class Model: ...
for row in tqdm(range(3), leave=False, desc="rows"):
    figure = plot(rows, width=400, height=2)
data = np.random.default_rng(0).normal(size=2000)
model = Model(depth=4)
trainer.fit(patience=2)
frame.plot(kind="bar")
"""
    values = {"tqdm": math.fsum, "plot": json.dumps, "trainer": Trainer(), "frame": np.zeros(9)}
    assert of_cell(source, values, {}) == {"depth": 4, "patience": 2}


def test_arguments_of_a_call_with_their_defaults() -> None:
    assert of_call(train, (np.float32(0.1),), {}, {}) == {"lr": 0.1, "epochs": 3}
    assert of_call(lambda **more: None, (), {"flag": np.bool_(True), "x": np.zeros(3)}, {}) == {"flag": True}


def test_what_is_large_or_no_number_is_not_taken_as_it_is() -> None:
    values = {"text": "x" * 101, "nan": float("nan"), "lines": "a\nb", "huge": 1 << 60, "nothing": None}
    assert of_cell("", values, {}) == {"nan": "nan"}
    assert len(of_cell("", {f"x{i}": i for i in range(500)}, {})) == 60


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("token", "abc"), ("HF_TOKEN", "abc"), ("apiKey", "abc"), ("password", 1234), ("db_passwd", "x")),
        *(("client_secret", "x"), ("authHeader", "x"), ("key", "x"), ("x", "ghp_16C7e42F292c6912E7710c83")),
        *(("x", "AKIAIOSFODNN7EXAMPLE"), ("x", "postgres://me:pass@host/db"), ("x", "sk-proj-abc")),
        *(("x", "https://h/x?sig=abc&se=1"), ("x", "-----BEGIN KEY-----"), ("x", "eyJhbGciOi")),
        ("x", "3f2504e0-4f89-11d3-9a0c-0305e82c3301"),
    ],
)
def test_a_secret_is_told_by_its_name_or_its_look(name: str, value: object) -> None:
    assert is_confidential(name, value)
    assert of_cell("", {name: value, "config": {name: value}}, {}) == {}
    assert of_cell(f"{name} = {value!r}\nrun({name}={value!r})", {}, {}) == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("max_tokens", 512), ("pad_token_id", 0), ("num_keys", 8), ("author", "x"), ("tokenizer", "bert")),
        *(
            ("model", "facebook/wav2vec2-large-960h-lv60-self"),
            ("model", "meta-llama/Meta-Llama-3-8B-Instruct"),
        ),
        *(("data", "s3://bucket/path/run-12/checkpoint.pt"), ("loss", "sparse_categorical_crossentropy")),
        *(("day", "2024-11-22T10:00:00"), ("url", "https://example.com/a?x=1"), ("zeros", "0" * 40)),
    ],
)
def test_what_a_training_is_made_of_is_no_secret(name: str, value: object) -> None:
    assert of_cell("", {name: value}, {}) == {name: value}


def test_keys_drawn_at_random_are_held_back() -> None:
    drawn = [
        make(n)
        for make in (secrets.token_hex, secrets.token_urlsafe)
        for n in (16, 24, 32)
        for _ in range(200)
    ]
    assert sum(not reads_like_a_secret(text) for text in drawn) < len(drawn) / 20


def test_flags_are_kept_as_they_were_typed_but_for_secrets() -> None:
    assert flags_to_keep("-np 4  --out run --name 'my run'") == "-np 4  --out run --name 'my run'"
    assert flags_to_keep("--env A=b --env T=$token -np 2") == "--env 'A=…' --env 'T=$token' -np 2"
    assert flags_to_keep("--env T={keys.hf} --env U=$keys.hf") == "--env 'T={keys.hf}' --env 'U=…'"
    assert flags_to_keep("--address ray://me:pass@host:1 --api-key x") == "--address '…' --api-key '…'"
