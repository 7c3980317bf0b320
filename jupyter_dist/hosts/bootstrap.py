"""The program that a host is given, as one argument, to fetch our code from a store and be a courier."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path

from ..agent import stores

__all__ = ["courier_program"]


def courier_program() -> str:
    """For `python -I -c`; told what it needs by its environment (agent/courier.py)."""
    packed = base64.b64encode(zlib.compress(Path(stores.__file__).read_bytes(), 9)).decode()
    return _BOOTSTRAP.replace("PACKED", packed)


# Data URLs of stores differ from host to host; what is executed has the hash that the driver has named.
_BOOTSTRAP = """
import atexit, base64, hashlib, os, runpy, sys, tempfile, time, types, zlib
stores = types.ModuleType("stores")
sys.modules["stores"] = stores
exec(zlib.decompress(base64.b64decode("PACKED")), stores.__dict__)
url = os.environ["JUPYTER_DIST_MAILBOX"]
store = stores.open_store(url, os.environ)
waits_s = float(os.environ.get("JUPYTER_DIST_MAILBOX_WAITS_S", 600))
digest = os.environ["JUPYTER_DIST_MAILBOX_CODE"]
begin = time.monotonic()
while True:
    try:
        code = store.get("code/" + digest)
        why = "it is not there"
    except stores.StoreError as error:
        if isinstance(error, stores.DeniedError) and time.monotonic() > begin + 10:
            raise PermissionError(str(error)) from None
        code, why = None, error
    if code is not None and hashlib.sha256(code).hexdigest() == digest:
        break
    if time.monotonic() > begin + waits_s:
        sys.exit("no code for this host in %s: %s" % (url, why))
    time.sleep(1)
fd, path = tempfile.mkstemp(suffix=".zip")
atexit.register(os.unlink, path)
with os.fdopen(fd, "wb") as file:
    file.write(code)
sys.path.insert(0, path)
runpy.run_module("jupyter_dist.agent.courier", run_name="__main__")
"""
