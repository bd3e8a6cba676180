"""Which files of a folder or a Maildir are read, in which order, and what happens when it changes."""

import os

import pytest

from sluice.faults import DataError
from sluice.texts import folder


def tree(at, *names):
    for name in names:
        path = at / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return str(at)


def found(at, recursive=False):
    return [os.path.relpath(p, at) for p in folder.paths(str(at), recursive)]


MAILDIR = (
    "cur/1:2,S",
    "new/2",
    "tmp/3",
    "dovecot.index",
    ".Sent/cur/4:2,",
    ".Sent/new/5",
    ".Sent/tmp/6",
    ".Sent/maildirfolder",
)


def test_a_maildir_is_its_mails_and_with_recursive_those_of_its_folders(tmp_path):
    tree(tmp_path, *MAILDIR)
    assert found(tmp_path) == ["cur/1:2,S", "new/2"]
    assert found(tmp_path, True) == ["cur/1:2,S", "new/2", ".Sent/cur/4:2,", ".Sent/new/5"]


def test_a_folder_is_its_files_in_the_order_of_names(tmp_path):
    tree(tmp_path, "b", "a", ".hidden", "c/d", "c/.e/f", "c/new/g")
    assert found(tmp_path) == ["a", "b"]
    assert found(tmp_path, True) == ["a", "b", "c/d", "c/new/g"]


def test_pipes_and_links_to_folders_are_passed_over(tmp_path):
    tree(tmp_path, "a", "below/b")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to(tmp_path)
    (tmp_path / "file").symlink_to("a")
    (tmp_path / "nothing").symlink_to("nowhere")
    assert found(tmp_path, True) == ["a", "file", "below/b"]
    with pytest.raises(DataError, match="not a regular file"):
        folder.open_file(str(tmp_path / "pipe"))


def test_a_mail_that_was_moved_is_found_by_its_unique_name(tmp_path):
    at = tree(tmp_path, *MAILDIR)
    paths = list(folder.paths(at))
    os.rename(f"{at}/new/2", f"{at}/cur/2:2,RS")
    os.rename(f"{at}/cur/1:2,S", f"{at}/cur/1:2,ST")
    for path, text in zip(paths, (b"cur/1:2,S", b"new/2")):
        fd = folder.open_file(path)
        assert os.read(fd, 99) == text
        os.close(fd)
    os.unlink(f"{at}/cur/2:2,RS")
    with pytest.raises(FileNotFoundError):
        folder.open_file(paths[1])


def test_a_mail_in_new_and_cur_comes_once(tmp_path):
    tree(tmp_path, "new/1", "cur/1:2,S", "tmp/x")
    assert found(tmp_path) == ["cur/1:2,S"]


def test_folders_too_deep_or_not_readable_are_named_and_the_rest_goes_on(tmp_path):
    at = tmp_path
    for _ in range(folder.MAX_DEPTH + 2):
        at = at / "d"
    tree(at, "x")
    tree(tmp_path, "z/a")
    got = list(folder.paths(str(tmp_path), True))
    assert [type(x) for x in got] == [DataError, str] and "folders deep" in str(got[0])
    assert isinstance(next(folder.paths(str(tmp_path / "no"))), FileNotFoundError)
