"""A plug-in of pytest for kazoo's own suite: a server that is there already stands for the cluster
that the suite would start.

`KAZOO_SERVER` is the server's address. To stop or start the server, the plug-in makes a file in the
folder `KAZOO_CONTROL`, and waits until the other side has removed the file.
"""

import os
import time
from pathlib import Path

from kazoo.testing import harness


class OnlyServer:
    """The only server."""

    def __init__(self):
        self.address = self.secure_address = os.environ["KAZOO_SERVER"]
        self.running = True

    def run(self):
        self._ask("run")
        self.running = True

    def stop(self):
        self._ask("stop")
        self.running = False

    def _ask(self, name):
        wanted = Path(os.environ["KAZOO_CONTROL"]) / name
        wanted.touch()
        while wanted.exists():
            time.sleep(0.01)


class OnlyCluster(list):
    """Servers, as the suite's own cluster has them."""

    def start(self):
        self[0].run()

    def terminate(self):
        self[0].stop()

    def get_logs(self):
        return []


CLUSTER = OnlyCluster([OnlyServer()])
harness.get_global_cluster = lambda: CLUSTER
