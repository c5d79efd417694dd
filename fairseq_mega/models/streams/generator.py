"""Generate text with a trained language model: bounded memory and time per token, however long the text gets."""

import math
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, Iterable, Iterator, List, Optional, Sequence, Union, overload

import torch
from fairseq.hub_utils import GeneratorHubInterface
from torch import Tensor

from fairseq_mega.compat.checkpoints.pieces import used_encoders, warn_of_another_split, warn_of_whole_words
from fairseq_mega.compat.patches.interactive import tell_unknown
from fairseq_mega.data.text_units import LINE_END, TextUnit, encode_after_line_end, never_written, settled_lines
from fairseq_mega.modules.state import StreamState

from .context import Context, load_context, read_tokens, save_context
from .likelihood import Likelihood, likelihood_of


class TextGenerator(GeneratorHubInterface):
    """The result of ``MegaLanguageModel.from_pretrained``: fairseq's interface, and streaming generation.

    Text goes in and out whatever the tokens are, see :mod:`fairseq_mega.data.text_units`. Several models vote with the
    mean of their probabilities.
    """

    def __init__(self, cfg: Any, task: Any, models: Sequence[Any]) -> None:
        super().__init__(cfg, task, models)
        self.excluded = never_written(task.source_dictionary)

    def score(self, sentences: Union[str, Sequence[str]], *args: Any, **kwargs: Any) -> Any:
        """Score texts, as fairseq's interface does.

        Args:
            sentences: a text, or several.

        Returns:
            A dictionary for each text, a single one of a single text: ``score``, the mean of its ``positional_scores``.

        Raises:
            ValueError: if a text is empty, or none.
        """
        for sentence in [sentences] if isinstance(sentences, str) else sentences:
            if not check_text("sentences", sentence).strip() and len(self.encode(sentence)) < 2:
                raise ValueError(f"sentences: {sentence!r} holds no symbol that has a score; give a text")
        return super().score(sentences, *args, **kwargs)

    def likelihood(self, text: str) -> Likelihood:
        """Score a text as ``fairseq-mega-eval-lm`` scores a file of it, read as one segment with the memory carried.

        Args:
            text: of any length; ``</s>`` follows its last line, too (subwords of documents: its end).

        Returns:
            Tokens, bits per token and per byte, and perplexity. Symbols that are unknown to the model are logged.

        Raises:
            ValueError: if the text is empty, or none.
        """
        if not check_text("text", text):
            raise ValueError("text '': give a text")
        end = LINE_END if self.parts_lines and not text.endswith(LINE_END) else ""
        tokens = self.tokens_of(text + end)
        tokens += [] if self.parts_lines else [self.task.source_dictionary.eos()]
        return likelihood_of(list(self.models), tokens, len(text.encode("utf-8", "surrogateescape")))

    def _build_batches(self, tokens: Sequence[Tensor], skip_invalid_size_inputs: bool) -> Iterator[Any]:
        """Batches of texts of any length: one beyond the --max-tokens of the training makes the limit its own."""
        limit = self.cfg.dataset.max_tokens
        longest = max(map(len, tokens))
        self.cfg.dataset.max_tokens = limit if limit is None else max(limit, longest)
        try:
            return super()._build_batches(tokens, skip_invalid_size_inputs)
        finally:
            self.cfg.dataset.max_tokens = limit

    def read(self, text: str, context: Optional[Context] = None) -> Context:
        """Read a text once, to continue it many times.

        Args:
            text: of any length; ``complete(a, context=read(b))`` is ``complete(b + a)``.
            context: a text that was read before this one.

        Returns:
            The text as read: up to the last blank (words), line end (subwords, other encoders) or to the end (bytes);
            the rest is read along with what follows. Its size depends on that rest and on the model, whose chunks
            bound it, not on the length of the text.
        """
        text = ("" if context is None else context.unread) + check_text("text", text)
        parted_by_unit = isinstance(self.bpe, TextUnit) and self.tokenizer is None
        end = self.bpe.settled(text) if parted_by_unit else settled_lines(text)
        before = self._start() if context is None else context._replace(unread="")
        *tokens, last = self.tokens_of(text[:end], before)
        states = read_tokens(list(self.models), tokens, before.states)[1] if tokens else before.states
        return Context(states, last, text[end:], dict(used_encoders(self.task)))

    def save_context(self, context: Context, path: Union[str, Path]) -> None:
        """Write a context to a file, see :func:`fairseq_mega.models.streams.context.save_context`."""
        save_context(context, Path(path), list(self.models), self.task.source_dictionary)

    def load_context(self, path: Union[str, Path]) -> Context:
        """Read a context from a file, see :func:`fairseq_mega.models.streams.context.load_context`."""
        return load_context(Path(path), list(self.models), self.task.source_dictionary)

    def _start(self) -> Context:
        """Nothing, which every text follows."""
        return Context((None,) * len(self.models), self.task.source_dictionary.eos())

    def complete(
        self,
        prompt: str = "",
        max_tokens: int = 100,
        *,
        context: Optional[Context] = None,
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
            context: a text before the prompt, of :meth:`read` or :meth:`load_context`.
            stop_at_line_end: stop before the first line end or ``</s>``.
            temperature, top_k, top_p: see :func:`draw`.
            seed: of the sampling; None: torch's global generator.

        Returns:
            The new text, which read after the prompt makes the whole; a line for each ``</s>``. Where it ends within
            a character, that is left out.

        Raises:
            ValueError: if max_tokens is negative, the prompt is no text, or as in :meth:`stream`.
        """
        if max_tokens < 0:
            raise ValueError(f"max_tokens {max_tokens}: give a number of tokens, 0 or more")
        check_text("prompt", prompt)
        generator = None if seed is None else torch.Generator(self.device).manual_seed(seed)
        context = self._start() if context is None else context
        tokens = self._stream_tokens(self.tokens_of(prompt, context), context, temperature, top_k, top_p, generator)
        found: Iterable[int] = islice(tokens, max_tokens)
        before = self._text_before(context, prompt)
        if stop_at_line_end:
            found = takewhile(lambda token: token != self.task.source_dictionary.eos(), found)
            return "".join(first_line(self.text_of(found, before)))
        return "".join(self.text_of(found, before))

    @property
    def parts_lines(self) -> bool:
        """Return whether ``</s>`` ends the lines of a text; otherwise it ends documents."""
        return not isinstance(self.bpe, TextUnit) or self.bpe.parts_lines

    def tokens_of(self, text: str, context: Optional[Context] = None) -> List[int]:
        """Tokens of a text that may continue: ``</s>`` in front, and for the end of each line but the last.

        Where ``</s>`` ends documents, the text is one that continues. With a context its last token is in front, and
        its unread text comes before the text. Symbols that are unknown to the model are logged, and other encoders than
        those of the context.
        """
        dictionary = self.task.source_dictionary
        context = self._start() if context is None else context
        warn_of_another_split(self.task, context.encoders)
        text = context.unread + text
        lines = text.split("\n") if self.parts_lines else [text]
        tokens = [context.last]
        for number, line in enumerate(lines):
            ended = number + 1 < len(lines)
            symbols = self._symbols_of(line, self.parts_lines or context.last == dictionary.eos())
            tokens += dictionary.encode_line(symbols, append_eos=ended, add_if_not_exist=False).tolist()
        warn_of_whole_words(text, self.task)
        tell_unknown(text, torch.tensor(tokens), dictionary)
        return tokens

    def _text_before(self, context: Context, prompt: str) -> str:
        """The text before what is generated, from the last blank or line end of the context on."""
        begins = context.last == self.task.source_dictionary.eos()
        return ("" if begins else LINE_END) + context.unread + prompt

    def _symbols_of(self, text: str, begins: bool) -> str:
        """Symbols of a line, or of a document that begins or continues after a line end."""

        def encode(text: str) -> str:
            return self.apply_bpe(self.tokenize(text))

        return encode(text) if begins else encode_after_line_end(encode, text)

    def text_of(self, tokens: Iterable[int], before: str = "") -> Iterator[str]:
        """The text of tokens as they come: whole words or characters where the unit allows it, lines otherwise.

        Args:
            tokens: any number of them.
            before: the text that they continue.
        """
        dictionary = self.task.source_dictionary
        symbols = (LINE_END if token == dictionary.eos() else dictionary[token] for token in tokens)
        if isinstance(self.bpe, TextUnit) and self.tokenizer is None:
            yield from self.bpe.pieces(symbols, before)
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
        context: Optional[Context] = None,
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
        context: Optional[Context] = None,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        generator: Optional[torch.Generator] = None,
    ) -> Iterator[int]: ...

    def stream(
        self,
        prompt: Union[str, Sequence[int]],
        *,
        context: Optional[Context] = None,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        generator: Optional[torch.Generator] = None,
    ) -> Union[Iterator[str], Iterator[int]]:
        """Continue ``prompt`` without end, one token at a time: a text by pieces of text, tokens by tokens.

        A piece is the text of one token; the first bytes of a character give an empty piece each, its last one the
        character.

        Args:
            prompt: a text, or tokens, one at least without a context (``</s>`` begins a text); read chunk by chunk.
            context: a text before the prompt, of :meth:`read` or :meth:`load_context`.
            temperature, top_k, top_p, generator: see :func:`draw`.

        Raises:
            ValueError: if there is no token to begin with, tokens or sampling options are out of range, or tokens are
                to follow a context with unread text.
        """
        start = self._start() if context is None else context
        if isinstance(prompt, str):
            tokens = self._stream_tokens(self.tokens_of(prompt, start), start, temperature, top_k, top_p, generator)
            return self.text_of(tokens, self._text_before(start, prompt))
        if start.unread:
            raise ValueError(
                f"context: {start.unread[-40:]!r} has no tokens before it is complete; give a text, no tokens"
            )
        given = prompt if context is None else [start.last, *prompt]
        return self._stream_tokens(given, start, temperature, top_k, top_p, generator)

    @torch.no_grad()
    def _stream_tokens(
        self,
        unread: Sequence[int],
        context: Context,
        temperature: float,
        top_k: int,
        top_p: float,
        generator: Optional[torch.Generator],
    ) -> Iterator[int]:
        """Tokens that follow those of a context's states and the unread ones."""
        if len(unread) == 0:
            raise ValueError("prompt: one token at least is needed, for instance </s> at the beginning of a text")
        symbols = len(self.task.source_dictionary)
        if any(isinstance(token, str) for token in unread):
            raise ValueError(f"prompt {list(unread)!r}: give one text, or the numbers of tokens")
        if not 0 <= min(unread) <= max(unread) < symbols:
            raise ValueError(f"prompt: tokens are numbers below {symbols}, found {min(unread)} to {max(unread)}")
        check_sampling(temperature, top_k, top_p)
        states: Sequence[Optional[StreamState]] = context.states
        while True:
            scores, states = read_tokens(list(self.models), unread, states)
            mean = torch.logsumexp(torch.stack(scores), dim=0) - math.log(len(scores))
            mean[:, self.excluded] = -math.inf
            unread = [int(draw(mean, temperature, top_k, top_p, generator))]
            yield unread[0]


def check_text(name: str, text: Any) -> str:
    """Return a text; raises a ValueError, naming the argument, for anything else."""
    if not isinstance(text, str):
        raise ValueError(f"{name} {text!r}: give one text; call this for each of several")
    return text


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
        temperature: divides the log probabilities; 0: the likeliest token.
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
