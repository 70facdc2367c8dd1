"""Prints the folder with TorchConfig.cmake of the `torch` that this Python would import, without the second an import takes."""

import importlib.util
import pathlib
import sys

spec = importlib.util.find_spec("torch")
folders = spec.submodule_search_locations if spec else None
for folder in folders or ():
    config = pathlib.Path(folder, "share", "cmake", "Torch")
    if (config / "TorchConfig.cmake").is_file():
        print(config)
        sys.exit()
sys.exit(1)
