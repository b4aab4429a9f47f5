"""Write cbq_format_list.h: C cannot include a folder, so this lists what csrc/formats holds.

    python csrc/format_list.py FOLDER

writes FOLDER/cbq_format_list.h. setup.py does it in the build folder; the file is never checked in.
"""

from __future__ import annotations

import sys
from pathlib import Path

FORMATS = Path(__file__).resolve().parent / "formats"


def format_list(folder: Path = FORMATS) -> str:
    """The header's text: every format's header, and one macro that expands every row of them."""
    names = sorted(path.stem for path in folder.glob("*.h"))
    includes = "".join(f'#include "formats/{name}.h"\n' for name in names)
    rows = " \\\n".join(f"    CBQ_FORMAT_{name}(BLOCK, PLAIN)" for name in names)
    return f"#pragma once\n{includes}\n#define CBQ_FORMATS(BLOCK, PLAIN) \\\n{rows}\n"


def write_format_list(target_folder: Path, formats: Path = FORMATS) -> Path:
    """Write the header where its text has changed, so that nothing is compiled again for no reason."""
    target_folder.mkdir(parents=True, exist_ok=True)
    target, text = target_folder / "cbq_format_list.h", format_list(formats)
    if not target.exists() or target.read_text() != text:
        target.write_text(text)
    return target


if __name__ == "__main__":
    write_format_list(Path(sys.argv[1]))
