"""Where the processes of a cluster listen."""

import os
import pathlib
import socket
import stat
import sys
import tempfile
import unittest
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parents[1] / "deploy/local/cluster"
sys.path.insert(0, str(PACKAGE))

import exits  # noqa: E402
import layout  # noqa: E402
import options  # noqa: E402
import sockets  # noqa: E402


def parse(*arguments):
    parser = options.up_parser("up")
    return parser.parse_args(arguments)


class SocketsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-test-", dir="/tmp")
        self.addCleanup(folder.cleanup)
        self.run_dir = folder.name
        os.environ.pop("XDG_RUNTIME_DIR", None)

    def long_dir(self):
        path = os.path.join(self.run_dir, "x" * 100)
        os.mkdir(path)
        return path

    def test_a_short_run_folder_has_the_files_itself(self):
        self.assertEqual(sockets.folder(self.run_dir), self.run_dir)

    def test_a_long_run_folder_gets_a_private_one(self):
        folder = sockets.folder(self.long_dir())
        self.addCleanup(sockets.remove_folder, folder, self.run_dir)
        self.assertEqual(stat.S_IMODE(os.stat(folder).st_mode), 0o700)
        self.assertLessEqual(len(f"{folder}/expert-9999.sock"),
                             sockets.MAX_PATH)

    def test_so_does_one_whose_name_would_be_misread(self):
        for name in ("a,b", "a b", "a%41", "a:b", "a?b", "\u00e4"):
            path = os.path.join(self.run_dir, name)
            os.mkdir(path)
            folder = sockets.folder(path)
            self.assertNotIn(name, folder)
            sockets.remove_folder(folder, path)
            self.assertFalse(os.path.exists(folder))

    def test_without_a_short_folder_the_way_out_is_named(self):
        with mock.patch.object(sockets.tempfile, "mkdtemp",
                               side_effect=PermissionError):
            with self.assertRaisesRegex(exits.Failure, "--tcp"):
                sockets.folder(self.long_dir())

    def test_what_is_left_behind_is_removed(self):
        run_dir = self.long_dir()
        folder = sockets.folder(run_dir)
        address = f"unix:{folder}/stage-0.sock"
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(address[5:])
        pathlib.Path(address[5:] + ".lock").touch()
        sockets.remove([address, "127.0.0.1:8080"], run_dir)
        self.assertFalse(os.path.exists(folder))

    def test_a_run_folder_stays_with_what_is_not_ours(self):
        keep = pathlib.Path(self.run_dir, "stage-0.log")
        keep.touch()
        pathlib.Path(self.run_dir, "stage-0.sock").touch()
        sockets.remove([f"unix:{self.run_dir}/stage-0.sock"], self.run_dir)
        self.assertEqual(os.listdir(self.run_dir), ["stage-0.log"])


class LayoutTest(unittest.TestCase):
    def processes(self, *arguments):
        with mock.patch.object(layout, "binary",
                               side_effect=lambda service, name=None:
                               f"/bin/{service}"):
            return layout.make_processes(parse("--port", "0", *arguments),
                                         "/model", 8080)

    def test_stages_listen_where_the_gateway_asks_for_them(self):
        *stages, gateway = self.processes("--stages", "2", "--run-dir", "/r")
        addresses = [stage.addresses[0] for stage in stages]
        self.assertEqual(addresses, ["unix:/r/stage-0.sock",
                                     "unix:/r/stage-1.sock"])
        for stage in stages:
            argv = stage.argv
            self.assertEqual(argv[argv.index("--listen") + 1],
                             stage.addresses[0])
        argv = gateway.argv
        self.assertEqual(argv[argv.index("--stages") + 1],
                         ",".join(addresses))

    def test_with_tcp_they_have_ports(self):
        *stages, _ = self.processes("--stages", "2", "--run-dir", "/r",
                                    "--tcp")
        places = {place for stage in stages
                  for place in (stage.addresses[0], stage.metrics_address)}
        self.assertEqual(len(places), 4)
        for place in places:
            self.assertRegex(place, r"^127\.0\.0\.1:\d+$")

    def test_a_folder_is_not_left_when_the_layout_fails(self):
        with tempfile.TemporaryDirectory(dir="/tmp") as base, \
                mock.patch.dict(os.environ, XDG_RUNTIME_DIR=base), \
                mock.patch.object(layout.ports, "choose",
                                  side_effect=exits.Failure(7, "no ports")):
            with self.assertRaises(exits.Failure):
                self.processes("--run-dir", "/" + "x" * 100)
            self.assertEqual(os.listdir(base), [])


if __name__ == "__main__":
    unittest.main()
