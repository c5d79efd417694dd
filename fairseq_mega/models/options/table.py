"""Table of the options that models share: name, type, default, help, and the field of a layer that the option sets.

Names are those of the published code; ``{side}`` means encoder or decoder. Defaults of widths are those of the
paper's base model (MEGA, Table 10). Options of a single model are in the model's file.
"""

from typing import Any, Mapping, Optional

from fairseq.dataclass import ChoiceEnum
from omegaconf import II

from fairseq_mega.modules.activation import ACTIVATIONS
from fairseq_mega.modules.classifier_head import POOLINGS
from fairseq_mega.modules.megalodon.config import DROPPED, EMA_NORMS
from fairseq_mega.modules.megalodon.initialization import INIT_MODES
from fairseq_mega.modules.norm import NORMS
from fairseq_mega.modules.relative_bias import BIASES
from fairseq_mega.modules.state_space import INITIALIZATIONS
from fairseq_mega.ops.attention import FUNCTIONS

from .option import Option, Role

TENSORS, OUTPUTS, RUN, TRAINING = Role.TENSORS, Role.OUTPUTS, Role.RUN, Role.TRAINING
INPUT_TYPES = ("text", "image")
ActivationChoice = ChoiceEnum(list(ACTIVATIONS))
NormChoice = ChoiceEnum(list(NORMS))


def as_hidden(inner: Optional[int], read: Mapping[str, Any]) -> int:
    """Return the inner width of an FFN; default: v."""
    return read["hidden_dim"] if inner is None else inner


def as_llama(inner: Optional[int], read: Mapping[str, Any]) -> int:
    """Return the inner width of an FFN; default: 8/3 of d, rounded up to a multiple of 256."""
    return -(-8 * read["embed_dim"] // 768) * 256 if inner is None else inner


def negated(switch: bool, read: Mapping[str, Any]) -> bool:
    """Return the negation of a switch, for options such as --no-affine-norm."""
    return not switch


def as_reach(steps: int, read: Mapping[str, Any]) -> Optional[int]:
    """Return the reach of the EMA's kernel or of attention, None for all."""
    return steps if steps > 0 else None


# Rows of layers of several kinds.
WIDTH = Option("{side}_embed_dim", int, 512, TENSORS, "width d")
DEPTH = Option("{side}_layers", int, 6, TENSORS, "number of layers", field="")
VALUES = Option("{side}_hidden_dim", int, 1024, TENSORS, "width v of the attention's values")
SHARED = Option("{side}_z_dim", int, 128, TENSORS, "width z of the shared query/key representation")
EMA = Option("{side}_n_dim", int, 16, TENSORS, "EMA dimensions N per feature, 0 for no EMA", "ema_dim")
FFN = Option("{side}_ffn_embed_dim", int, 512, TENSORS, "inner width of the FFN", "ffn_dim")
OPEN_FFN = FFN._replace(type=Optional[int], default=None)
HEADS = Option("{side}_attention_heads", int, 1, OUTPUTS, "attention heads", "heads")
CHUNK = Option("{side}_chunk_size", int, -1, OUTPUTS, "attention chunk C, -1 for full attention")
ACTIVATION = Option("activation_fn", ActivationChoice, "silu", OUTPUTS, "activation function", "activation")
NORM = Option("normalization_type", NormChoice, "layernorm", OUTPUTS, "norm of all sub-layers", "norm")
PRE_NORM = Option("normalize_before", bool, False, OUTPUTS, "norm before each sub-layer instead of after it")
ROPE = Option("rope_base", float, 10000.0, OUTPUTS, "base of the rotary positions")
DROPOUT = Option("dropout", float, 0.1, TRAINING, "dropout of embeddings and of each sub-layer's output")
ATTENTION_DROPOUT = Option("attention_dropout", float, 0.0, TRAINING, "dropout of attention weights")
HIDDEN_DROPOUT = Option("hidden_dropout", float, 0.0, TRAINING, "dropout of the attention's values")
FFN_DROPOUT = Option("activation_dropout", float, 0.0, TRAINING, "dropout after the activation of the FFN")
RECOMPUTATION = Option(
    "checkpoint_activations",
    bool,
    False,
    TRAINING,
    "recompute each layer in the backward pass: less memory, about a third more time",
)

# Layers, kind by kind.
MEGA_WIDTHS = (
    WIDTH,
    DEPTH,
    VALUES,
    OPEN_FFN._replace(help="inner width of the FFN, 0 for none (default: --{side}-hidden-dim)", convert=as_hidden),
    SHARED,
    EMA,
)
MEGA = (
    *MEGA_WIDTHS,
    CHUNK,
    ACTIVATION,
    Option(
        "attention_activation_fn",
        ChoiceEnum(list(FUNCTIONS)),
        "softmax",
        OUTPUTS,
        "attention function",
        "attention_function",
    ),
    Option("rel_pos_bias", ChoiceEnum(list(BIASES)), "simple", OUTPUTS, "relative positional bias", "relative_bias"),
    Option(
        "truncation_length",
        int,
        0,
        RUN,
        "length of the EMA's kernel when no state is carried (training); below 1: no truncation",
        "truncation",
        as_reach,
    ),
    NORM,
    PRE_NORM,
    Option("normalize_embedding", bool, False, TENSORS, "norm on the embeddings (post-norm models only)"),
    Option("no_scale_embedding", bool, False, OUTPUTS, "do not scale embeddings by sqrt(d)"),
    DROPOUT._replace(help="dropout of embeddings, EMA output, candidate and FFN output"),
    ATTENTION_DROPOUT,
    HIDDEN_DROPOUT,
    FFN_DROPOUT,
    Option("feature_dropout", bool, False, TRAINING, "drop whole features instead of single elements"),
    RECOMPUTATION,
)
MEGALODON_WIDTHS = (
    WIDTH,
    DEPTH,
    VALUES,
    OPEN_FFN._replace(help="inner width of the FFN (default: --{side}-hidden-dim)", convert=as_hidden),
    SHARED,
    EMA._replace(help="dimensions N of the complex EMA per feature"),
    HEADS,
)
MEGALODON_KIND = (
    ROPE,
    Option(
        "norm_num_groups", int, 32, OUTPUTS, "groups of features that share their statistics over time", "norm_groups"
    ),
    Option(
        "no_affine_norm",
        bool,
        False,
        TENSORS,
        "no learned scale and shift in the norms over features (norms over time keep them)",
        "norm_affine",
        negated,
    ),
    Option("swiglu", bool, False, TENSORS, "use an FFN with a gate: three matrices instead of two"),
    Option("layer_scale", bool, False, TENSORS, "learn a scale of the FFN's output, initially 0.1 / 2^layer"),
    Option(
        "residual_hops",
        int,
        2,
        OUTPUTS,
        "input of the FFN's residual connection: 2: the layer's input, as in the paper; 1: the attention's output",
    ),
    Option("init_mode", ChoiceEnum(list(INIT_MODES)), "he", TRAINING, "initialization of the layers' matrices"),
    DROPOUT._replace(default=0.0),
    ATTENTION_DROPOUT._replace(help="dropout in the attention, see --attention-drops"),
    Option(
        "attention_drops",
        ChoiceEnum(list(DROPPED)),
        "keys",
        TRAINING,
        "target of attention dropout: keys before the softmax, or weights after it",
    ),
    HIDDEN_DROPOUT._replace(help="dropout of the EMA's and the attention's output, and within the FFN"),
    RECOMPUTATION,
)
EMA_NORM = Option(
    "ema_norm",
    ChoiceEnum(list(EMA_NORMS)),
    "rmsnorm",
    OUTPUTS,
    "function after the EMA: an RMS norm, or SiLU as in MEGA",
)
MEGALODON = (*MEGALODON_WIDTHS, CHUNK, *MEGALODON_KIND)
LLAMA = (
    WIDTH,
    DEPTH,
    OPEN_FFN._replace(
        help="inner width of the FFN (default: 8/3 of d, rounded up to a multiple of 256)", convert=as_llama
    ),
    HEADS._replace(default=8),
    ROPE,
    Option(
        "{side}_attention_window",
        int,
        -1,
        OUTPUTS,
        "steps that attention reads, the present one among them; below 1: all",
        convert=as_reach,
    ),
    DROPOUT,
    ATTENTION_DROPOUT,
    RECOMPUTATION,
)
TRANSFORMER_WIDTHS = (WIDTH, DEPTH, FFN, HEADS._replace(default=4, alias="--attention-heads"))
TRANSFORMER = (
    *TRANSFORMER_WIDTHS,
    ACTIVATION._replace(default="gelu", help="activation of the FFN"),
    PRE_NORM,
    DROPOUT,
    ATTENTION_DROPOUT,
    FFN_DROPOUT,
    RECOMPUTATION,
)
S4D = (
    WIDTH,
    DEPTH,
    EMA._replace(default=64, help="dimensions N of the state per feature, an even number"),
    Option(
        "state_space_init",
        ChoiceEnum(list(INITIALIZATIONS)),
        "inv",
        TRAINING,
        "first frequencies: S4D-Lin or S4D-Inv",
        "initialization",
    ),
    Option("least_step", float, 0.001, TRAINING, "smallest first step of a feature"),
    Option("largest_step", float, 0.1, TRAINING, "largest first step of a feature"),
    Option(
        "state_space_rate",
        float,
        0.1,
        TRAINING,
        "learning rate of the modes, relative to the other parameters'",
        "rate",
    ),
    Option(
        "state_space_step_rate",
        Optional[float],
        None,
        TRAINING,
        "learning rate of the steps, relative to the other parameters' (default: --state-space-rate)",
        "step_rate",
    ),
    ACTIVATION._replace(help="no effect: S4D uses GELU"),
    NORM._replace(default="batchnorm", help="norm of all layers"),
    PRE_NORM,
    DROPOUT._replace(default=0.0, help="dropout of embeddings, and of whole features in the layers"),
    RECOMPUTATION,
)

# Models, kind by kind.
IMAGES = (
    Option("image_size", int, 224, TENSORS, "height and width of the images in pixels"),
    Option("patch_size", int, 16, TENSORS, "height and width of the patches of an image in pixels"),
    Option("image_class_num", int, 1000, TENSORS, "number of classes"),
    Option(
        "drop_path",
        float,
        0.2,
        TRAINING,
        "stochastic depth: probability that an image skips the last layer; lower layers have smaller ones",
        "stochastic_depth",
    ),
)
LONGEST = Option("max_positions", int, 1024, TENSORS, "longest input")
PAD_BATCHES = Option(
    "pad_batches",
    bool,
    False,
    TRAINING,
    "compute the padding after shorter texts, too: slower, with the same results except for dropout",
)
CLASSIFIER = (
    Option(
        "input_type",
        Optional[ChoiceEnum(list(INPUT_TYPES))],
        None,
        TENSORS,
        "text: tokens; image: real numbers of images or speech (default: the task's)",
    ),
    LONGEST._replace(help="longest input: a longer text is cut, a longer image is an error"),
    Option(
        "sen_rep_type",
        ChoiceEnum(list(POOLINGS)),
        "mp",
        OUTPUTS,
        "sentence vector: mean over the positions (mp), or a <CLS> token in front (cls)",
    ),
    Option("sentence_class_num", int, 2, TENSORS, "number of classes"),
    Option("classifier_layers", int, 1, TENSORS, "hidden layers of the head"),
    Option("classifier_out_dim", int, 256, TENSORS, "width of the head's hidden layers"),
    Option("classifier_activation_fn", ActivationChoice, "gelu", OUTPUTS, "activation of the head's hidden layers"),
    PAD_BATCHES,
)
DECODER_TABLES = (
    Option("decoder_embed_path", Optional[str], None, TRAINING, "pretrained embeddings"),
    Option("share_decoder_input_output_embed", bool, False, TENSORS, "one table for input and output embeddings"),
    Option("adaptive_input", bool, False, TENSORS, "narrower input embeddings of the decoder for rarer words"),
    Option(
        "adaptive_input_factor", float, 4, TENSORS, "factor between the widths of successive bands of --adaptive-input"
    ),
    Option(
        "adaptive_input_cutoff",
        Optional[str],
        None,
        TENSORS,
        "ends of the bands, comma separated (default: --adaptive-softmax-cutoff)",
    ),
    Option(
        "adaptive_softmax_cutoff",
        Optional[str],
        None,
        TENSORS,
        "use an adaptive softmax with these ends of bands, comma separated; requires --criterion adaptive_loss",
    ),
    Option(
        "adaptive_softmax_dropout",
        float,
        0.0,
        TRAINING,
        "dropout of the adaptive softmax's input and of its rarer bands",
    ),
    Option(
        "adaptive_softmax_factor",
        float,
        4,
        TENSORS,
        "factor between the widths of successive bands of the adaptive softmax",
    ),
    Option("tie_adaptive_weights", bool, False, TENSORS, "one table per band for adaptive input and softmax"),
    Option("tie_adaptive_proj", bool, False, TENSORS, "one projection per band, too (requires --tie-adaptive-weights)"),
)
LATE_DROPOUT = Option(
    "late_dropout",
    int,
    0,
    TRAINING,
    "number of updates without dropout at the beginning of a training, for models that read their text only a few "
    "times (Liu et al., ICML 2023)",
)
TARGET_POSITIONS = Option("max_target_positions", Optional[int], II("task.max_target_positions"), TENSORS)
LANGUAGE_MODEL = (
    Option(
        "decoder_input_dim",
        Optional[int],
        None,
        TENSORS,
        "width of the input embeddings, or of the first band of --adaptive-input (default: d)",
    ),
    *DECODER_TABLES,
    LATE_DROPOUT,
    TARGET_POSITIONS,
    Option("tokens_per_sample", int, II("task.tokens_per_sample"), TENSORS),
)
DOCUMENTS = Option(
    "reset_at_document_ends",
    bool,
    False,
    OUTPUTS,
    "</s>, the end of every line, ends a document: attention, memory and norm statistics begin again",
)
LAYERS = (*MEGA, *MEGALODON, EMA_NORM, *LLAMA, *TRANSFORMER, *S4D)  # rows of all kinds of layers
