"""Builds the stand-in as NVIDIA's apex is built: without both options it has no kernels."""

import os

from setuptools import find_packages, setup

complete = os.environ.get("APEX_CPP_EXT") == os.environ.get("APEX_CUDA_EXT") == "1"
setup(
    name="apex",
    version="0.1",
    packages=find_packages(include=["apex", "apex.*"]),
    py_modules=["amp_C", "fused_layer_norm_cuda"] if complete else [],
)
