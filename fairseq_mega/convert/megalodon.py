"""Convert consolidated checkpoints of XuezheMax/megalodon, of one or several tensor-parallel ranks, and back.

Token ids change between sentencepiece, which a published MEGALODON uses, and fairseq's dictionaries. sentencepiece: 0
unknown, 1 begin, 2 end, no padding. fairseq: 0 begin, 1 padding, 2 end, 3 unknown. Every other token n of sentencepiece
has the id n + 1 in fairseq. The dict.txt of a converted model lists the tokeniser's tokens from id 3 on.
"""

import argparse
import json
from pathlib import Path
from typing import Any, Dict, List

import torch
from torch import Tensor

from fairseq_mega.compat.files.loading import UnreadableFile, load
from fairseq_mega.compat.files.safetensors_files import no_history
from fairseq_mega.models.checkpoint_files import save

from .megalodon_names import FREQUENCIES, merge_ranks, to_ours, to_published
from .options import flat_options

CONFIGURATION, CONSOLIDATION = "config.json", "consolidate_config.json"
RANKS = "model_parallel_size"  # key of CONSOLIDATION
SYMBOLS = "symbols.json"  # third file, written here: the order of the tokens, and an option that only we have
OF_FAIRSEQ = "fairseq"  # the order of its dictionaries
TABLES = ("decoder.embedding.tokens.weight", "decoder.output_projection.weight")
OPTIONS = {  # published name -> ours
    "num_layers": "decoder_layers",
    "model_dim": "decoder_embed_dim",
    "z_dim": "decoder_z_dim",
    "value_dim": "decoder_hidden_dim",
    "num_heads": "decoder_attention_heads",
    "ffn_hidden_dim": "decoder_ffn_embed_dim",
    "cema_ndim": "decoder_n_dim",
    "chunk_size": "decoder_chunk_size",
    "init_mode": "init_mode",
    "norm_num_groups": "norm_num_groups",
    "rope_base": "rope_base",
    "dropout": "dropout",
    "hidden_dropout": "hidden_dropout",
    "attention_dropout": "attention_dropout",
    "swiglu": "swiglu",
    "rescale_nffn": "layer_scale",
    "scale_emb": "scale_embedding",
    "share_emb": "share_decoder_input_output_embed",
}
PUBLISHED_WINDOW = 6  # minimum number of chunks in the statistics of norms at test time
ROPE_BASE = 10000.0  # default
EPS = 1e-5  # of every norm
BEGIN, END, UNKNOWN = 1, 2, 0  # of sentencepiece
SPECIAL = 3  # tokens at the beginning of its vocabulary


def is_consolidated(folder: Path) -> bool:
    """Return whether a folder holds a consolidated checkpoint."""
    return (folder / CONSOLIDATION).is_file()


def is_megalodon(checkpoint: Any) -> bool:
    """Return whether the contents of a file are a checkpoint of this package's MEGALODON."""
    model = checkpoint.get("model") if isinstance(checkpoint, dict) else None
    return isinstance(model, dict) and any(name.endswith(".attention.ema.theta") for name in model)


def read_consolidated(folder: Path) -> Dict[str, Any]:
    """Read a consolidated checkpoint: its configuration (``config``) and the tensors of the whole model (``model``).

    Raises:
        OSError: if a file is missing.
        ValueError: if a file is damaged, or the ranks do not fit together.
    """
    config, consolidation = (read_json(folder / name) for name in (CONFIGURATION, CONSOLIDATION))
    count = consolidation[RANKS]
    names = ["consolidated.pth"] if count == 1 else (f"consolidated.{rank:02d}.pth" for rank in range(count))
    ranks: List[Dict[str, Tensor]] = [load_tensors(folder / name) for name in names]
    found = {"config": config, "consolidation": consolidation, "model": merge_ranks(ranks)}
    return {**found, "symbols": read_json(folder / SYMBOLS)} if (folder / SYMBOLS).is_file() else found


def convert_megalodon(published: Dict[str, Any], where: str) -> Dict[str, Any]:
    """Convert the result of :func:`read_consolidated` to this package's layout.

    Tokens get the ids of fairseq's dictionaries, see above. Padding, which the published
    model lacks, has no probability. A checkpoint with SYMBOLS has fairseq's ids already and keeps them.

    Raises:
        ValueError: if the configuration is not supported, or the table of tokens is missing.
    """
    given = published["config"].get("model")
    if not isinstance(given, dict):
        raise ValueError(f"--input {where}: {CONFIGURATION} has no part named model: give the whole checkpoint")
    if abs((EPS if given.get("norm_eps") is None else given["norm_eps"]) - EPS) > 1e-12:
        raise ValueError(f"--input {where}: norm_eps {given['norm_eps']} is not supported: give a model with {EPS}")
    table = published["model"].get("embed.weight")
    if table is None or table.dim() != 2:
        raise ValueError(f"--input {where}: the table of tokens embed.weight is missing: give the whole checkpoint")
    outputs, vocab_size = given.get("output_size", -1), table.size(0)
    if outputs not in (-1, None, vocab_size):
        raise ValueError(
            f"--input {where}: output_size {outputs} differs from the {vocab_size} tokens of the input: models of this "
            f"package predict the tokens that they read"
        )
    values = {ours: given[theirs] for theirs, ours in OPTIONS.items() if given.get(theirs) is not None}
    values["init_mode"] = "he" if values.get("init_mode") == "none" else values.get("init_mode", "he")
    values["no_affine_norm"] = not given.get("norm_affine", True)
    values["attention_drops"] = "weights" if given.get("efficient_attn") is None else "keys"
    values.update(arch="megalodon_lm", task="mega_language_modeling", criterion="cross_entropy")
    values["rope_base"] = values.get("rope_base", ROPE_BASE)
    model = to_ours(published["model"])
    if values.get("share_decoder_input_output_embed"):
        model.pop("decoder.output_projection.weight", None)
    values["statistics_window"] = published.get("symbols", {}).get("statistics_window", 0)
    if not has_fairseq_order(published):
        values["no_padding_logit"] = True
        model.update({name: our_rows(model[name]) for name in TABLES if name in model})
    options = argparse.Namespace(**values)
    return {"args": options, "model": model, "extra_state": {}, "optimizer_history": no_history()}


def our_rows(table: Tensor) -> Tensor:
    """Return a table (V, d) as (V + 1, d) in fairseq's order, with zeros for padding; raises ValueError."""
    if table.size(0) < SPECIAL:
        raise ValueError(f"the table has {table.size(0)} rows, at least the {SPECIAL} special tokens are required")
    return torch.cat([table[[BEGIN]], torch.zeros_like(table[:1]), table[[END, UNKNOWN]], table[SPECIAL:]])


def published_rows(table: Tensor) -> Tensor:
    """Return a table in sentencepiece's order, without padding: the inverse of :func:`our_rows`."""
    return torch.cat([table[[3, 0, 2]], table[SPECIAL + 1 :]])


def has_fairseq_order(published: Dict[str, Any]) -> bool:
    """Return whether tokens have the ids of fairseq's dictionaries in a published layout, which is then ours."""
    return published.get("symbols", {}).get("order") == OF_FAIRSEQ


def publish_megalodon(checkpoint: Dict[str, Any]) -> Dict[str, Any]:
    """Convert back, for one rank: the inverse of :func:`convert_megalodon`.

    Raises:
        ValueError: for a model that the published code cannot run.
    """
    options, model = flat_options(checkpoint), dict(checkpoint["model"])
    if "decoder_z_dim" not in options:
        arch = options.get("arch")
        raise ValueError(f"--arch {arch}: the published code has language models only; nothing was written")
    if TABLES[0] not in model:
        raise ValueError("--adaptive-input: the published code has one table for all tokens; nothing was written")
    if options.get("adaptive_softmax_cutoff"):
        raise ValueError(
            f"--adaptive-softmax-cutoff {options['adaptive_softmax_cutoff']}: the published code has one projection to "
            "all tokens; nothing was written"
        )
    if options.get("statistics_window", 0) not in (0, PUBLISHED_WINDOW):
        raise ValueError(
            f"--statistics-window {options['statistics_window']}: the published code always computes the statistics of "
            f"norms over the last {PUBLISHED_WINDOW} to {PUBLISHED_WINDOW + 2} chunks; nothing was written"
        )
    of_fairseq = not options.get("no_padding_logit")
    if not of_fairseq:
        model.update({name: published_rows(model[name]) for name in TABLES if name in model})
    z, v, d = (int(options[f"decoder_{width}_dim"]) for width in ("z", "hidden", "embed"))
    inner = int(options.get("decoder_ffn_embed_dim") or v)
    halves = [inner, inner] if options.get("swiglu") else [inner]
    gates = [z, v, d]
    widths = {f"attention.gate_proj.{part}": gates for part in ("weight", "bias")}
    widths["feed_forward.input_proj.weight"] = halves
    shared = bool(options.get("share_decoder_input_output_embed"))
    published = to_published(model, widths, shared)
    groups = int(options.get("norm_num_groups", 32))
    for name in [name for name in published if name.endswith(("timenorm.weight", "final_norm.weight"))]:
        prefix = name[: -len("weight")]
        published[f"{prefix}prior_count"] = torch.tensor(0)
        published.update({f"{prefix}{prior}": torch.zeros(groups) for prior in ("prior_mean", "prior_logv")})
    width, base = z // int(options.get("decoder_attention_heads", 1)), float(options.get("rope_base") or ROPE_BASE)
    published[FREQUENCIES] = 1.0 / torch.tensor([base ** (j / width) for j in range(0, width, 2)])
    config = {theirs: options[ours] for theirs, ours in OPTIONS.items() if options.get(ours) is not None}
    config.update(ffn_hidden_dim=inner, vocab_size=published["embed.weight"].size(0), norm_eps=EPS)
    config["norm_affine"] = not options.get("no_affine_norm", False)
    config["efficient_attn"] = "swift" if options.get("attention_drops", "keys") == "keys" else None
    found = {"config": {"model": config}, "consolidation": {}, "model": published}
    ours_alone = {"order": OF_FAIRSEQ} if of_fairseq else {}
    if options.get("statistics_window"):
        ours_alone["statistics_window"] = options["statistics_window"]
    return {**found, "symbols": ours_alone} if ours_alone else found


def save_consolidated(published: Dict[str, Any], folder: Path) -> None:
    """Write a consolidated checkpoint of one rank into a folder, the tensors last."""
    kinds = {str(tensor.dtype) for tensor in published["model"].values() if tensor.is_floating_point()}
    kind = {"torch.bfloat16": "bf16", "torch.float16": "fp16"}.get(min(kinds), "fp32")
    consolidation = {"model_parallel_size": 1, "dtype": kind}
    parts = {CONFIGURATION: published["config"], CONSOLIDATION: consolidation}
    parts.update({SYMBOLS: published["symbols"]} if "symbols" in published else {})
    for name, part in parts.items():
        (folder / name).write_text(json.dumps(part, indent=1) + "\n", encoding="utf-8")
    save(published["model"], folder / "consolidated.pth")


def load_tensors(path: Path) -> Dict[str, Tensor]:
    """Read a dictionary of tensors from a file of torch.save; raises OSError, and UnreadableFile for other contents."""
    found = load(path, "cpu")
    if not isinstance(found, dict) or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise UnreadableFile(f"{path} does not hold a dictionary of tensors")
    return found


def read_json(path: Path) -> Dict[str, Any]:
    """Read a JSON object; raises OSError, and UnreadableFile for other contents."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UnreadableFile(f"{path} is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise UnreadableFile(f"{path} does not hold a JSON object")
    return found
