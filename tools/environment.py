"""The Python environment of `make`: creates it once, and installs the wheel into it.

usage: environment.py create    .venv with the tools, and with PyTorch unless the python that runs this has it
       environment.py install   builds the wheel in release mode and installs it into .venv
       environment.py can-ascend   says why not, with a status, if the next has no Python to start from
       environment.py ascend    .venv-ascend with Ascend's compilers, which are there for Python 3.10 and 3.11 only

An installed torch >= 2.11 is used where it is: .venv then only points to it, and nothing of the installation it comes from
is changed. Runs on the standard library of Python 3.10 alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from importlib import metadata
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
ASCEND = ROOT / ".venv-ascend"
ASCEND_PYTHONS = ((3, 11), (3, 10))
LINK = "installed-torch.pth"
OLDEST_PYTHON = (3, 10)
OLDEST_TORCH = (2, 11)


def create() -> None:
    if not sys.version_info >= OLDEST_PYTHON:
        fail(
            f"Python 3.10 or newer is needed, this is {sys.version.split()[0]}; name another: make PYTHON=/path/to/python"
        )
    if VENV.exists():
        say(f"removing the old {VENV.name}")
        shutil.rmtree(VENV)
    say(f"creating {VENV.name} with Python {sys.version.split()[0]}")
    make_venv()
    say("installing the tools: maturin, ruff, pytest")
    pip("--requirement", str(ROOT / "tools" / "requirements.txt"))
    if usable_torch():
        link_installed_packages()
    install_missing(ROOT / "tools" / "requirements-torch.txt")
    say("environment ready")


def install() -> None:
    wheels = ROOT / "target" / "wheels"
    for old in wheels.glob("permalloy-*.whl"):
        old.unlink()
    say("building the wheel (release mode; the first time takes minutes, later only what changed)")
    started = time.monotonic()
    run(
        [
            str(VENV / "bin" / "maturin"),
            "build",
            "--release",
            "--quiet",
            "--out",
            str(wheels),
            "--interpreter",
            str(PYTHON),
        ]
    )
    built = sorted(wheels.glob("permalloy-*.whl"))
    if len(built) != 1:
        fail(f"maturin should have left one wheel in {wheels.relative_to(ROOT)}, found {[w.name for w in built]}")
    say(
        f"installing {built[0].name} ({built[0].stat().st_size / 2**20:.1f} MB, built in {time.monotonic() - started:.0f} s)"
    )
    pip("--force-reinstall", "--no-deps", str(built[0]))


def ascend() -> None:
    """Apart from .venv: triton-ascend is a package `triton`, too."""
    python = ascend_python()
    say(f"creating {ASCEND.name}: Ascend's compilers are a download of some 230 MB; 800 MB on disk")
    shutil.rmtree(ASCEND, ignore_errors=True)
    run([python, "-m", "venv", str(ASCEND)])
    requirements = str(ROOT / "tests" / "ascend" / "requirements.txt")
    pip("--no-deps", "--requirement", requirements, python=ASCEND / "bin" / "python")


def ascend_python() -> str:
    names = [sys.executable, *(f"python{major}.{minor}" for major, minor in ASCEND_PYTHONS)]
    for name in names:
        if version_of_python(name) in ASCEND_PYTHONS:
            return name
    fail("SKIPPED: Ascend's compilers need Python 3.10 or 3.11, and neither is on PATH")


def version_of_python(name: str) -> tuple[int, ...] | None:
    try:
        asked = [name, "-c", "import sys; print(*sys.version_info[:2])"]
        done = subprocess.run(asked, capture_output=True, text=True)
    except OSError:
        return None
    return tuple(map(int, done.stdout.split())) if done.returncode == 0 else None


def make_venv() -> None:
    """Debian ships Python without `ensurepip`; there the missing package is installed if we may."""
    command = [sys.executable, "-m", "venv", str(VENV)]
    if subprocess.run(command, capture_output=True, text=True).returncode == 0:
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        say("this Python cannot create environments; installing python3-venv with apt-get")
        run(["apt-get", "update", "-qq"])
        run(["apt-get", "install", "-y", "-qq", "python3-venv"])
        shutil.rmtree(VENV, ignore_errors=True)
    run(command)


def usable_torch() -> bool:
    """Whether the Python that runs this has a torch we can use; imports nothing."""
    version = version_of("torch")
    if version is None:
        say("no PyTorch is installed")
        return False
    usable = tuple(int(part) for part in version.split("+")[0].split(".")[:2]) >= OLDEST_TORCH
    say(f"PyTorch {version} is installed" + ("" if usable else ": too old, 2.11 is needed"))
    return usable


def link_installed_packages() -> None:
    """A `.pth` file rather than `--system-site-packages`, which skips the environment this Python may itself be."""
    folders = dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    folders.update(dict.fromkeys(path for path in sys.path if path.endswith(("site-packages", "dist-packages"))))
    target = subprocess.run(
        [str(PYTHON), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    Path(target.stdout.strip(), LINK).write_text("\n".join(folders) + "\n")
    say(f"{VENV.name} uses the packages of {sys.executable}")


def install_missing(requirements: Path) -> None:
    lines = [line.split("#")[0].strip() for line in requirements.read_text().splitlines()]
    pins = dict(line.split("==") for line in lines if line)
    linked = usable_torch_version()
    have = {name: version_of(name) for name in pins} if linked else {}
    wanted = [name for name in pins if not have.get(name)]
    if not wanted:
        return
    if linked and not linked.startswith(pins["torch"]):
        # torchvision goes with one version of torch only: let pip find the one.
        specs = [name if name == "torchvision" else f"{name}=={pins[name]}" for name in wanted]
    else:
        specs = [f"{name}=={pins[name]}" for name in wanted]
    size = " (PyTorch is a download of some 600 MB; 5 GB on disk)" if "torch" in wanted else ""
    say(f"installing {', '.join(specs)}{size}")
    constraints = VENV / "constraints.txt"
    constraints.write_text(f"torch=={linked}\n" if linked else "")
    pip("--constraint", str(constraints), *specs)


def usable_torch_version() -> str | None:
    return version_of("torch") if any(VENV.glob(f"lib/*/site-packages/{LINK}")) else None


def version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def pip(*arguments: str, python: Path = PYTHON) -> None:
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
    run([str(python), "-m", "pip", "install", *quiet, *arguments])


def run(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        fail(f"`{' '.join(command)}` ended with status {done.returncode}")


def say(text: str) -> None:
    print(f"setup: {text}", flush=True)


def fail(text: str) -> NoReturn:
    sys.exit(f"setup: {text}")


if __name__ == "__main__":
    commands = {"create": create, "install": install, "can-ascend": ascend_python, "ascend": ascend}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]]()
