"""What each optional part of DietCode needs, and the one sentence that is said where it is not installed.

The extras are those of ``pyproject.toml``; a test holds this table against it.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from pathlib import Path
from urllib.parse import unquote, urlsplit

from dietcode.errors import RequestError

DISTRIBUTION = "dietcode-compiler"  # `dietcode` is another project's on the package index
# By extra, what is imported from which package; an extra that includes another one names it in `INCLUDED`.
MODULES: dict[str, dict[str, str]] = {
    "tune": {
        "tvm": "apache-tvm",
        "cloudpickle": "cloudpickle",
        "psutil": "psutil",
        "scipy": "scipy",
        "sklearn": "scikit-learn",
        "xgboost": "xgboost-cpu",
        "zstandard": "zstandard",
    },
    "server": {
        "alembic": "alembic",
        "fastapi": "fastapi",
        "jinja2": "jinja2",
        "markdown_it": "markdown-it-py",
        "prometheus_client": "prometheus-client",
        "pydantic_settings": "pydantic-settings",
        "sqlalchemy": "sqlalchemy",
        "structlog": "structlog",
        "uvicorn": "uvicorn",
    },
    "postgres": {"psycopg": "psycopg"},
    "ray": {"ray": "ray"},
    "rpc": {"tornado": "tornado"},
    "cuda": {
        "cuda.bindings": "cuda-bindings",
        "nvidia.cu13.lib": "nvidia-cuda-nvrtc",
        "nvidia.cu13.include": "nvidia-cuda-runtime",
        "nvidia.cu13.include.cccl": "nvidia-cuda-cccl",
    },
    "models": {"torch": "torch"},
    "onnx": {"onnx": "onnx"},
    "bench": {"matplotlib": "matplotlib", "torch": "torch"},
}
INCLUDED = {
    "server": ("tune",),
    "models": ("tune",),
    "onnx": ("tune",),
    "ray": ("tune",),
    "rpc": ("tune",),
    "cuda": ("tune",),
}


class MissingExtraError(RequestError, ImportError):
    """A part of DietCode whose packages are not installed; the message has the command that installs them."""


def missing_packages(extra: str) -> tuple[str, ...]:
    """Packages of an extra, and of those that it includes, that are not installed."""
    return tuple(
        package
        for name in (*INCLUDED.get(extra, ()), extra)
        for module, package in MODULES[name].items()
        if not _is_there(module)
    )


def need(extra: str, what: str) -> None:
    """Refuse early where a part is asked for that is not installed, before an import fails deep inside.

    Parameters
    ----------
    extra : str
        A key of `MODULES`.
    what : str
        What was asked for, as the sentence's subject: ``"this command"``.

    Raises
    ------
    MissingExtraError
        A package of the extra is missing.
    """
    missing = missing_packages(extra)
    if missing:
        raise MissingExtraError(what_to_install(what, extra, missing))


def what_to_install(what: str, extra: str, missing: tuple[str, ...] = ()) -> str:
    """Return the sentence for a part whose packages are missing: ``"WHAT needs PACKAGES: pip install …"``."""
    packages = ", ".join(missing or MODULES[extra].values())
    return f"{what} needs {packages}: {install_command(extra, missing)}"


def install_command(extra: str, missing: tuple[str, ...] = ()) -> str:
    """Return the command that installs an extra, from where DietCode itself was installed.

    This project is on no package index, so that its name is never given to pip: it is
    the folder or the wheel that DietCode came from or, where that is gone, the missing packages themselves.
    """
    origin = _origin()
    if origin is not None:
        option, path = origin
        return f"pip install {option}{shlex.quote(f'{path}[{extra}]')}"
    versions = _required(extra)
    names = missing or tuple(MODULES[extra].values())
    return " ".join(["pip install", *(shlex.quote(versions.get(name, name)) for name in names)])


def reinstall_command() -> str:
    """Return the command that installs DietCode itself again, from where it was installed."""
    origin = _origin()
    if origin is None:
        return f"install {DISTRIBUTION} again"
    option, path = origin
    return f"pip install --force-reinstall --no-deps {option}{shlex.quote(str(path))}"


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):  # its parent is missing; it was taken out by hand
        return False


def _origin() -> tuple[str, Path] | None:
    """The option and the path that pip installed this distribution from; None where that is not there now."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        text = distribution(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    facts = json.loads(text or "{}")
    url = urlsplit(facts.get("url", ""))
    path = Path(unquote(url.path))
    if url.scheme != "file" or not path.exists():
        return None
    return ("-e " if facts.get("dir_info", {}).get("editable") else ""), path


def _required(extra: str) -> dict[str, str]:
    """Requirements of an extra and of those that it includes, with their versions, by package."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        lines = distribution(DISTRIBUTION).requires or []
    except PackageNotFoundError:
        return {}
    found = {}
    for line in lines:
        requirement, _, marker = (part.strip() for part in line.partition(";"))
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower()
        if any(f"'{one}'" in marker or f'"{one}"' in marker for one in (*INCLUDED.get(extra, ()), extra)):
            found[name] = requirement.replace(" ", "")
    return found
