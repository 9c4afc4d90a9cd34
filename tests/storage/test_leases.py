"""Leases: a number that only grows, one holder of each, and who comes back hands nothing in."""

import json
import threading
from pathlib import Path

import pytest

from unbraid.errors import UserError
from unbraid.storage.cache import Cache
from unbraid.storage.checksums import is_sealed, verify
from unbraid.storage.files import write_json
from unbraid.storage.leases import Leases, Watch, open_url
from unbraid.storage.store import LeasedCache, Store, Superseded

KEY = "train-0123456789abcdef"


@pytest.fixture(params=["file", "memory"])
def root(request, tmp_path: Path) -> str:
    return f"file://{tmp_path}/shared" if request.param == "file" else f"memory://{tmp_path}"


def quiet(sentence: str) -> None:
    raise AssertionError(sentence)


def leased(path: Path, root: str, over: int = 0, store: Store | None = None) -> LeasedCache:
    leases = Leases.at(root)
    lease = leases.take(KEY, f"worker after {over}", over)
    assert lease is not None
    return LeasedCache(path, leases=leases, lease=lease, store=store)


def half(cache: LeasedCache, content: int) -> None:
    """What an attempt has written before it ends."""
    with cache.making(KEY, lambda: False) as folder:
        write_json(folder / "checkpoints" / "step.json", content)
        write_json(folder / "number.json", content)


def test_the_next_number_is_one_persons(root: str):
    leases = Leases.at(root)
    assert leases.newest(KEY) == 0
    first = leases.take(KEY, "first")
    assert first is not None
    assert (first.number, leases.newest(KEY)) == (1, 1)
    assert leases.take(KEY, "second") is None, "whoever has it may still be there"
    assert leases.renew(first, {"step": 7})
    assert (leases.read(KEY, 1) or {})["step"] == 7
    second = leases.take(KEY, "second", over=1)
    assert second is not None
    assert second.number == 2
    assert not leases.renew(first, {"step": 8}), "the first hears that it has been superseded"
    assert (leases.read(KEY, 1) or {})["step"] == 7
    assert (leases.holds(first), leases.holds(second)) == (False, True)
    leases.drop(KEY)
    assert (leases.newest(KEY), leases.holds(second)) == (0, False)


def test_of_many_who_come_at_once_one_gets_it(tmp_path: Path):
    leases, taken = Leases.at(str(tmp_path)), []
    together = threading.Barrier(16)

    def take(number: int) -> None:
        together.wait()
        taken.append(leases.take(KEY, str(number)))

    threads = [threading.Thread(target=take, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(lease is not None for lease in taken) == 1


def test_a_lease_that_was_given_back_or_whose_process_is_gone_is_free(tmp_path: Path):
    leases = Leases.at(str(tmp_path))
    first = leases.take(KEY, "first")
    assert first is not None
    assert leases.renew(first, {"free": True})
    second = leases.take(KEY, "second")
    assert second is not None
    assert leases.take(KEY, "third") is None
    assert leases.renew(second, {"process": 2**22 + 1})  # above the largest there is
    assert leases.take(KEY, "third") is not None
    assert leases.newest(KEY) == 3


def test_a_lease_lapses_by_the_clock_of_who_watches(tmp_path: Path):
    leases, now = Leases.at(str(tmp_path)), [100.0]
    lease, watch = leases.take(KEY, "first"), Watch(leases, lambda: now[0])
    assert lease is not None
    assert watch.look(KEY)[::2] == (1, 0.0)
    now[0] += 20
    assert watch.look(KEY)[2] == 20
    leases.renew(lease, {"time": -5e9})  # what its own clock says is of no concern
    assert watch.look(KEY)[2] == 0
    now[0] += 20
    (tmp_path / ".leases" / KEY / "000001.json").write_text("{")  # it is being written
    assert watch.look(KEY)[2] == 20
    leases.take(KEY, "second", over=1)
    assert watch.look(KEY)[::2] == (2, 0)


def test_who_comes_back_hands_nothing_in(tmp_path: Path):
    """The first is cut off with its stage made; the second has taken its place, and is not done yet, or done."""
    first = leased(tmp_path, str(tmp_path))
    half(first, 1)
    second = leased(tmp_path, str(tmp_path), over=1)
    with second.making(KEY, lambda: False) as folder:
        assert json.loads((folder / "checkpoints" / "step.json").read_text()) == 1, "it goes on from what there was"
        write_json(folder / "number.json", 2)
    with pytest.raises(Superseded):
        first.finish(KEY, {})
    assert not second.folder(KEY).exists()
    second.finish(KEY, {})
    with pytest.raises(Superseded):
        first.finish(KEY, {})
    assert json.loads((tmp_path / KEY / "number.json").read_text()) == 2
    assert verify(tmp_path / KEY)["key"] == KEY
    assert [path.name for path in tmp_path.iterdir()] == [KEY], "no lease and no attempt is left"


def test_between_the_look_and_the_rename_nothing_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Frozen after it saw that its lease holds: the rename itself does nothing where a stage is."""
    first = leased(tmp_path, str(tmp_path))
    half(first, 1)
    second = leased(tmp_path, str(tmp_path), over=1)
    half(second, 2)
    monkeypatch.setattr(Leases, "holds", lambda *_: True)
    second_own, first_own = second.own, tmp_path / "kept"
    first.own.rename(first_own)  # for the second removes what others left
    second.finish(KEY, {})
    first_own.rename(first.own)
    first.finish(KEY, {})
    assert json.loads((tmp_path / KEY / "number.json").read_text()) == 2
    assert verify(tmp_path / KEY)["key"] == KEY
    assert not second_own.exists()


def test_a_run_of_this_machine_waits_for_a_lease_and_goes_on_from_what_it_left(tmp_path: Path):
    elsewhere = leased(tmp_path, str(tmp_path))
    half(elsewhere, 5)
    here, looks = Cache(tmp_path), []
    with pytest.raises(UserError, match="stopped while another process makes"), here.making(KEY, lambda: True):
        pass
    elsewhere.leases.renew(elsewhere.lease, {"free": True})
    with here.making(KEY, lambda: looks.append(1) or True) as folder:
        assert json.loads((folder / "checkpoints" / "step.json").read_text()) == 5
        with pytest.raises(Superseded):
            elsewhere.finish(KEY, {})
        write_json(folder / "number.json", 6)
        here.finish(KEY, {})
    assert is_sealed(tmp_path / KEY)
    assert [path.name for path in tmp_path.iterdir()] == [KEY]


def test_what_a_run_of_this_machine_left_half_made_is_gone_on_with(tmp_path: Path):
    here = Cache(tmp_path)
    with here.making(KEY, lambda: False) as folder:
        write_json(folder / "checkpoints" / "step.json", 3)
        assert not here.set_aside_unfinished(KEY), "it is at work"
    assert here.set_aside_unfinished(KEY)
    assert not folder.exists()
    elsewhere = leased(tmp_path, str(tmp_path))
    with elsewhere.making(KEY, lambda: False) as folder:
        assert json.loads((folder / "checkpoints" / "step.json").read_text()) == 3


def test_without_a_shared_disk_stages_go_through_a_store(root: str, tmp_path: Path):
    """The first machine dies with a checkpoint saved; the second goes on; a third reads the stage, verified."""
    store = Store(root)
    first = leased(tmp_path / "one", root, store=store)
    half(first, 1)
    first.keep()
    assert not store.has(KEY)
    second = leased(tmp_path / "two", root, over=1, store=store)
    with second.making(KEY, lambda: False) as folder:
        assert json.loads((folder / "checkpoints" / "step.json").read_text()) == 1
        write_json(folder / "number.json", 2)
    second.finish(KEY, {})
    assert store.has(KEY)
    with pytest.raises(Superseded):
        first.finish(KEY, {})
    files, path = open_url(root)
    files.makedirs(f"{path}/{KEY}/000001", exist_ok=True)
    files.pipe_file(f"{path}/{KEY}/000001/number.json", b"1")  # whatever the first still writes has its own number
    third = Cache(tmp_path / "three")
    assert store.pull(KEY, third.folder(KEY), quiet)
    assert third.has(KEY, quiet)
    assert json.loads((third.folder(KEY) / "number.json").read_text()) == 2
    assert not (third.folder(KEY) / "checkpoints").exists()


def test_what_is_damaged_in_a_store_is_not_taken(root: str, tmp_path: Path):
    store, said = Store(root), []
    maker = leased(tmp_path / "one", root, store=store)
    half(maker, 1)
    maker.finish(KEY, {})
    files, path = open_url(root)
    files.pipe_file(f"{path}/{KEY}/000001/number.json", b"9\n")
    assert not store.pull(KEY, tmp_path / "two" / KEY, said.append)
    assert said == [f"{KEY} is damaged in {root} and removed there; it is made again"]
    assert not store.has(KEY)
    assert not (tmp_path / "two" / KEY).exists()


def test_an_address_nobody_can_open_is_one_sentence():
    with pytest.raises(UserError, match=r"^'nothing://x' cannot be opened: .* accepted: what fsspec opens here$"):
        open_url("nothing://x")


def test_a_path_is_a_path_whatever_is_in_it(tmp_path: Path):
    """fsspec takes `a::b` for a file in an archive."""
    lease = Leases.at(str(tmp_path / "a::b")).take(KEY, "first")
    assert lease is not None
    assert (tmp_path / "a::b" / ".leases" / KEY / "000001.json").is_file()
