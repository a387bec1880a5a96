"""Tell how to install an extra of this package. The package is on no index, so the command names where it came from.

pip records that (PEP 610): the folder of a checkout, the file of a wheel, or the URL of a repository.
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

    If the origin is unknown or gone, the command has a placeholder path that the reader fills in.
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
