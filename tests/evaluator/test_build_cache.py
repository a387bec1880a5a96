"""The build cache: what it never returns, its limit in bytes, full disks, and directories that it shares or refuses."""

from __future__ import annotations

import base64
import os
import resource
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kerneldyno.evaluator.builder.cache import BuildCache, CacheError
from kerneldyno.evaluator.judge.checks.libraries import Libraries
from kerneldyno.evaluator.shared import library_file
from kerneldyno.evaluator.shared.library_file import Library

LIMIT = 1 << 20


def library(name: str, size: int = 1000) -> Library:
    """Return a library whose content nobody else has. Its key is as long as a real one."""
    return Library(f"{name:0>64}", name, True, 1.5, (("cicc a.cu", 1.0), ("link", 0.5)), os.urandom(size))


def entry_size(size: int) -> int:
    """Return the size of an entry in bytes, of a library of `size` bytes with a name of one letter."""
    return len(library("a", size).encode())


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def cache(directory: Path) -> BuildCache:
    return BuildCache(directory, LIMIT)


def age(cache: BuildCache, *keys: str) -> None:
    """Make entries seem to have been used long ago, the first one longest ago."""
    for number, key in enumerate(keys):
        then = time.time() - 10_000 + number
        os.utime(cache.path(key), (then, then))


def flip_in_library(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def flip_in_key(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"key": "0', b'"key": "1'))


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def cut_in_the_first_line(path: Path) -> None:
    os.truncate(path, 20)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0")


def forget_the_checksum(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"sha256"', b'"sha255"'))


def make_the_head_a_list(path: Path) -> None:
    path.write_bytes(b"[1, 2]\n" + path.read_bytes().partition(b"\n")[2])


def make_the_times_texts(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"seconds": 1.5', b'"seconds": "x"'))


def take_anothers_name(path: Path) -> None:
    other = library("other")
    path.write_bytes(other.encode())


def link_to_a_copy(path: Path) -> None:
    copy = path.parent.parent / "copy"
    shutil.copy(path, copy)
    path.unlink()
    path.symlink_to(copy)


def link_to_a_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


DAMAGES = [
    *(flip_in_library, flip_in_key, cut, cut_in_the_first_line, empty, append, forget_the_checksum),
    *(make_the_head_a_list, make_the_times_texts, take_anothers_name, link_to_a_copy, link_to_a_device),
]


@pytest.mark.pure
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_deleted_and_never_returned(cache: BuildCache, damage) -> None:
    cache.add(library("a"))
    cache.add(library("b"))
    path = cache.path(library("a").key)
    damage(path)
    assert Libraries((("digest", library("a").key, path),)).read() == {}
    assert cache.find(library("a").key) is None
    assert not os.path.lexists(path)
    assert cache.find(library("a").key) is None
    assert cache.find(library("b").key) is not None
    again = library("a")
    cache.add(again)
    assert cache.find(again.key) == again


@pytest.mark.pure
def test_what_was_added_is_found(cache: BuildCache) -> None:
    assert cache.find(library("a").key) is None
    added = library("a")
    cache.add(added)
    assert cache.find(added.key) == added
    assert cache.entries == 1
    assert cache.size == cache.path(added.key).stat().st_size
    assert library_file.read(cache.path(added.key), added.key) == added
    assert Libraries((("digest", added.key, cache.path(added.key)),)).read() == {
        "digest": base64.b64encode(added.content).decode()
    }


@pytest.mark.pure
def test_only_its_owner_can_read_the_directory(cache: BuildCache, directory: Path) -> None:
    cache.add(library("a"))
    assert directory.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o077 for path in directory.iterdir()] == [0]


@pytest.mark.pure
def test_entries_survive_a_restart(cache: BuildCache, directory: Path) -> None:
    added = library("a")
    cache.add(added)
    again = BuildCache(directory, LIMIT)
    assert again.find(added.key) == added
    assert (again.entries, again.size) == (1, cache.size)


@pytest.mark.pure
def test_a_restart_with_a_lower_limit_deletes_entries(cache: BuildCache, directory: Path) -> None:
    for name in "abc":
        cache.add(library(name))
    age(cache, library("b").key, library("a").key)
    again = BuildCache(directory, 2 * entry_size(1000))
    assert [name for name in "abc" if again.find(library(name).key)] == ["a", "c"]
    assert again.evictions == 1


@pytest.mark.pure
def test_what_was_used_longest_ago_goes_first(directory: Path) -> None:
    cache = BuildCache(directory, 3 * entry_size(1000))
    for name in "abc":
        cache.add(library(name))
    age(cache, *(library(name).key for name in "abc"))
    assert cache.find(library("a").key)  # so b was used longest ago
    cache.add(library("d"))
    assert [name for name in "abcd" if cache.path(library(name).key).exists()] == ["a", "c", "d"]
    assert (cache.evictions, cache.entries) == (1, 3)


@pytest.mark.pure
def test_all_entries_together_never_exceed_the_limit(directory: Path) -> None:
    limit = 5 * entry_size(3000)
    cache = BuildCache(directory, limit)
    for number in range(40):
        cache.add(library(f"{number}", 100 + number * 150 % 4000))
        on_disk = [path.stat().st_size for path in directory.iterdir()]
        assert sum(on_disk) <= limit
        assert cache.size == sum(on_disk)
        assert cache.entries == len(on_disk)
    assert cache.evictions == 40 - cache.entries


@pytest.mark.pure
def test_a_library_larger_than_the_limit_drives_nobody_out(directory: Path) -> None:
    cache = BuildCache(directory, 3 * entry_size(1000))
    cache.add(library("a"))
    cache.add(library("b", 4000))
    assert cache.find(library("a").key)
    assert cache.find(library("b").key) is None
    assert cache.evictions == 0


@pytest.mark.pure
def test_the_same_key_again_replaces_the_entry(cache: BuildCache) -> None:
    cache.add(library("a"))
    second = library("a", 500)
    cache.add(second)
    assert cache.find(second.key) == second
    assert (cache.entries, cache.size) == (1, cache.path(second.key).stat().st_size)


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let every write beyond `size` bytes of a file fail, as if the disk were full. This holds for root, too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.pure
@pytest.mark.parametrize("room", [0, 10, 100_000])
def test_a_full_disk_keeps_the_old_entries_and_raises_nothing(cache: BuildCache, directory: Path, room: int) -> None:
    cache.add(library("a"))
    with largest_file(room):
        cache.add(library("b", 200_000))
    assert cache.find(library("a").key)
    assert cache.find(library("b").key) is None
    assert [path.name for path in directory.iterdir()] == [cache.path(library("a").key).name]
    assert cache.entries == 1
    added = library("b", 200_000)
    cache.add(added)
    assert cache.find(added.key) == added


@pytest.mark.pure
def test_a_directory_that_vanished_raises_nothing(cache: BuildCache, directory: Path) -> None:
    cache.add(library("a"))
    shutil.rmtree(directory)
    assert cache.find(library("a").key) is None
    cache.add(library("b"))
    assert cache.find(library("b").key) is None


@pytest.mark.pure
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o722, 0o702], ids=oct)
def test_a_directory_that_others_can_write_to_is_refused(directory: Path, mode: int) -> None:
    directory.mkdir()
    left = [directory / "theirs.part", directory / "theirs.library"]
    for path in left:
        path.write_bytes(b"x" * 100)
        os.utime(path, (0, 0))
    directory.chmod(mode)
    with pytest.raises(CacheError, match=r"others can write .*chmod 700"):
        BuildCache(directory, 10)
    assert all(path.exists() for path in left), "it deleted files of a directory that is not its own"


@pytest.mark.pure
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to somebody else")
def test_a_directory_of_another_user_is_refused(directory: Path) -> None:
    directory.mkdir(mode=0o700)
    os.chown(directory, 12345, 12345)
    with pytest.raises(CacheError, match="others can write"):
        BuildCache(directory, LIMIT)


@pytest.mark.pure
@pytest.mark.parametrize("place", ["file", "file/cache", "/proc/kerneldyno"])
def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match=r"cannot be used: .*set --build-cache"):
        BuildCache(tmp_path / place, LIMIT)


@pytest.mark.pure
def test_two_evaluators_that_share_a_directory_keep_one_limit(directory: Path) -> None:
    limit = 4 * entry_size(1000)
    first, second = BuildCache(directory, limit), BuildCache(directory, limit)
    for number in range(12):
        (first, second)[number % 2].add(library(f"{number}"))
        assert sum(path.stat().st_size for path in directory.iterdir()) <= limit
    assert second.find(library("10").key)  # the other one's
    assert first.find(library("11").key)


@pytest.mark.pure
def test_an_entry_may_vanish_at_any_time(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = BuildCache(directory, 4 * entry_size(1000))
    for name in "abcd":
        cache.add(library(name))
    listed = Path.glob

    def glob_then_lose(self: Path, pattern: str) -> list[Path]:
        found = sorted(listed(self, pattern))
        for path in found[:2]:
            path.unlink()  # another evaluator deletes it just now
        return found

    monkeypatch.setattr(Path, "glob", glob_then_lose)
    added = library("e", 2000)
    cache.add(added)
    assert cache.find(added.key) == added
    BuildCache(directory, LIMIT)


@pytest.mark.pure
def test_unfinished_files_of_a_killed_builder_are_removed_when_they_are_old(cache: BuildCache, directory: Path) -> None:
    old, new = directory / "old.part", directory / "new.part"
    for path in (old, new):
        path.write_bytes(b"unfinished")
    os.utime(old, (0, 0))
    added = library("a")
    cache.add(added)
    again = BuildCache(directory, LIMIT)
    assert not old.exists()
    assert new.exists(), "another evaluator may be writing it"
    assert again.find(added.key) == added


@pytest.mark.pure
def test_an_unfinished_file_may_vanish_while_another_evaluator_starts(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory.mkdir(mode=0o700)
    monkeypatch.setattr(Path, "glob", lambda self, pattern: [self / f"gone{pattern[1:]}"])
    assert BuildCache(directory, LIMIT).entries == 0


def test_builders_that_write_at_the_same_time_disturb_nobody(directory: Path) -> None:
    """Three processes add and find the same few keys; each checks that what it finds is whole."""
    limit = 5 * entry_size(1000)
    program = f"""
        import hashlib, sys
        from pathlib import Path
        from kerneldyno.evaluator.builder.cache import BuildCache
        from kerneldyno.evaluator.shared.library_file import Library

        cache = BuildCache(Path({str(directory)!r}), {limit})
        for number in range(300):
            key = f"{{number % 9:0>64}}"
            content = hashlib.sha256(key.encode()).digest() * 32
            found = cache.find(key)
            assert found is None or found.content == content
            cache.add(Library(key, "a", True, 1.0, (), content))
    """
    started = [
        subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    errors = [each.communicate(timeout=60)[1] for each in started]
    assert [each.returncode for each in started] == [0, 0, 0], errors
    assert "entry_deleted" not in "".join(errors)
    cache = BuildCache(directory, limit)
    assert 0 < cache.size <= limit
    assert not list(directory.glob("*.part"))
