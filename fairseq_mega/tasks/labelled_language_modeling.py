"""Language models on sequences with labels: recall, state tracking."""

import logging
from pathlib import Path
from typing import Any

from fairseq import utils
from fairseq.logging import metrics
from fairseq.tasks import register_task
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask

from fairseq_mega.data.labelled_tokens import LabelledTokens

logger = logging.getLogger(__name__)


@register_task("labelled_language_modeling", dataclass=LanguageModelingConfig)
class LabelledLanguageModelingTask(LanguageModelingTask):
    """Train and score a causal model on labels that the data have, see :class:`LabelledTokens`."""

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> LabelledTokens:
        """Load a split.

        Raises:
            FileNotFoundError, ValueError: as LabelledTokens.
        """
        folder = Path(utils.split_paths(self.args.data)[0])
        self.datasets[split] = dataset = LabelledTokens(str(folder / split), self.dictionary)
        logger.info(f"{split}: {len(dataset):,} examples of up to {max(dataset.sizes[0])} tokens")
        return dataset

    def reduce_metrics(self, logging_outputs: Any, criterion: Any) -> None:
        """Log as fairseq does; of a criterion with ``--report-accuracy`` also the counts as a text, "1802 of 2000"."""
        super().reduce_metrics(logging_outputs, criterion)
        if any("n_correct" in output for output in logging_outputs):
            metrics.log_derived("correct", lambda found: f"{found['n_correct'].sum:.0f} of {found['total'].sum:.0f}")
