"""From a transformer in PyTorch to what serves: one ONNX graph with pooling inside, its weights in 8 bits."""

from __future__ import annotations

import json
import logging
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blockxmc._core.stored import short
from blockxmc.encoder.options import Encoder
from blockxmc.encoder.texts import TextEncoder
from blockxmc.errors import BlockXMCError, MissingExtraError

# Positions of these begin behind the number of the padding token.
_SHIFTED = ("roberta", "xlm-roberta", "camembert", "xlm-roberta-xl")
_OPSET = 17


@dataclass
class Source:
    """An encoder as PyTorch runs it, with the tokenizer's JSON."""

    module: Any  # token ids (rows x tokens), mask or None -> vectors
    tokenizer: bytes
    size: int
    max_tokens: int
    prefix: str


def torch_of() -> Any:
    """PyTorch, or a line that says how to get it."""
    try:
        import torch
    except ImportError:
        raise MissingExtraError("torch", "encoder") from None
    return torch


def open_source(encoder: Encoder) -> Source:
    """Read the weights (safetensors only) and the tokenizer of an encoder; no code of it is run."""
    torch = torch_of()
    try:
        import transformers
        from transformers.utils import cached_file
    except ImportError:
        raise MissingExtraError("transformers", "encoder") from None
    name = str(encoder.model)
    missing: Any = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_gated_repo": False}
    transformers.utils.logging.disable_progress_bar()
    try:
        how: Any = {"trust_remote_code": False, "use_safetensors": True, "attn_implementation": "sdpa"}
        model = transformers.AutoModel.from_pretrained(name, dtype=torch.float32, **how)
        found = cached_file(name, "tokenizer.json", **missing)
        pooling = cached_file(name, "1_Pooling/config.json", **missing)
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        raise BlockXMCError(
            f"the encoder {name} cannot be loaded: {short(' '.join(str(error).split()))}; give a folder with config.json,"
            " tokenizer.json and model.safetensors"
        ) from None
    if found is None:
        raise BlockXMCError(f"the encoder {name} has no tokenizer.json: save it with a fast tokenizer")
    first = pooling is not None and bool(json.loads(Path(pooling).read_text()).get("pooling_mode_cls_token"))
    config = model.config
    positions = int(getattr(config, "max_position_embeddings", 1 << 20) or 1 << 20)
    if config.model_type in _SHIFTED:
        positions -= int(config.pad_token_id or 0) + 1
    most = min(encoder.max_tokens, positions)
    module = pooled(model.eval(), first=first)
    return Source(module, Path(found).read_bytes(), int(config.hidden_size), most, encoder.prefix)


def pooled(model: Any, *, first: bool) -> Any:
    """A module that gives one vector per text: that of the first token, or the mean of all."""
    torch = torch_of()

    class Pooled(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: Any, mask: Any = None) -> Any:
            hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
            if first:
                return hidden[:, 0]
            if mask is None:
                return hidden.mean(1)
            weight = mask.unsqueeze(-1).to(hidden.dtype)
            return (hidden * weight).sum(1) / weight.sum(1)

    return Pooled().eval()


def exported(source: Source, bits: int = 8) -> TextEncoder:
    """The graph of an encoder, with weights of so many bits."""
    torch = torch_of()
    try:
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError as error:
        raise MissingExtraError(str(error.name), "encoder") from None
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the exporter thinks of itself
        whole, small = Path(folder, "whole.onnx"), Path(folder, "small.onnx")
        ids = torch.ones((1, 8), dtype=torch.long)
        axes: Any = {"input_names": ["ids"], "output_names": ["vector"]}
        axes["dynamic_axes"] = {"ids": {0: "rows", 1: "tokens"}, "vector": {0: "rows"}}
        module = source.module.float().cpu().eval()
        with torch.no_grad():
            torch.onnx.export(module, (ids,), str(whole), dynamo=False, opset_version=_OPSET, **axes)
        if bits == 8:
            silent = logging.NullHandler()  # advice on models of pictures is not for users
            logging.getLogger().addHandler(silent)
            logging.disable(logging.WARNING)
            # A scale per column, and seven bits of eight: products of pairs then fit processors without VNNI, too.
            try:
                quantize_dynamic(whole, small, per_channel=True, reduce_range=True, weight_type=QuantType.QInt8)
            finally:
                logging.disable(logging.NOTSET)
                logging.getLogger().removeHandler(silent)
        graph = (small if bits == 8 else whole).read_bytes()
    return TextEncoder.of(graph, source.tokenizer, source.size, source.max_tokens, source.prefix)
