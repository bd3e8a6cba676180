"""A file in a user's directory below another one: whose it may be, and what is never followed."""

import os
import pwd

import pytest

from sluice.faults import DataError
from sluice.system import below, files
from sluice.system.below import Below

ME = pwd.getpwuid(os.geteuid()).pw_name
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: gives files to others")


@pytest.fixture
def place(tmp_path):
    (tmp_path / "nobody").mkdir(mode=0o755)
    (tmp_path / "nobody/f").write_text("text")
    return tmp_path


def read(place, user="nobody", name="f"):
    with open(files.open_trusted(Below(str(place), user, name)), "rb") as f:
        return f.read()


def refused(place, words, **kwargs):
    with pytest.raises(DataError) as e:
        read(place, **kwargs)
    assert words in str(e.value) and str(e.value).startswith(str(place)), e.value


def test_file_of_this_user_is_read(place):
    assert read(place) == b"text"
    path = Below(str(place), "nobody", "f")
    assert os.fspath(path) == str(path) == f"{place}/nobody/f" and os.path.exists(path)


def test_absent_file_is_an_error_that_names_it(place):
    for user, name in (("nobody", "g"), ("ann", "f")):
        with pytest.raises(FileNotFoundError) as e:
            read(place, user, name)
        assert str(place) in str(e.value.filename)


@needs_root
def test_file_may_belong_to_its_user_or_the_owner_of_the_directory(place):
    nobody = pwd.getpwnam("nobody").pw_uid
    os.chown(place / "nobody", nobody, -1)
    os.chown(place / "nobody/f", nobody, -1)
    assert read(place) == b"text"
    (place / "nobody").rename(place / "daemon")  # another account
    refused(place, f"is owned by user {nobody}, not by daemon", user="daemon")
    os.chown(place, nobody, -1)  # who could replace it in any case
    assert read(place, "daemon") == b"text"
    os.chown(place / "daemon/f", 4711, -1)
    refused(place, "is owned by user 4711, not by daemon", user="daemon")


@pytest.mark.parametrize("name", ["", "nobody", "nobody/f"])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_what_others_can_write_is_refused(place, name, mode):
    path = place / name
    path.chmod(path.stat().st_mode | mode)
    refused(place, "could have been written by other users")


def test_links_are_not_followed(place):
    (place / "ann").symlink_to("nobody")
    refused(place, "is a symbolic link", user="ann")
    (place / "nobody/g").symlink_to("f")
    refused(place, "is a symbolic link", name="g")


def test_only_a_regular_file_of_bounded_size_is_read(place):
    os.mkfifo(place / "nobody/fifo")
    (place / "nobody/d").mkdir()
    with open(place / "nobody/large", "wb") as f:
        f.truncate(below.MAX_BYTES + 1)
    refused(place, "is not a regular file", name="fifo")  # without a wait for its writer
    refused(place, "is not a regular file", name="d")
    refused(place, "is larger than", name="large")
