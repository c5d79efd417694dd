"""torch.load builds values from a checkpoint, and nothing that a file can turn into a call or a pointer."""

import _codecs
import argparse
import collections
import copy
import pickle
import subprocess
import typing

import numpy as np
import omegaconf
import pytest
import torch
from fairseq.distributed import utils as distributed_utils
from omegaconf import base, nodes

from fairseq_mega.compat.files.safe_globals import RefusedContents
from tests.support.pickles import Call, load

OF_ARRAY: typing.Any = np.zeros(1).__reduce__()
OF_SCALAR: typing.Any = np.int64(1).__reduce__()
RECONSTRUCT, SEED, SCALAR = OF_ARRAY[0], OF_ARRAY[1], OF_SCALAR[0]
INT64_STATE = (3, "<", None, None, None, -1, -1, 0)


def int64(state: object = INT64_STATE) -> Call:
    return Call(np.dtype, ("i8", False, True), state)


def array(shape: typing.Tuple[int, ...], data: object, dtype: object = None) -> Call:
    return Call(RECONSTRUCT, SEED, (1, shape, dtype or int64(), False, data))


class TestSafeGlobals:
    @pytest.mark.parametrize(
        "value",
        [
            argparse.Namespace(arch="mega", lr=[0.1]),
            omegaconf.OmegaConf.create({"model": {"embed_dim": 4, "dropout": 0.1}, "lr": [0.5, None]}),
            collections.defaultdict(dict),
            {"counts": np.arange(4), "total": np.int64(7), "loss": np.float32(0.5), "flag": np.bool_(True)},
        ],
        ids=["namespace", "omegaconf", "defaultdict", "numpy"],
    )
    def test_contents_of_checkpoints_load(self, value: object) -> None:
        assert repr(load(value)) == repr(value)

    def test_other_classes_are_still_refused(self) -> None:
        with pytest.raises(Exception, match="weights_only"):
            load({"path": subprocess.CompletedProcess([], 0)})


class TestValues:
    @pytest.mark.parametrize("code", "?bhilqBHILQefd")
    def test_numbers_of_every_width(self, code: str) -> None:
        values = np.arange(6).reshape(2, 3).astype(code)
        for value in (values, values.T, values.astype(values.dtype.newbyteorder(">")), values[0, 1].reshape(())):
            loaded = load(value)
            assert loaded.dtype == pickle.loads(pickle.dumps(value)).dtype
            assert loaded.shape == value.shape and (loaded == value).all()
        scalar = load(values[1, 2])
        assert type(scalar) is type(pickle.loads(pickle.dumps(values[1, 2]))) and scalar == values[1, 2]

    def test_arrays_are_saved_and_calculated_with_as_plain_ones(self) -> None:
        loaded = load(np.arange(4))
        assert type(loaded + 1) is np.ndarray and type(np.exp(loaded)) is np.ndarray
        assert type(loaded.sum()) is np.int64 and loaded.sum() == 6
        assert b"fairseq_mega" not in pickle.dumps(loaded) and load(loaded).tolist() == [0, 1, 2, 3]
        assert (copy.deepcopy(loaded) == loaded).all()
        loaded[0] = 7
        assert loaded.tolist() == [7, 1, 2, 3]

    @pytest.mark.parametrize(
        "value",
        [
            argparse.Namespace(arch="mega"),
            omegaconf.OmegaConf.create({"a": {"b": [1, None, "x"]}}),
            omegaconf.OmegaConf.create([1, [2.5]]),
            nodes.IntegerNode(3),
            distributed_utils._TensorPlaceholder(index=2),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_classes_are_the_real_ones(self, value: object) -> None:
        loaded = load(value)
        assert type(loaded) is type(value) and loaded == value

    def test_a_configuration_keeps_what_it_refuses_and_its_types(self) -> None:
        cfg = omegaconf.OmegaConf.create(
            {"a": {"b": 1}, "args": argparse.Namespace(x=1)}, flags={"allow_objects": True}
        )
        omegaconf.OmegaConf.set_struct(cfg, True)
        loaded = load(cfg)
        assert loaded.a.b == 1 and loaded.args.x == 1 and loaded.a._get_parent() is loaded
        assert loaded._metadata == cfg._metadata
        with pytest.raises(omegaconf.errors.ConfigAttributeError):
            loaded.c = 1


ADDRESS = 0x4141414141414141
OBJECTS = Call(np.dtype, ("O8", False, True))
FIELD = (3, "|", None, ("f",), {"f": (OBJECTS, 0)}, 8, 1, 0)
METADATA = Call(base.ContainerMetadata, (), {"ref_type": int, "key_type": int, "element_type": int}, new=True)
HOSTILE: typing.Dict[str, typing.Any] = {
    "an array of objects over bytes": Call(list, (Call(np.ndarray, ((1,), OBJECTS, bytearray(8))),)),
    "an array by its class": Call(np.ndarray, ((1,),)),
    "numbers that count references": array((1,), [ADDRESS], int64((3, "<", None, None, None, -1, -1, 63))),
    "an array of objects": array((1,), [1], OBJECTS),
    "a list for bytes": array((1,), [1]),
    "void": array((1,), b"a" * 8, Call(np.dtype, ("V8", False, True), FIELD)),
    "text": array((1,), b"a" * 4, Call(np.dtype, ("U1", False, True), (3, "<", None, None, None, 4, 4, 8))),
    "a subarray": array((1,), b"a" * 8, int64((3, "<", (OBJECTS, (1,)), None, None, -1, -1, 0))),
    "a dtype of objects": OBJECTS,
    "a dtype of a list": Call(np.dtype, ([("f", "O")],)),
    "too few bytes": array((1 << 40,), b"a" * 8),
    "too many bytes": array((1,), b"a" * 16),
    "a negative size": array((-1, -1), b"a" * 8),
    "no bytes for a huge array": array((0, 1 << 62), Call(_codecs.encode, ("", "latin1"))),
    "an array that is filled twice": Call(RECONSTRUCT, SEED, *((1, (32,), int64(), False, b"a" * 256),) * 2),
    "another subtype": Call(RECONSTRUCT, (list, (0,), b"b")),
    "a scalar of objects": Call(SCALAR, (OBJECTS, b"a" * 8)),
    "a short scalar": Call(SCALAR, (int64(), b"a")),
    "a call of list": Call(list, ((1, 2),)),
    "a call of dict": Call(dict, ()),
    "a call of int": Call(int, ("9" * 4000,)),
    "a default that is called": Call(collections.defaultdict, (torch.Tensor,)),
    "a default that is an array": Call(collections.defaultdict, (argparse.Namespace,)),
    "slots of a namespace": Call(argparse.Namespace, (), (None, {"__class__": omegaconf.DictConfig}), new=True),
    "a method of a namespace": Call(argparse.Namespace, (), {"_get_kwargs": torch.Tensor}, new=True),
    "a number as a name": Call(argparse.Namespace, (), {1: 2}, new=True),
    "a method of a configuration": Call(
        omegaconf.DictConfig, (), {"_metadata": METADATA, "_content": {}, "_get_node": torch.Tensor}, new=True
    ),
    "a configuration with arguments": Call(omegaconf.DictConfig, ("${oc.env:HOME}",)),
    "a node with arguments": Call(nodes.AnyNode, (1,)),
    "a class as metadata": Call(base.Metadata, (), {"__post_init__": torch.Tensor}, new=True),
}


class TestHostileFiles:
    @pytest.mark.parametrize("name", HOSTILE)
    def test_are_refused(self, name: str) -> None:
        with pytest.raises(RefusedContents):
            load(HOSTILE[name])

    @pytest.mark.parametrize("function", [np.ndarray, list, dict, int, RECONSTRUCT, SCALAR, typing.Any])
    def test_values_and_functions_are_no_classes(self, function: object) -> None:
        with pytest.raises(TypeError):
            load(Call(function, (1,), new=True))
