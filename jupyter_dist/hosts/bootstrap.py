"""Bootstrap program of a host, one argument: fetches our code from a store and runs the mailbox relay."""

from __future__ import annotations

import base64
import inspect
import json
import zlib

from ..agent.stores import aws_credentials, blob_store, folder_store, s3_store, store

__all__ = ["courier_program"]


def courier_program() -> str:
    """Return the program for `python -I -c`. Its settings are in the environment (agent/mailbox_relay.py)."""
    needed = (store, aws_credentials, s3_store, blob_store, folder_store)  # each after those it imports
    sources = [(each.__name__.rpartition(".")[2], inspect.getsource(each)) for each in needed]
    packed = base64.b64encode(zlib.compress(json.dumps(sources).encode(), 9)).decode()
    return _BOOTSTRAP.replace("PACKED", packed)


# The store's URL may differ between hosts. The program runs only code with the hash that the driver has set.
_BOOTSTRAP = """
import atexit, base64, hashlib, json, os, runpy, sys, tempfile, time, types, zlib
package = types.ModuleType("mail")
package.__path__ = []
sys.modules["mail"] = package
for name, source in json.loads(zlib.decompress(base64.b64decode("PACKED"))):
    module = types.ModuleType("mail." + name)
    module.__package__ = "mail"
    sys.modules[module.__name__] = module
    exec(compile(source, name + ".py", "exec"), module.__dict__)
from mail import folder_store, store as mail_store
url = os.environ["JUPYTER_DIST_MAILBOX"]
store = folder_store.open_store(url, os.environ)
waits_s = float(os.environ.get("JUPYTER_DIST_MAILBOX_WAITS_S", 600))
digest = os.environ["JUPYTER_DIST_MAILBOX_CODE"]
begin = time.monotonic()
while True:
    try:
        code = store.get("code/" + digest)
        why = "it is not there"
    except mail_store.StoreError as error:
        if isinstance(error, mail_store.DeniedError) and time.monotonic() > begin + 10:
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
runpy.run_module("jupyter_dist.agent.mailbox_relay", run_name="__main__")
"""
