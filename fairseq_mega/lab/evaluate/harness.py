"""Language models of this package in lm-evaluation-harness."""

import itertools
import os
from pathlib import Path
from typing import Any, Iterable, Iterator, List, Optional, Sequence, Tuple

import torch
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from tqdm import tqdm

from fairseq_mega.models.mega_lm import MegaLanguageModel
from fairseq_mega.models.streams.scoring import ScoredTokens, score_tokens
from fairseq_mega.modules.state import StreamState

LONGEST_ANSWER = 256  # tokens of an answer, unless a task sets the number


@register_model("fairseq_mega")
class HarnessModel(LM):
    """A language model of this package. It reads texts of any length one after the other, each with carried memory.

    Args:
        path: checkpoint.
        data: folder with the dictionary and other files that the text's unit needs.
        device: of torch; None: cuda where there is a GPU.
        batch_size, max_batch_size: arguments of the harness, without effect: texts are read one after the other.
        overrides: of the checkpoint's options, for instance ``test_chunk_size``, and ``decode_weights``.

    Raises:
        OSError: if a file is missing.
        ValueError: if the file is not a checkpoint of a language model of this package, or an option is unknown.
    """

    def __init__(
        self,
        path: str,
        data: str,
        device: Optional[str] = None,
        batch_size: Any = 1,
        max_batch_size: Any = None,
        **overrides: Any,
    ) -> None:
        super().__init__()
        file = Path(path)
        self._device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        hub = MegaLanguageModel.from_pretrained(str(file.parent), file.name, os.path.abspath(data), **overrides)
        self.hub = hub.to(self._device).eval()
        (self.model,) = self.hub.models

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> List[Tuple[float, bool]]:
        """Return each continuation's log probability, and whether it is the likeliest; read a shared context once."""
        found: List[Tuple[float, bool]] = []
        with tqdm(total=len(requests), disable=disable_tqdm, desc="log-likelihoods") as bar:
            for context, group in itertools.groupby((request.args for request in requests), lambda pair: pair[0]):
                texts = [context + continuation for _, continuation in group]
                for scored in self.after(context, texts):
                    found.append((float(scored.log_probs.sum()), bool(scored.greedy.all())))
                    bar.update()
        return found

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> List[float]:
        """Return the log probability of each text, which begins with ``</s>``."""
        bar = tqdm(requests, disable=disable_tqdm, desc="log-likelihoods of texts")
        return [float(self.score(self.hub.tokens_of(request.args[0])).log_probs.sum()) for request in bar]

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> List[str]:
        """Return the text after each context, up to and without the first of the texts in ``until``."""
        bar = tqdm(requests, disable=disable_tqdm, desc="texts")
        return [self.answer(*request.args) for request in bar]

    def after(self, context: str, texts: Sequence[str]) -> Iterator[ScoredTokens]:
        """Score texts that begin with a context, after the tokens that they share with the context.

        A token that spans the end of the context and the beginning of the continuation counts as the continuation's.
        """
        known, wholes = self.hub.tokens_of(context), [self.hub.tokens_of(text) for text in texts]
        shared = max(min(common_beginning(known, whole) for whole in wholes), 1)
        state = self.score(known[:shared]).state
        for whole in wholes:
            begin = common_beginning(known, whole)
            scored = self.score(whole[shared - 1 :], state)
            yield scored._replace(log_probs=scored.log_probs[begin - shared :], greedy=scored.greedy[begin - shared :])

    def score(self, tokens: Sequence[int], state: Optional[StreamState] = None) -> ScoredTokens:
        """Score each token but the first, given those before it and a state before them."""
        return score_tokens(self.model, tokens, state, self.hub.excluded)

    def answer(self, context: str, options: Any) -> str:
        """Continue a context with the harness's options of generation; a model of documents ends with its document.

        Raises:
            ValueError: for a number of beams.
        """
        if options.get("num_beams", 1) != 1:
            raise ValueError(f"num_beams {options['num_beams']}: answers are drawn or likeliest tokens; omit it")
        drawn = options.get("do_sample", False)
        until = options.get("until") or []
        stops = [until] if isinstance(until, str) else list(until)
        tokens = self.hub.stream(
            self.hub.tokens_of(context),
            temperature=float(options.get("temperature", 1.0)) if drawn else 0.0,
            top_k=int(options.get("top_k", 0)) if drawn else 0,
            top_p=float(options.get("top_p", 1.0)) if drawn else 1.0,
        )
        if not self.hub.parts_lines:
            tokens = itertools.takewhile(self.hub.task.source_dictionary.eos().__ne__, tokens)  # to its document's end
        longest = int(options.get("max_gen_toks", LONGEST_ANSWER))
        return up_to(self.hub.text_of(itertools.islice(tokens, longest), context), stops)


def common_beginning(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the number of equal tokens at the beginning of both."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other)))


def up_to(pieces: Iterable[str], stops: Sequence[str]) -> str:
    """Join pieces of a text, up to the first of the stops in it."""
    text = ""
    for piece in pieces:
        text += piece
        ends = [text.find(stop) for stop in stops if stop and stop in text]
        if ends:
            return text[: min(ends)]
    return text
