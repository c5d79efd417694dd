"""Base of the classifiers of sequences: from input to logits, and checks of checkpoints."""

import logging
from argparse import Namespace
from typing import Any, Dict, Iterable, List, Optional, Type, Union

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.models import BaseFairseqModel
from omegaconf import DictConfig
from torch import Tensor, nn

from fairseq_mega.modules.classifier_head import ClassifierHead, sentence_vector
from fairseq_mega.modules.classifier_inputs import RealNumberEmbedding, character_table
from fairseq_mega.modules.norm import build_norm
from fairseq_mega.modules.sequence_encoder import SequenceEncoder

from .checkpoints import SCALE, ReadsOlderCheckpoints
from .options.configurations import check_at_least, complete, naming_flags

logger = logging.getLogger(__name__)

SCALES = (None, "once", "twice")  # divisions of the samples by 32768, by the number in SCALE; 0: unknown
TASKS = "lra-text, lra-image or speech_commands"
OF_EVERY_CLASSIFIER: Dict[str, Dict[str, Any]] = {  # option of layers -> differences from the table of options
    "encoder_embed_dim": {"default": 128},
    "encoder_layers": {"default": 4},
    "normalize_before": {"alias": "--encoder-normalize-before"},
}
BOUNDS = {
    "encoder_layers": 1,
    "max_positions": 1,
    "sentence_class_num": 2,
    "classifier_layers": 0,
    "classifier_out_dim": 1,
}


def check_classifier(cfg: DictConfig, task: Any) -> None:
    """Raise a ValueError if options of a classifier are out of range or do not fit the task."""
    check_at_least(cfg, BOUNDS)
    expected = getattr(task, "input_type", None)
    if expected is None:
        raise ValueError(f"a classifier requires a task that classifies: give --task {TASKS}")
    if cfg.input_type is not None and str(cfg.input_type) != expected:
        raise ValueError(
            f"--input-type {cfg.input_type}: the data of this task have --input-type {expected}; omit --input-type, "
            f"or give another --arch or --task"
        )
    if expected == "image" and str(cfg.sen_rep_type) == "cls":
        raise ValueError("--sen-rep-type cls: real numbers have no <CLS> token; give --sen-rep-type mp")


def input_table(cfg: DictConfig, task: Any) -> nn.Module:
    """Return the embedding of the task's input: a table over its dictionary, or a linear map of real numbers."""
    if task.input_type == "image":
        return RealNumberEmbedding(cfg.encoder_embed_dim)
    return character_table(len(task.dictionary), cfg.encoder_embed_dim)


def padding_index(task: Any) -> Optional[int]:
    """Return the token that pads the task's input, or None for real numbers."""
    return None if task.input_type == "image" else task.dictionary.pad()


def encoder_of(
    cfg: DictConfig, task: Any, embedding: nn.Module, layers: Iterable[nn.Module], norm: str, chunk_size: int = -1
) -> SequenceEncoder:
    """Build an encoder with the options CLASSIFIER; pre-norm models get a final norm ``norm``."""
    final_norm = build_norm(norm, cfg.encoder_embed_dim) if cfg.normalize_before else None
    return SequenceEncoder(
        embedding, layers, final_norm, padding_index(task), chunk_size, cfg.checkpoint_activations, cfg.pad_batches
    )


def log_padding(encoder: SequenceEncoder) -> None:
    """Log why an encoder of texts computes padding in training, if it does and no option required it."""
    if encoder.padding_idx is not None and encoder.needs_padding is not None and not encoder.pad:
        logger.info(f"padding is computed in training, because {encoder.needs_padding}")


class SequenceClassifier(ReadsOlderCheckpoints, BaseFairseqModel):
    """Classifier of an encoder, the mean over positions or the first position, and a head.

    One encoder reads both documents of a pair.

    Args:
        cfg: a completed configuration with the options CLASSIFIER.
        task: has ``input_type``, the number of ``documents``, for text its ``dictionary``, and for speech the
            ``scaling`` of its samples.

    Attributes:
        options: dataclass of the model's options.

    Source: MEGA (Ma et al., ICLR 2023), section 4.1. The features of retrieval are those of the published code: the
    vectors of both documents, the second document first.
    """

    options: Type[FairseqDataclass]

    def __init__(self, cfg: DictConfig, task: Any) -> None:
        super().__init__()
        self.longest = int(cfg.max_positions)
        self.pooling = str(cfg.sen_rep_type)
        self.classes = int(cfg.sentence_class_num)
        self.documents = int(task.documents)
        self.encoder = self.build_encoder(cfg, task)
        log_padding(self.encoder)
        self.head = ClassifierHead(
            cfg.encoder_embed_dim * self.joined_vectors(),
            cfg.classifier_out_dim,
            cfg.classifier_layers,
            self.classes,
            str(cfg.classifier_activation_fn),
            cfg.dropout,
        )
        self.scaling = SCALES.index(getattr(task, "scaling", None))
        if hasattr(task, "scaling"):
            self.register_buffer(SCALE, torch.empty(1, dtype=torch.long))
        self.reset_parameters()

    @classmethod
    def build_model(cls, cfg: Union[DictConfig, Namespace], task: Any) -> "SequenceClassifier":
        """Build a model for a task that classifies.

        Raises:
            ValueError: where options are out of range or contradict each other or the task.
        """
        cfg = cls.complete(cfg)
        check_classifier(cfg, task)
        return cls(cfg, task)

    @classmethod
    def complete(cls, cfg: Union[DictConfig, Namespace]) -> DictConfig:
        """Fill a configuration of any origin; see :func:`fairseq_mega.models.options.configurations.complete`."""
        return complete(cls.options, cfg)

    def build_encoder(self, cfg: DictConfig, task: Any) -> SequenceEncoder:
        """Build the encoder, from the :func:`input_table` to the final norm."""
        raise NotImplementedError

    def reset_parameters(self) -> None:
        """Record the scale of the task's samples."""
        if hasattr(self, SCALE):
            self.get_buffer(SCALE).fill_(self.scaling)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        src1_tokens: Optional[Tensor] = None,
        src1_lengths: Optional[Tensor] = None,
    ) -> Tensor:
        """Logits of the classes.

        Args:
            src_tokens: (B, L) long tokens, padded on the right, or (B, L) or (B, L, 1) real numbers.
            src1_tokens: (B, M), the second documents in retrieval.
            src_lengths, src1_lengths: ignored.

        Returns:
            (B, classes).

        Raises:
            ValueError: if the model was built for another number of documents, or the length of real-valued input is
                not a multiple of the chunk.
        """
        documents = [src_tokens] if src1_tokens is None else [src1_tokens, src_tokens]
        if len(documents) != self.documents:
            raise ValueError(
                f"this classifier reads {self.documents} document(s) in an example, the data have {len(documents)}: "
                f"give data like those of its training (src1-bin holds second documents)"
            )
        return self.head(self.joined([self.represent(document) for document in documents]))

    def joined_vectors(self) -> int:
        """Return the width of :meth:`joined`, in multiples of d."""
        return self.documents

    def joined(self, vectors: List[Tensor]) -> Tensor:
        """Return the head's input from the vectors (B, d) of all documents, the second document first."""
        return torch.cat(vectors, dim=-1)

    @naming_flags("encoder", "max_positions")
    def represent(self, document: Tensor) -> Tensor:
        """Return the sentence vectors (B, d) of documents (B, L)."""
        x, padding_mask = self.encoder(document)
        return sentence_vector(x, padding_mask, self.pooling)

    def max_positions(self) -> int:
        """Longest input of the model."""
        return self.longest

    def upgrade_state_dict_named(self, state_dict: Dict[str, Tensor], name: str) -> None:
        """Fit an older checkpoint; raise ValueError if the data of its training had another scale."""
        super().upgrade_state_dict_named(state_dict, name)
        scale = self.state_dict().get(SCALE)
        if scale is not None:
            given, trained = (SCALES[int(number)] for number in (scale, state_dict.get(SCALE, scale)))
            if None not in (given, trained) and given != trained:
                raise ValueError(
                    f"this checkpoint was trained on samples divided by 32768 {trained}, the samples of the data "
                    f"folder are divided {given}: give the data of its training (fairseq-mega-prepare speech-commands "
                    f"--scaling {trained}), or another --save-dir"
                )
