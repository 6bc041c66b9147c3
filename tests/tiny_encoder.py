"""A transformer of two layers with words of its own, for tests: made in a moment, and as real as a large one."""

import json
from collections import Counter
from pathlib import Path


def make_tiny_encoder(folder, texts, *, kind="bert", seed=0):
    """Write an untrained encoder in the Hugging Face layout that knows the frequent words of these texts."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, ModernBertConfig, ModernBertModel

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    words = [word for word, _ in Counter(w for t in texts for w in t.lower().split() if w.isalpha()).most_common(2000)]
    letters = sorted({letter for word in words for letter in word})
    pieces = dict.fromkeys([*special, *words, *letters, *(f"##{letter}" for letter in letters)])
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    torch.manual_seed(seed)
    sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
    config = {"vocab_size": len(pieces), "max_position_embeddings": 128, "pad_token_id": 0, **sizes}
    if kind == "bert":
        model = BertModel(BertConfig(**config))
    else:
        ends = {f"{name}_token_id": 2 for name in ("bos", "cls")} | {f"{name}_token_id": 3 for name in ("eos", "sep")}
        model = ModernBertModel(ModernBertConfig(**config, **ends, local_attention=16))
    # An untrained encoder knows words by chance alone: as far apart as they are, texts of the same words are alike.
    model.save_pretrained(folder, safe_serialization=True)
    Path(folder, "tokenizer.json").write_text(tokenizer.to_str())
    Path(folder, "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return str(folder)
