"""MEGA language model (MEGA, Ma et al., ICLR 2023, section 4.3 and Table 9)."""

from argparse import Namespace
from typing import Any, Callable, Dict, Type, Union

from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from fairseq.models import FairseqLanguageModel, register_model
from omegaconf import DictConfig
from torch import Tensor

from fairseq_mega.compat import checks

from .checkpoints import ReadsOlderCheckpoints
from .decode_weights import DecodesPacked
from .decoder import LanguageModelDecoder, mega_layers
from .options.configurations import check_at_least, check_embedding_norm, complete, layer_config
from .options.option import Option, Role, of_side, with_options
from .options.table import DOCUMENTS, LANGUAGE_MODEL, MEGA
from .tables import check_tables, decoder_table, token_embedding


@with_options(
    *of_side("decoder", MEGA),
    Option("no_affine_final_norm", bool, False, Role.TENSORS, "final norm without parameters"),
    *LANGUAGE_MODEL,
    DOCUMENTS,
)
class MegaLanguageModelConfig:
    """Command-line options of ``--arch mega_lm``, named as in the published code."""


class MegaLanguageModelDecoder(LanguageModelDecoder):
    """Causal MEGA layers between the tables of a language model.

    Args:
        cfg: a completed MegaLanguageModelConfig.
        dictionary: of the tokens.
    """

    def __init__(self, cfg: DictConfig, dictionary: Dictionary) -> None:
        config = layer_config(cfg, "decoder", "max_target_positions")
        width = config.embed_dim
        embedding = token_embedding(cfg, decoder_table(cfg, dictionary, cfg.decoder_input_dim or width, width), width)
        layers = mega_layers(config, cfg.decoder_layers, not cfg.no_affine_final_norm)
        unlimited = config.chunk_size > 0 or config.relative_bias == "rotary"
        super().__init__(cfg, dictionary, embedding, *layers, None if unlimited else cfg.max_target_positions)


@register_model("mega_lm", dataclass=MegaLanguageModelConfig)
class MegaLanguageModel(ReadsOlderCheckpoints, DecodesPacked, FairseqLanguageModel):
    """MEGA language model: ``--arch mega_lm`` and its presets, ``preset_names("mega_lm")``.

    The model reads streams of any length in pieces of any length, see :class:`LanguageModelDecoder`.
    """

    options: Type[FairseqDataclass] = MegaLanguageModelConfig
    decoder_class: Callable[[DictConfig, Dictionary], LanguageModelDecoder] = MegaLanguageModelDecoder

    @classmethod
    def build_model(cls, cfg: Union[DictConfig, Namespace], task: Any) -> "MegaLanguageModel":
        """Build a model for a language modelling task.

        Raises:
            ValueError: where options are out of range or contradict each other or the dictionary.
        """
        if len(task.source_dictionary) != len(task.target_dictionary):
            raise ValueError(
                "--output-dictionary-size: a MEGA language model reads and predicts the same tokens; omit it"
            )
        return cls(cls.decoder_class(cls.complete(cfg), task.source_dictionary))

    @classmethod
    def complete(cls, cfg: Union[DictConfig, Namespace]) -> DictConfig:
        """Fill and check a configuration of any origin.

        Raises:
            ValueError: where options are out of range or contradict each other.
        """
        completed = complete(cls.options, cfg)
        given = vars(cfg) if isinstance(cfg, Namespace) else cfg
        if given.get("max_target_positions") is None:
            completed.max_target_positions = given.get("tokens_per_sample") or completed.max_target_positions
        check_at_least(completed, {"decoder_layers": 1, "late_dropout": 0})
        check_tables(completed)
        if "normalize_embedding" in completed:
            check_embedding_norm(completed)
        return completed

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """Load a checkpoint to generate text; accept fairseq's arguments and ``decode_weights``.

        Returns:
            A :class:`fairseq_mega.models.streams.generator.TextGenerator`.

        Raises:
            OSError: if a file is missing.
            ValueError: if the file is not a checkpoint of this model, or holds more than tensors and plain values.
        """
        from .streams.generator import TextGenerator

        hub = super().from_pretrained(*args, **kwargs)
        checks.require_models(hub.models, cls)
        return TextGenerator(hub.cfg, hub.task, hub.models)

    def upgrade_state_dict_named(self, state_dict: Dict[str, Tensor], name: str) -> None:
        """Fit an older checkpoint, or the simple bias of a longer chunk.

        Raises:
            ValueError: if the simple bias is too short for the chunk.
        """
        super().upgrade_state_dict_named(state_dict, name)
        own = self.state_dict()
        for key in own:
            if not key.endswith("relative_bias.weight") or key not in state_dict:
                continue
            trained, needed = state_dict[key].numel(), own[key].numel()
            if trained < needed:
                raise ValueError(
                    f"a chunk of {(needed + 1) // 2} is longer than the {(trained + 1) // 2} positions of this "
                    f"checkpoint's simple relative bias: give a chunk of at most {(trained + 1) // 2} "
                    f"(--test-chunk-size, decoder_chunk_size in --model-overrides), or train with --rel-pos-bias rotary"
                )
            rest = (trained - needed) // 2
            state_dict[key] = state_dict[key][rest : rest + needed]
