"""Tables between tokens and vectors: plain tables, random or read from a file, and adaptive tables."""

import logging
from functools import partial
from typing import Any, Dict, List, Optional, Tuple

import torch
from fairseq import modules, utils
from fairseq.data import Dictionary
from fairseq.modules.adaptive_softmax import TiedLinear
from omegaconf import DictConfig
from torch import Tensor, nn

from fairseq_mega.modules.drawn import PlainLinear, Table, adopt, draw_tokens
from fairseq_mega.modules.embedding import TokenEmbedding, token_table

logger = logging.getLogger(__name__)


def check_tables(cfg: DictConfig) -> None:
    """Raise a ValueError if options of the tables of a completed configuration contradict each other."""
    adaptive_softmax = cfg.adaptive_softmax_cutoff is not None
    if cfg.adaptive_input and cfg.decoder_embed_path:
        raise ValueError("--decoder-embed-path fills one plain table: omit --adaptive-input or --decoder-embed-path")
    if cfg.tie_adaptive_weights and not (cfg.adaptive_input and adaptive_softmax):
        raise ValueError("--tie-adaptive-weights requires --adaptive-input and --adaptive-softmax-cutoff: give both")
    if cfg.tie_adaptive_proj and not cfg.tie_adaptive_weights:
        raise ValueError("--tie-adaptive-proj requires --tie-adaptive-weights: give both, or omit it")
    if cfg.share_decoder_input_output_embed and (cfg.adaptive_input or adaptive_softmax):
        raise ValueError(
            "--share-decoder-input-output-embed shares one plain table: with --adaptive-input and "
            "--adaptive-softmax-cutoff give --tie-adaptive-weights instead"
        )
    if cfg.tie_adaptive_weights:
        for option in ("cutoff", "factor"):
            tables, softmax = cfg[f"adaptive_input_{option}"], cfg[f"adaptive_softmax_{option}"]
            if tables is not None and tables != softmax:
                raise ValueError(
                    f"--tie-adaptive-weights requires equal bands: --adaptive-input-{option} is {tables}, "
                    f"--adaptive-softmax-{option} is {softmax}"
                )


def band_ends(option: str, value: str, vocab_size: int) -> List[int]:
    """Parse a comma-separated list of the ends of bands of an adaptive input or softmax.

    Raises:
        ValueError: if the ends do not increase, or exceed the dictionary of ``vocab_size`` tokens.
    """
    try:
        ends = [int(part) for part in value.split(",")]
    except ValueError:
        ends = []
    if not ends or ends[0] < 1 or any(low >= high for low, high in zip(ends, ends[1:])):
        raise ValueError(f"{option} {value}: give increasing numbers of tokens, for example 20000,60000")
    if ends[-1] >= vocab_size:
        raise ValueError(f"{option} {value}: the dictionary has only {vocab_size} tokens; give smaller numbers")
    return ends


class AdaptiveEmbedding(modules.AdaptiveInput):
    """fairseq's adaptive input, usable under autocast and without uninitialized memory in checkpoints."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        for part in list(self.modules()):
            if isinstance(part, nn.Embedding):  # a row of every band is zero, as fairseq draws them
                normal = partial(nn.init.normal_, std=part.embedding_dim**-0.5)
                adopt(part, partial(draw_tokens, draw=normal, padding=self.padding_idx))
            elif isinstance(part, nn.Linear):
                adopt(part, nn.init.xavier_uniform_)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Fill the buffer; the tables draw their values themselves."""
        self._float_tensor.zero_()

    def forward(self, input: Tensor) -> Tensor:
        with torch.autocast(input.device.type, enabled=False):
            return super().forward(input)


class AdaptiveSoftmax(modules.AdaptiveSoftmax):  # options of fairseq know it by this name
    """fairseq's adaptive softmax, without uninitialized memory in checkpoints.

    Args:
        args: as fairseq orders them.
        tied: the adaptive input whose tables it shares, or None.
        tied_projections: whether it shares the projections, too.
    """

    def __init__(self, *args: Any, tied: Optional[nn.Module], tied_projections: bool) -> None:
        super().__init__(*args, tied, tied_projections)
        tables = [] if tied is None else [part for part in tied.modules() if hasattr(part, "weight")]
        owners = {id(part.weight): part for part in tables}
        self.ties: List[Tuple[nn.Module, nn.Module]] = []  # parts that share a matrix, and the parts that own it
        for part in list(self.modules()):
            if isinstance(part, nn.Linear):
                adopt(part, nn.init.xavier_uniform_)
            elif isinstance(part, TiedLinear):
                self.ties.append((part, owners[id(part.weight)]))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Fill the buffers and share the matrices again, which ``to_empty`` parts; their owners draw them."""
        for part, owner in self.ties:
            part.weight = owner.weight
        self.version.fill_(1)
        for name, buffer in self.named_buffers():
            if name.endswith("_float_tensor"):
                buffer.zero_()

    def upgrade_state_dict_named(self, state_dict: Dict[str, Tensor], name: str) -> None:
        """Do nothing: fairseq refuses a checkpoint without its version, as a part of a checkpoint may be."""


def decoder_table(cfg: DictConfig, dictionary: Dictionary, first: int, width: int) -> nn.Module:
    """Build the input table of a decoder: adaptive with ``--adaptive-input``, else plain.

    Args:
        cfg: a completed configuration that ``check_tables`` accepts.
        dictionary: dictionary of the tokens.
        first: width of a plain table, or of the first band of an adaptive table.
        width: d, to which an adaptive table projects.

    Raises:
        ValueError: if bands do not fit the dictionary, or a file of embeddings does not fit the table.
    """
    if not cfg.adaptive_input:
        return plain_table(dictionary, first, cfg.decoder_embed_path, "--decoder-embed-path")
    ends = cfg.adaptive_input_cutoff or cfg.adaptive_softmax_cutoff
    if ends is None:
        raise ValueError("--adaptive-input requires --adaptive-input-cutoff or --adaptive-softmax-cutoff: give one")
    cutoff = band_ends("--adaptive-input-cutoff", ends, len(dictionary))
    return AdaptiveEmbedding(len(dictionary), dictionary.pad(), first, cfg.adaptive_input_factor, width, cutoff)


def adaptive_softmax(
    cfg: DictConfig, dictionary: Dictionary, width: int, tokens: nn.Module
) -> Optional[AdaptiveSoftmax]:
    """Build the adaptive softmax of features (..., d); None without ``--adaptive-softmax-cutoff``.

    ``tokens`` is the decoder's input table, for ``--tie-adaptive-weights``.

    Raises:
        ValueError: if bands do not fit the dictionary.
    """
    if cfg.adaptive_softmax_cutoff is None:
        return None
    return AdaptiveSoftmax(
        len(dictionary),
        width,
        band_ends("--adaptive-softmax-cutoff", cfg.adaptive_softmax_cutoff, len(dictionary)),
        cfg.adaptive_softmax_dropout,
        cfg.adaptive_softmax_factor,
        tied=tokens if cfg.tie_adaptive_weights else None,
        tied_projections=cfg.tie_adaptive_proj,
    )


def output_projection(width: int, vocab_size: int) -> PlainLinear:
    """Build the matrix of an output layer (vocab_size, width), drawn from Normal(0, width^-0.5)."""
    return PlainLinear(width, vocab_size, bias=False).drawn(partial(nn.init.normal_, std=width**-0.5))


def plain_table(dictionary: Dictionary, width: int, path: Optional[str] = None, option: str = "") -> Table:
    """Build an embedding table (V, width) from Normal(0, width^-0.5) with a zero row for padding, or from a file.

    Args:
        dictionary: dictionary of the tokens.
        width: width of the table.
        path: text file with a line for each token, "SYMBOL NUMBER NUMBER ...", and optionally a first line "LINES
            WIDTH"; the rows of other tokens stay random.
        option: option of the path, for messages.

    Raises:
        FileNotFoundError: if the file does not exist.
        ValueError: if the file has another format or width, or none of the tokens.
    """
    table = token_table(len(dictionary), width, dictionary.pad())
    if not path:
        return table
    try:
        vectors = {**utils.parse_embedding(path), **_first_vector(path)}
    except (ValueError, StopIteration) as error:
        raise ValueError(f"{option} {path}: every line must have a token and {width} numbers ({error})") from error
    known = [token for token in dictionary.symbols if token in vectors]
    if not known:
        raise ValueError(f"{option} {path}: none of its {len(vectors)} tokens is in the dictionary; give another file")
    for token in known:
        if vectors[token].numel() != width:
            raise ValueError(
                f"{option} {path}: the vector of {token!r} has {vectors[token].numel()} numbers, the table is "
                f"{width} wide: give an embedding dimension of {vectors[token].numel()}, or another file"
            )
    logger.info(
        f"{option} {path}: read vectors of {len(known):,} of the dictionary's {len(dictionary):,} tokens; the other "
        f"vectors keep their random initialization"
    )
    return utils.load_embedding(vectors, dictionary, table)


def _first_vector(path: str) -> Dict[str, Tensor]:
    """Return the vector in the first line of a text of vectors, which fairseq skips; empty for "LINES WIDTH".

    Raises:
        ValueError: if the first line is neither.
    """
    with open(path, encoding="utf-8") as file:
        token, *numbers = file.readline().rstrip().split(" ")
    return {token: torch.tensor([float(number) for number in numbers])} if len(numbers) > 1 else {}


def token_embedding(cfg: DictConfig, tokens: nn.Module, width: int, types: int = 0) -> TokenEmbedding:
    """Build the input embeddings (B, L, width) of an encoder or decoder; ``types``: see TokenEmbedding."""
    norm = str(cfg.normalization_type) if cfg.normalize_embedding else None
    return TokenEmbedding(tokens, cfg.dropout, not cfg.no_scale_embedding, norm, width, types)
