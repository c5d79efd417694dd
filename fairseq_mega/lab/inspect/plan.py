"""Settings to train a language model on several GPUs, from the costs of processes that share it."""

import math
from functools import cached_property
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from fairseq_mega.lab.benchmarks.shared_costs import Held, Sent, Shared, Sharing
from fairseq_mega.lab.inspect.memory import described
from fairseq_mega.lab.prepare.progress import Progress, say
from fairseq_mega.lab.runs.text_tables import Table, table_of, terminal
from fairseq_mega.models.cost import AUTOCAST, FLOAT32, GIB, ROUNDED, Precision, language_model
from fairseq_mega.tasks.chunk_parallel import check_part
from fairseq_mega.tasks.megalodon_pretrain import MegalodonPretrainConfig

CHUNKS = MegalodonPretrainConfig.variant_block_multiple_max  # of a sequence
SHOWN = 8  # settings
DOUBLINGS = 12  # of nodes, if no setting fits
PRECISIONS = {"fp32": (FLOAT32,), "bf16": (AUTOCAST, ROUNDED)}
NOTE = """\
Exact: the state (weights, gradients, Adam's moments) and the sent bytes, with collectives as rings. Estimated: buffers
of fully_sharded, and activations, from layers run without data at two lengths with the kernels of a CPU. Not
counted: CUDA, NCCL and gaps between tensors, for which --gib should leave some GiB, and fairseq's log.
Settings without recomputed layers come first, then settings by the bytes that a GPU sends."""


class Machine(NamedTuple):
    """GPUs that train a model together."""

    nodes: int
    gpus: int  # of a node
    gib: float  # GiB of a GPU for the training

    @property
    def processes(self) -> int:
        """Number of GPUs."""
        return self.nodes * self.gpus


class Work(NamedTuple):
    """Batches of a training."""

    length: int  # tokens of a sequence
    sequences: int  # of an update


class Setting(NamedTuple):
    """Options of a training, and its costs."""

    precision: Precision
    sharing: Sharing
    sequences: int  # in a pass of the processes that share them
    passes: int  # for an update
    held: Held
    sent: Sent
    left: int  # bytes that leave a node for an update

    def order(self) -> Tuple[float, ...]:
        """Sort key of settings, the best first."""
        return self.sharing.recomputed, self.sent.most(self.sharing.pieces), self.sharing.pieces, self.held.total

    def options(self, length: int) -> List[str]:
        """Return options of fairseq-mega-train for sequences of a length."""
        batches = [f"--max-tokens {self.sequences * length}", f"--update-freq {self.passes}"]
        return [self.precision.option, *self.sharing.options(), *batches]


class Planner:
    """Settings of a model's training.

    Args:
        name: of an architecture or a checkpoint.
        precision: a key of PRECISIONS.
        length: tokens of a sequence; None for CHUNKS chunks.
        symbols: of an architecture, None for those of its recipes.
        told: whether the progress is printed.

    Raises:
        OSError, ValueError: as :func:`described`, and if the length is missing or too small.
    """

    def __init__(
        self,
        name: str,
        precision: str,
        length: Optional[int] = None,
        symbols: Optional[int] = None,
        told: bool = False,
    ) -> None:
        self.told = told
        self.options, self.symbols = described(name, symbols, "--plan")
        self.precisions = PRECISIONS[precision]
        decoder = language_model(self.options, self.symbols)
        self.chunk_size = decoder.chunk_size
        if length is None and decoder.chunk_size < 0:
            raise ValueError(f"{name} has no chunks: give the tokens of a training sequence, --context N")
        self.length = CHUNKS * decoder.chunk_size if length is None else length
        if not 0 < self.length <= decoder.longest:
            raise ValueError(f"--context {self.length}: give 1 to {decoder.longest:,} tokens of a training sequence")
        if self.length % max(self.chunk_size, 1) > 0:
            whole = self.length // self.chunk_size * self.chunk_size
            lengths = " or ".join(str(n) for n in (whole, whole + self.chunk_size) if 0 < n <= decoder.longest)
            raise ValueError(f"--context {self.length}: a training sequence has whole chunks, give {lengths} tokens")
        self.most_pieces = -(-self.length // decoder.chunk_size) if decoder.chunk_size > 0 else 1
        try:
            for part in decoder.modules():
                check_part(part, "--chunk-parallel-size", self.length)
        except ValueError:
            self.most_pieces = 1

    @cached_property
    def models(self) -> List[Shared]:
        """Measure the model in each form of the precision, see :class:`Shared`."""
        return [Shared(self.options, self.symbols, precision) for precision in self.precisions]

    def sequences(self) -> List[str]:
        """Return options of fairseq-mega-train that set the length of sequences."""
        if self.chunk_size < 0:
            return [f"--tokens-per-sample {self.length}"]
        return [f"--variant-block-multiple-{end} {-(-self.length // self.chunk_size)}" for end in ("min", "max")]

    def work(self, machine: Machine, tokens: Optional[int]) -> Work:
        """Return the batches of so many tokens an update; None for a sequence of each GPU."""
        if tokens is None:
            return Work(self.length, machine.processes)
        if tokens < self.length or tokens % self.length:
            raise ValueError(f"--batch {tokens}: give whole sequences, a multiple of {self.length} tokens (--context)")
        return Work(self.length, tokens // self.length)

    def settings(self, machine: Machine, work: Work) -> List[Setting]:
        """Return a setting for each precision and sharing, in order: with the largest batch of a pass that fits."""
        found, forms = [], len(self.precisions)
        sharings = [
            (sharing, Work(work.length, work.sequences // groups))
            for sharing in self._sharings(machine.processes)
            for groups in (machine.processes // sharing.pieces,)
            if work.sequences % groups == 0
        ]
        count, name = forms * len(sharings), f"{machine.nodes} x {machine.gpus} GPUs"
        if self.told:
            say(f"{name}: {count} settings are estimated, which may take minutes")
        progress = Progress(name, "settings", count)
        for model in self.models:
            for sharing, share in progress.follow(sharings) if self.told else sharings:
                found.append(_largest(model, sharing, machine, share))
        return sorted(found, key=Setting.order)

    def _sharings(self, processes: int) -> Iterator[Sharing]:
        for pieces in range(1, min(processes, self.most_pieces) + 1):
            if processes % pieces == 0:
                for recomputed in (False, True):
                    yield Sharing(processes, pieces, recomputed=recomputed)
                    for gathered in (False, True) if processes > 1 else ():
                        yield Sharing(processes, pieces, True, gathered, recomputed)


def _largest(model: Shared, sharing: Sharing, machine: Machine, work: Work) -> Setting:
    """Return the setting of a group's work with the most sequences of a pass that fit, at least one."""
    fitting = 1
    for sequences in range(2, work.sequences + 1):
        if work.sequences % sequences == 0:
            if _held(model, sharing, sequences, work.length).total > machine.gib * GIB:
                break
            fitting = sequences
    passes, held = work.sequences // fitting, _held(model, sharing, fitting, work.length)
    sent = model.sent(sharing, passes, fitting)
    return Setting(model.precision, sharing, fitting, passes, held, sent, left_a_node(sent, sharing.pieces, machine))


def _held(model: Shared, sharing: Sharing, sequences: int, length: int) -> Held:
    """Return the memory of the process with the longest piece of a sequence."""
    chunk = max(model.decoder.chunk_size, 1)
    piece = length if sharing.pieces == 1 else chunk * math.ceil(math.ceil(length / chunk) / sharing.pieces)
    return model.held(sharing, sequences * min(piece, length))


def left_a_node(sent: Sent, pieces: int, machine: Machine) -> int:
    """Return the bytes that leave the node with most: a ring of all GPUs leaves each node once."""
    if machine.nodes == 1:
        return 0
    borders = [node * machine.gpus % pieces != 0 for node in range(machine.nodes + 1)]
    memory = max(sent.memory * end + sent.gradients * begin for begin, end in zip(borders, borders[1:]))
    return sent.weights + memory


def table(settings: Sequence[Setting], work: Work) -> Table:
    """Return a row for each setting."""
    return table_of([_row(setting, work.length) for setting in settings])


def _row(setting: Setting, length: int) -> Dict[str, str]:
    sharing, held = setting.sharing, setting.held
    return {
        "sharded": ("yes, gathered once" if sharing.gathered else "yes") if sharing.sharded else "no",
        "precision": setting.precision.option or "fp32",
        "chunk-parallel": str(sharing.pieces),
        "layers computed": "twice" if sharing.recomputed else "once",
        "tokens of a pass": f"{setting.sequences * length:,}",
        "passes": str(setting.passes),
        "state": f"{held.state / GIB:.1f}",
        "buffers": f"{held.buffers / GIB:.1f}",
        "activations": f"{held.activations / GIB:.1f}",
        "GiB of a GPU": f"{held.total / GIB:.1f}",
        "GB it sends": f"{setting.sent.most(sharing.pieces) / 1e9:.1f}",
        "GB out of a node": f"{setting.left / 1e9:.1f}",
    }


class Plan(NamedTuple):
    """Settings of a training on a machine."""

    work: Work
    fitting: List[Setting]  # the best first
    others: List[Setting]  # that do not fit, the smallest first


def planned(planner: Planner, machine: Machine, tokens: Optional[int] = None) -> Plan:
    """Return the settings for updates of so many tokens; None for a sequence of each GPU.

    Raises:
        ValueError: if the GPUs cannot share the sequences of an update, or a number is out of range.
    """
    for option, value in (("--nodes", machine.nodes), ("--gpus", machine.gpus)):
        if value < 1:
            raise ValueError(f"{option} {value}: give 1 or more")
    if not 0 < machine.gib * GIB < math.inf:
        raise ValueError(f"--gib {machine.gib:g}: give the GiB of a GPU, a number above 0")
    work = planner.work(machine, tokens)
    settings = planner.settings(machine, work)
    if not settings:
        raise ValueError(
            f"--batch {tokens}: {machine.processes} GPUs cannot share {work.sequences:,} sequences of {work.length:,} "
            f"tokens, at most {planner.most_pieces} GPUs to a sequence; give a multiple of "
            f"{_fewest(planner, machine) * work.length}"
        )
    fitting = [setting for setting in settings if setting.held.total <= machine.gib * GIB]
    others = [setting for setting in settings if setting not in fitting]
    return Plan(work, fitting, sorted(others, key=lambda setting: setting.held.total))


def _fewest(planner: Planner, machine: Machine) -> int:
    """Return the smallest number of sequences that leaves no GPU without work."""
    most = max(pieces for pieces in range(1, planner.most_pieces + 1) if machine.processes % pieces == 0)
    return machine.processes // most


def lines_of(
    name: str,
    machine: Machine,
    precision: str = "fp32",
    length: Optional[int] = None,
    tokens: Optional[int] = None,
    symbols: Optional[int] = None,
) -> List[str]:
    """Return the settings of a model that fit, as lines of text, or a line that none fits.

    Args:
        name, precision, length, symbols: as in :class:`Planner`.
        machine: the GPUs.
        tokens: of an update; None for a sequence of each GPU.

    Raises:
        OSError, ValueError: as :class:`Planner` and :func:`planned`.
    """
    planner = Planner(name, precision, length, symbols, told=True)
    work, fitting, others = planned(planner, machine, tokens)
    parameters = f"{planner.models[0].parameters:,} parameters with {planner.symbols:,} symbols"
    batch = f"an update of {work.sequences * work.length:,} tokens in sequences of {work.length:,}"
    first = f"{parameters}; {machine.nodes} x {machine.gpus} GPUs of {machine.gib:g} GiB; {batch}"
    if not fitting:
        least = others[0]
        more = _nodes_that_do(planner, machine, tokens)
        remedy = f"{more} nodes suffice" if more else "more nodes do not help"
        given = " ".join(filter(None, least.options(work.length)))
        return [
            first,
            f"No setting fits: the smallest requires {least.held.total / GIB:.1f} GiB of a GPU, with {given}; {remedy}",
        ]
    arch = f"--arch {name}" if planner.options == {"_name": name} else ""  # else a checkpoint's
    world = f"--distributed-world-size {machine.processes}"
    words = ["fairseq-mega-train DATA", arch, world, *planner.sequences(), *fitting[0].options(work.length)]
    command = " ".join(filter(None, words))
    rest = [f"and {len(fitting) - SHOWN} more"] if len(fitting) > SHOWN else []
    return [first, "", terminal(table(fitting[:SHOWN], work)), *rest, "", f"The first: {command} ...", "", NOTE]


def _nodes_that_do(planner: Planner, machine: Machine, tokens: Optional[int]) -> Optional[int]:
    """Return the number of nodes at which a setting fits, by doubling; None if no number suffices."""
    for _ in range(DOUBLINGS):
        machine = machine._replace(nodes=2 * machine.nodes)
        work = planner.work(machine, tokens)
        if any(setting.held.total <= machine.gib * GIB for setting in planner.settings(machine, work)):
            return machine.nodes
    return None
