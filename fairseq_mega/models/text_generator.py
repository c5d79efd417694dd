"""Generate text with a trained language model: bounded memory and time per token, however long the text gets."""

import math
from itertools import islice, takewhile
from typing import Any, Iterable, Iterator, List, Optional, Sequence, Union, overload

import torch
from fairseq.hub_utils import GeneratorHubInterface
from torch import Tensor

from fairseq_mega.compat.patches.interactive import tell_unknown
from fairseq_mega.data.text_units import LINE_END, TextUnit, is_made_up
from fairseq_mega.modules.state import StreamState

PREFILL = 4096  # tokens of a prompt that one call reads where the model has no chunks


class TextGenerator(GeneratorHubInterface):
    """The result of ``MegaLanguageModel.from_pretrained``: fairseq's interface, and streaming generation.

    Text goes in and out whatever the tokens are, see :mod:`fairseq_mega.data.text_units`. Several models vote with the
    mean of their probabilities.
    """

    def __init__(self, cfg: Any, task: Any, models: Sequence[Any]) -> None:
        super().__init__(cfg, task, models)
        self.bpe = task.build_bpe(cfg.bpe)
        dictionary = task.source_dictionary
        made_up = [number for number, symbol in enumerate(dictionary.symbols) if is_made_up(symbol)]
        self.excluded = [dictionary.pad(), dictionary.bos(), *made_up]  # no text holds them

    def complete(
        self,
        prompt: str = "",
        max_tokens: int = 100,
        *,
        stop_at_line_end: bool = False,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: Optional[int] = None,
    ) -> str:
        """Continue a text.

        Args:
            prompt: the text so far, of any length; lines end in ``</s>`` as in the training text, unless that ends
                documents.
            max_tokens: tokens to generate at most.
            stop_at_line_end: stop before the first line end or ``</s>``.
            temperature, top_k, top_p: see :func:`draw`.
            seed: of the sampling; None: torch's global generator.

        Returns:
            The new text, which read after the prompt makes the whole; a line for each ``</s>``. Where it ends within
            a character, that is left out.

        Raises:
            ValueError: if max_tokens is negative, or as in :meth:`stream`.
        """
        if max_tokens < 0:
            raise ValueError(f"max_tokens {max_tokens}: give a number of tokens, 0 or more")
        generator = None if seed is None else torch.Generator(self.device).manual_seed(seed)
        tokens: Iterator[int] = self.stream(
            self.tokens_of(prompt), temperature=temperature, top_k=top_k, top_p=top_p, generator=generator
        )
        found: Iterable[int] = islice(tokens, max_tokens)
        if stop_at_line_end:
            found = takewhile(lambda token: token != self.task.source_dictionary.eos(), found)
            return "".join(first_line(self.text_of(found, prompt)))
        return "".join(self.text_of(found, prompt))

    @property
    def parts_lines(self) -> bool:
        """Whether ``</s>`` ends the lines of a text; else documents."""
        return not isinstance(self.bpe, TextUnit) or self.bpe.parts_lines

    def tokens_of(self, text: str) -> List[int]:
        """Tokens of a text that may go on: ``</s>`` in front, and for the end of each line but the last.

        Where ``</s>`` ends documents, the text is one that goes on. Symbols that the model does not know are told.
        """
        dictionary = self.task.source_dictionary
        lines = text.split("\n") if self.parts_lines else [text]
        tokens = [dictionary.eos()]
        for number, line in enumerate(lines):
            ended = number + 1 < len(lines)
            symbols = self.apply_bpe(self.tokenize(line))
            tokens += dictionary.encode_line(symbols, append_eos=ended, add_if_not_exist=False).tolist()
        tell_unknown(text, torch.tensor(tokens), dictionary)
        return tokens

    def text_of(self, tokens: Iterable[int], before: str = "") -> Iterator[str]:
        """The text of tokens as they come: whole words or characters where the unit allows it, lines otherwise.

        Args:
            tokens: any number of them.
            before: the text that they continue.
        """
        dictionary = self.task.source_dictionary
        symbols = (LINE_END if token == dictionary.eos() else dictionary[token] for token in tokens)
        if isinstance(self.bpe, TextUnit) and self.tokenizer is None:
            yield from self.bpe.pieces(symbols, before.rpartition("\n")[2])
            return
        line: List[str] = []  # other encoders, given with --bpe or --tokenizer, decode lines
        for symbol in symbols:
            if symbol == LINE_END:
                yield self.detokenize(self.remove_bpe(" ".join(line))) + LINE_END
                line = []
            else:
                line.append(symbol)
        yield self.detokenize(self.remove_bpe(" ".join(line)))

    @overload
    def stream(
        self,
        prompt: str,
        *,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        generator: Optional[torch.Generator] = None,
    ) -> Iterator[str]: ...

    @overload
    def stream(
        self,
        prompt: Sequence[int],
        *,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        generator: Optional[torch.Generator] = None,
    ) -> Iterator[int]: ...

    def stream(
        self,
        prompt: Union[str, Sequence[int]],
        *,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        generator: Optional[torch.Generator] = None,
    ) -> Union[Iterator[str], Iterator[int]]:
        """Continue ``prompt`` without end, one token at a time: a text by pieces of text, tokens by tokens.

        A piece is the text of one token; the first bytes of a character give an empty piece each, its last one the
        character.

        Args:
            prompt: a text, or tokens, one at least (``</s>`` begins a text); read chunk by chunk.
            temperature, top_k, top_p, generator: see :func:`draw`.

        Raises:
            ValueError: if there is no token to begin with, or tokens or sampling options are out of range.
        """
        if isinstance(prompt, str):
            tokens = self._stream_tokens(self.tokens_of(prompt), temperature, top_k, top_p, generator)
            return self.text_of(tokens, prompt)
        return self._stream_tokens(prompt, temperature, top_k, top_p, generator)

    @torch.no_grad()
    def _stream_tokens(
        self,
        prompt: Sequence[int],
        temperature: float,
        top_k: int,
        top_p: float,
        generator: Optional[torch.Generator],
    ) -> Iterator[int]:
        if len(prompt) == 0:
            raise ValueError("prompt: one token at least is needed, for instance </s> at the beginning of a text")
        symbols = len(self.task.source_dictionary)
        if not 0 <= min(prompt) <= max(prompt) < symbols:
            raise ValueError(f"prompt: tokens are numbers below {symbols}, found {min(prompt)} to {max(prompt)}")
        check_sampling(temperature, top_k, top_p)
        states: List[Optional[StreamState]] = [None] * len(self.models)
        unread = torch.tensor([list(prompt)], device=self.device)
        while True:
            scores = []
            for index, model in enumerate(self.models):
                model.eval()
                piece = model.decoder.chunk_size if model.decoder.chunk_size > 0 else PREFILL
                for tokens in unread.split(piece, dim=1):
                    log_probs, states[index] = model.decoder.advance(tokens, states[index])
                scores.append(log_probs)
            mean = torch.logsumexp(torch.stack(scores), dim=0) - math.log(len(scores))
            mean[:, self.excluded] = -math.inf
            unread = draw(mean, temperature, top_k, top_p, generator).unsqueeze(1)
            yield int(unread)


def first_line(pieces: Iterable[str]) -> Iterator[str]:
    """Pieces of a text up to its first line end, which is left out."""
    for piece in pieces:
        line, end, _ = piece.partition("\n")
        yield line
        if end:
            return


def check_sampling(temperature: float, top_k: int, top_p: float) -> None:
    """Raise a ValueError, naming the option, where one of :func:`draw` is out of range."""
    if not (temperature >= 0.0 and math.isfinite(temperature)):
        raise ValueError(f"temperature {temperature}: give 0 for the likeliest token, or a positive number")
    if top_k < 0:
        raise ValueError(f"top_k {top_k}: give 0 for no limit, or a number of tokens")
    if not 0.0 < top_p <= 1.0:
        raise ValueError(f"top_p {top_p}: give a probability in (0, 1]")


def draw(
    log_probs: Tensor,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    generator: Optional[torch.Generator] = None,
) -> Tensor:
    """Draw the next token of each row.

    Args:
        log_probs: (B, V) float.
        temperature: divides the log probabilities; 0 takes the likeliest token.
        top_k: only this many likeliest tokens, 0 for all.
        top_p: only the likeliest tokens that together reach this probability (nucleus sampling, Holtzman et al.,
            2020), after temperature and ``top_k``.
        generator: source of the random numbers.

    Returns:
        (B,) long.
    """
    if temperature == 0.0:
        return log_probs.argmax(dim=-1)
    scores, tokens = (log_probs.float() / temperature).sort(dim=-1, descending=True)
    if top_k > 0:
        scores, tokens = scores[:, :top_k], tokens[:, :top_k]
    probabilities = scores.softmax(dim=-1)
    if top_p < 1.0:
        before = probabilities.cumsum(dim=-1) - probabilities  # of likelier tokens
        probabilities = probabilities.masked_fill(before >= top_p, 0.0)
    rank = torch.multinomial(probabilities, 1, generator=generator)
    return tokens.gather(1, rank).squeeze(1)
