"""How to install an extra of this package, which is on no package index: from where the package itself came.

pip notes that (PEP 610): a checkout's folder, a wheel's file, or a repository's URL.
"""

from __future__ import annotations

import json
import shlex
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

_NAME = "kerneldyno"


def command(extra: str = "") -> str:
    """Return the pip command that installs `extra`, or the package itself.

    Where its origin is unknown or gone, the command names a path that the reader has to fill in.
    """
    wanted = f"[{extra}]" if extra else ""
    try:
        origin = json.loads(metadata.distribution(_NAME).read_text("direct_url.json") or "{}")
        url = urlsplit(str(origin.get("url", "")))
        path = Path(unquote(url.path))
        if url.scheme == "file" and path.exists():
            editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
            return f"pip install {editable}{shlex.quote(f'{path}{wanted}')}"
        if vcs := origin.get("vcs_info", {}).get("vcs"):
            return f"pip install '{_NAME}{wanted} @ {vcs}+{url.geturl()}'"
    except (metadata.PackageNotFoundError, ValueError, AttributeError):
        pass
    return f"pip install '/path/to/{_NAME}{wanted}' (a clone, or its wheel; it is on no package index)"
