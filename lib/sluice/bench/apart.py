"""Work in a child of this process: its rows come back one by one. A process starts its threads once, so each number of
threads needs a process of its own."""
import json
import os
import signal
import traceback

from ..faults import OUR_BUG, TRY_AGAIN, Fault


def rows(make):
    """Yield the rows (dicts that JSON can hold) that make() yields in a child; a Fault there is one here."""
    from_child, to_parent = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(from_child)
        _child(make, to_parent)
    os.close(to_parent)
    try:
        with open(from_child, encoding="utf-8") as lines:
            for line in lines:
                kind, what = json.loads(line)
                if kind == "fault":
                    raise Fault(*what)
                yield what
        status, pid = os.waitpid(pid, 0)[1], None
        if status:
            raise Fault(OUR_BUG if os.WIFEXITED(status) else TRY_AGAIN, f"a process of this bench ended early (status {status})")
    finally:
        if pid:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)


def _child(make, fd):
    """Never returns."""
    code = OUR_BUG
    try:
        with open(fd, "w", encoding="utf-8") as out:
            try:
                for row in make():
                    print(json.dumps(["row", row]), file=out, flush=True)
            except Fault as e:
                print(json.dumps(["fault", [e.code, str(e)]]), file=out)
            except MemoryError:
                print(json.dumps(["fault", [TRY_AGAIN, "out of memory"]]), file=out)
        code = 0
    except KeyboardInterrupt:
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
