"""MEGA and Transformer language models of equal size, with random weights, for benchmarks of speed."""

from argparse import Namespace
from types import SimpleNamespace
from typing import Any, Dict, List

from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_mega.lab.benchmarks.megalodon_lm import llama_options, megalodon_options
from fairseq_mega.models.decode_weights import pack_weights
from fairseq_mega.modules.packed_linear import PackedLinear
from fairseq_mega.ops.packed_linear import KINDS

MODELS = ("mega", "mega-full", "transformer")
PACKED = {f"{name}-{kind}": (name, kind) for name in ("mega", "megalodon") for kind in KINDS}
OTHERS = (*PACKED, "megalodon", "llama")  # measured on request only


def build(name: str, width: int, layers: int, chunk: int, symbols: int, longest: int, tied: bool = True) -> Any:
    """Build a model with plain tables, without dropout.

    Args:
        name: "mega" or "megalodon" with chunks (followed by "-bf16" or "-int8" for packed matrices), "mega-full" with
            full attention, or "transformer" (fairseq's transformer_lm) and "llama" (the Llama-style model), whose FFN
            makes the layers equal in parameters.
        width: d; MEGA's v and inner FFN width are 2 d, its z is d / 2, N = 16; the Transformers have d / 32 heads.
        layers: number of layers.
        chunk: of "mega".
        symbols: V.
        longest: positions.
        tied: whether embedding and output share a table.

    Returns:
        A fairseq language model.
    """
    if name in PACKED:
        plain, kind = PACKED[name]
        model = build(plain, width, layers, chunk, symbols, longest, tied)
        pack_weights(model, kind)
        return model
    task = task_of(symbols)
    options: Dict[str, Any] = {"decoder_embed_dim": width, "decoder_layers": layers, "dropout": 0.0}
    options.update(share_decoder_input_output_embed=tied, max_target_positions=longest, tokens_per_sample=longest)
    if name == "transformer":
        options.update(
            decoder_ffn_embed_dim=(mega_layer(width) - 4 * width * (width + 1) - 5 * width) // (2 * width + 1),
            decoder_attention_heads=max(1, width // 32),
            decoder_input_dim=width,
            decoder_output_dim=width,
            decoder_normalize_before=True,
            attention_dropout=0.0,
        )
        return ARCH_MODEL_REGISTRY["transformer_lm"].build_model(_transformer_options(options), task)
    if name in ("megalodon", "llama"):
        options.update(
            megalodon_options(width, chunk) if name == "megalodon" else llama_options(width, mega_layer(width))
        )
        return ARCH_MODEL_REGISTRY[f"{name}_lm"].build_model(Namespace(**options), task)
    options.update(
        decoder_hidden_dim=2 * width,
        decoder_z_dim=width // 2,
        decoder_n_dim=16,
        decoder_chunk_size=-1 if name == "mega-full" else chunk,
        normalize_before=True,
        no_affine_final_norm=True,
        rel_pos_bias="rotary",
    )
    return ARCH_MODEL_REGISTRY["mega_lm"].build_model(Namespace(**options), task)


def layer_parameters(model: Any) -> int:
    """Parameters outside the embedding, packed ones included."""
    packed = [part for part in model.decoder.layers.modules() if isinstance(part, PackedLinear)]
    learned = sum(parameter.numel() for parameter in model.decoder.layers.parameters())
    return learned + sum(part.data.numel() + (0 if part.bias is None else part.bias.numel()) for part in packed)


def task_of(symbols: int) -> Any:
    """Return a stand-in for the task of a model: a namespace with a dictionary of this size."""
    dictionary = Dictionary()
    for number in range(symbols - len(dictionary)):
        dictionary.add_symbol(f"w{number}")
    return SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary, dictionary=dictionary)


def mega_layer(width: int) -> int:
    """Parameters of MEGA's layer."""
    d, v, z, n = width, 2 * width, width // 2, 16
    return 4 * d * n + 3 * d + (d + 1) * (2 * d + z + 2 * v) + (v + 1) * d + 6 * z + 2 * d * v + v + 3 * d


def _transformer_options(options: Any) -> Any:
    """Return fairseq's defaults for a Transformer language model, changed by ``options``."""
    from fairseq.models.transformer_lm import TransformerLanguageModelConfig
    from omegaconf import OmegaConf

    base = OmegaConf.structured(TransformerLanguageModelConfig)
    interpolated: List[str] = [key for key in base if OmegaConf.is_interpolation(base, key)]
    known = {"add_bos_token": False, "tpu": False}
    return OmegaConf.merge(base, {**{key: known.get(key) for key in interpolated}, **options})
