"""One module a format. Every module of this folder is imported, and its classes register themselves, so that
a new format is one new file."""

from __future__ import annotations

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
