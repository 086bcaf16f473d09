"""A model's name states its size, or nothing is known."""

import pytest

from jobs.model_size import named_parameters


@pytest.mark.parametrize(
    ("model_name", "parameters"),
    [
        ("Qwen/Qwen2.5-72B-Instruct", 72e9),
        ("Qwen/Qwen2.5-0.5B", 0.5e9),
        ("meta-llama/Llama-3.1-8B", 8e9),
        ("google/gemma-2-9b-it", 9e9),
        ("Qwen/Qwen3-30B-A3B", 30e9),
        ("Qwen/Qwen2.5-7B-Instruct-1M", 7e9),
        ("mistralai/Mixtral-8x7B-v0.1", 56e9),
        ("/lustre/models/my_13B/", 13e9),
        ("adder-100k", 1e5),
        ("deepseek-ai/DeepSeek-V3", None),
        ("72B/unsized", None),
    ],
)
def test_the_size_is_read_from_the_last_part_of_the_name(model_name: str, parameters: float | None) -> None:
    assert named_parameters(model_name) == parameters
