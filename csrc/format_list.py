"""Write cbq_format_list.h, cbq_encoder_list.h and cbq_improver_list.h: C cannot include a folder, so these list what
csrc/formats and csrc/encode hold.

    python csrc/format_list.py FOLDER

writes them into FOLDER. setup.py does it in the build folder; the files are never checked in.
"""

from __future__ import annotations

import sys
from pathlib import Path

FORMATS = Path(__file__).resolve().parent / "formats"
ENCODERS = Path(__file__).resolve().parent / "encode"


def format_list(folder: Path = FORMATS) -> str:
    """The header's text: every format's header, and one macro that expands every row of them."""
    names = sorted(path.stem for path in folder.glob("*.h"))
    includes = "".join(f'#include "formats/{name}.h"\n' for name in names)
    rows = " \\\n".join(f"    CBQ_FORMAT_{name}(BLOCK, PLAIN)" for name in names)
    return f"#pragma once\n{includes}\n#define CBQ_FORMATS(BLOCK, PLAIN) \\\n{rows}\n"


def with_encoders(formats: Path, encoders: Path) -> tuple[list[str], set[str]]:
    """Names of all formats, and of those that have an encoder."""
    names = sorted(path.stem for path in formats.glob("*.h"))
    return names, {name for name in names if (encoders / f"{name}.h").exists()}


def encoder_list(formats: Path = FORMATS, encoders: Path = ENCODERS) -> str:
    """The header's text: every encoder's header, and for each format the name of its encoder, or NULL."""
    names, known = with_encoders(formats, encoders)
    includes = "".join(f'#include "encode/{name}.h"\n' for name in sorted(known))
    rows = "".join(f"#define CBQ_ENCODER_{name} {f'encode_{name}' if name in known else 'NULL'}\n" for name in names)
    return f"#pragma once\n{includes}\n{rows}"


def improver_list(formats: Path = FORMATS, encoders: Path = ENCODERS) -> str:
    """The header's text: the rows of formats with an encoder, and for each format its improver, or NULL."""
    names, known = with_encoders(formats, encoders)
    improved = " \\\n".join(f"    CBQ_FORMAT_{name}(BLOCK, BLOCK)" for name in sorted(known))
    improvers = {name: f"&{name}_improver" if name in known else "NULL" for name in names}
    rows = "".join(f"#define CBQ_IMPROVER_{name} {improver}\n" for name, improver in improvers.items())
    return f"#pragma once\n#define CBQ_IMPROVED_FORMATS(BLOCK) \\\n{improved}\n\n{rows}"


def write_format_list(target_folder: Path, formats: Path = FORMATS, encoders: Path = ENCODERS) -> Path:
    """Write the headers where their text has changed, so that nothing is compiled again for no reason."""
    target_folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "cbq_format_list.h": format_list(formats),
        "cbq_encoder_list.h": encoder_list(formats, encoders),
        "cbq_improver_list.h": improver_list(formats, encoders),
    }
    for name, text in texts.items():
        target = target_folder / name
        if not target.exists() or target.read_text() != text:
            target.write_text(text)
    return target_folder / "cbq_format_list.h"


if __name__ == "__main__":
    write_format_list(Path(sys.argv[1]))
