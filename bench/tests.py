#!/usr/bin/env python3
"""What the benchmark says of results that are made up, what it lists, that it ends when it is told to, and what its long path does.
`make test` runs these."""

import bz2
import contextlib
import gzip
import io
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import floods  # noqa: E402
import harness  # noqa: E402
import http3  # noqa: E402
import kept  # noqa: E402
import load  # noqa: E402
import lookup  # noqa: E402
import measures  # noqa: E402
import mrt  # noqa: E402
import packet  # noqa: E402
import report  # noqa: E402
import rows  # noqa: E402
import run  # noqa: E402


def result(mtu=65536, warm_up_s=measures.WARM_UP_S, **by_row):
    """As one is written: row -> contender -> requests a second."""
    medians = {row: {name: {"per_s": value} for name, value in by.items()} for row, by in by_row.items()}
    return {"mtu": mtu, "warm_up_s": warm_up_s, "delay_round_trip_ms": 2 * rows.DELAY_ONE_WAY_MS, "medians": medians, "rows": report.rows(medians)}


def stub(folder, name, script):
    """A program that does this."""
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.write(f"#!/bin/sh\n{script}\n")
    os.chmod(path, 0o755)


class Moved(unittest.TestCase):
    def test_each_row_is_compared_with_the_newest_result_that_has_it(self):
        committed = [("c", result(keepalive={"sallyport": 300, "frp": 100})),
                     ("b", result(keepalive={"sallyport": 100, "frp": 100}, tcp_keepalive={"sallyport": 200, "rathole": 100})),
                     ("a", result(tcp_keepalive={"sallyport": 100, "rathole": 100}, bodies_64k={"sallyport": 100, "frp": 100}))]
        now = result(keepalive={"sallyport": 600, "frp": 100}, tcp_keepalive={"sallyport": 600, "rathole": 100},
                     bodies_64k={"sallyport": 105, "frp": 100})
        lines = report.moved(now, committed)
        self.assertIn("2 of 3 figures moved", lines[1])
        told = {line.split()[0]: (line.split()[-5], line.split()[-1]) for line in lines[2:]}
        self.assertEqual({"keepalive.per_s": ("+100%", "c"), "tcp_keepalive.per_s": ("+200%", "b")}, told)

    def test_a_result_of_other_conditions_or_contenders_is_passed_over(self):
        committed = [("e", result(mtu=1500, keepalive={"sallyport": 1, "frp": 100})),
                     ("d", result(warm_up_s=None, keepalive={"sallyport": 1, "frp": 100})),
                     ("c", result(keepalive={"sallyport": 1})),
                     ("b", result(keepalive={"frp": 100})),
                     ("a", result(keepalive={"sallyport": 100, "frp": 100}))]
        lines = report.moved(result(keepalive={"sallyport": 200, "frp": 100}), committed)
        self.assertRegex(lines[2], r"keepalive\.per_s .* \+100%  of frp, since a$")

    def test_what_has_nothing_to_be_compared_with_is_named(self):
        lines = report.moved(result(keepalive={"sallyport": 1, "frp": 1}, bodies_64k={"sallyport": 1, "frp": 1}),
                             [("a", result(keepalive={"sallyport": 1, "frp": 1}))])
        self.assertIn("none of 1 figures moved", lines[1])
        self.assertTrue(lines[-1].endswith(": bodies_64k."), lines)
        self.assertEqual([], report.moved(result(keepalive={"sallyport": 1}), []))

    def test_no_results_at_all(self):
        self.assertEqual(["", "No committed result has these under the same conditions, beside a contender of this run: keepalive."],
                         report.moved(result(keepalive={"sallyport": 1, "frp": 1}), []))


class Standing(unittest.TestCase):
    def test_each_target_stands_by_the_newest_result_that_has_both_sides(self):
        committed = [("c", result(connections={"sallyport": 100})),
                     ("b", result(connections={"sallyport": 90, "haproxy-x2": 100})),
                     ("a", result(connections={"sallyport": 110, "haproxy-x2": 100}, bodies_1m={"sallyport": 110, "haproxy-x2": 100}))]
        lines = report.standing(committed)
        self.assertIn("| `connections` | per second | 1.00 of haproxy-x2 | 90 | 100 | 0.90 | **missed**, b |", lines)
        self.assertIn("| `bodies_1m` | per second | 1.00 of haproxy-x2 | 110 | 100 | 1.10 | reached, a |", lines)
        self.assertIn("| `resumed` | per second | | | | | not measured |", lines)

    def test_how_many_rounds_a_result_is_of_is_said(self):
        one, three = ({**result(**{row: {"sallyport": 2, "haproxy-x2": 1}}), "rounds": rounds} for row, rounds in (("connections", 1), ("bodies_1m", 3)))
        lines = report.standing([("b", one), ("a", three)])
        self.assertIn("| `connections` | per second | 1.00 of haproxy-x2 | 2 | 1 | 2.00 | reached, b, 1 round |", lines)
        self.assertIn("| `bodies_1m` | per second | 1.00 of haproxy-x2 | 2 | 1 | 2.00 | reached, a, 3 rounds |", lines)

    def test_a_variant_of_ours_stands_for_itself(self):
        medians = {"packet_forward": {"sallyport": {"net_ns": 300}, "sallyport-fib": {"net_ns": 100}, "kernel": {"net_ns": 600}},
                   "packet_move": {"sallyport-fib": {"moved_s": 0.2}}}
        lines = report.standing([("a", {**result(), "medians": medians})])
        figure = "CPU ns a packet, net of the generator"
        self.assertIn(f"| `packet_forward` | {figure} | 4.00 of kernel | 300 | 600 | 2.00 | **missed**, a |", lines)
        self.assertIn(f"| `packet_forward sallyport-fib` | {figure} | 4.00 of kernel | 100 | 600 | 6.00 | reached, a |", lines)
        moved = "s until a million routes have moved"
        self.assertIn(f"| `packet_move` | {moved} | 0.7 at most |  | | | not measured |", lines)
        self.assertIn(f"| `packet_move sallyport-fib` | {moved} | 0.1 at most | 0.2 | | | **missed**, a |", lines)


class Kept(unittest.TestCase):
    """What runs leave in the folder of results."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def keep(self, hour, mtu=65536, release="0.1.0", samples=(), **by_row):
        """A run at that hour; row -> contender -> requests a second."""
        every = [{"round": 1, "contender": name, "row": row, "figures": {"per_s": value}, "foreign_percent": 0.0}
                 for row, by in by_row.items() for name, value in by.items()]
        return kept.keep(self.folder, {
            **result(mtu, **by_row), "started": f"2026-11-24T{hour:02}:00:00.5+00:00", "machine": {"cores": hour},
            "versions": {"sallyport": f"sallyport {release}"}, "rounds": 1, "seconds": 2,
            "contenders": {"https": {"frp": "by HTTPS"}, "tcp": {"frp": "by TCP"}},
            "commands": {"tcp": {"frp": {"plain": [f"frps {hour}"]}}}, "samples": [*every, *samples]})

    def kept(self):
        """(row, run, what Sallyport has) of all that is kept, the newest run first."""
        return [(row, name[11:13], by["sallyport"]["per_s"]) for name, run in kept.here(self.folder) for row, by in run["medians"].items()]

    def test_a_run_replaces_its_rows_and_no_others(self):
        self.keep(1, tcp_keepalive={"sallyport": 1, "frp": 1}, tcp_bodies_64k={"sallyport": 2, "frp": 1})
        made = self.keep(2, tcp_keepalive={"sallyport": 3, "frp": 1}, keepalive={"sallyport": 4, "frp": 1})
        self.assertEqual(["https.json", "tcp.json"], sorted(os.path.basename(path) for path in made if os.path.isfile(path)))
        self.assertEqual([("keepalive", "02", 4), ("tcp_keepalive", "02", 3), ("tcp_bodies_64k", "01", 2)], self.kept())
        self.keep(3, tcp_bodies_64k={"sallyport": 5, "frp": 1})
        self.assertEqual(["2026-11-24T030000Z", "2026-11-24T020000Z"], [name for name, _ in kept.here(self.folder)])

    def test_figures_of_a_contender_stay_until_a_newer_run_has_that_contender(self):
        self.keep(1, keepalive={"sallyport": 1, "frp": 1, "haproxy-x2": 1})
        self.keep(2, keepalive={"sallyport": 2, "frp": 1})
        self.assertEqual([("keepalive", "02", 2), ("keepalive", "01", 1)], self.kept())
        self.keep(3, keepalive={"sallyport": 3, "haproxy-x2": 1})
        self.assertEqual([("keepalive", "03", 3), ("keepalive", "02", 2)], self.kept())

    def test_a_release_keeps_its_figures_and_so_does_an_mtu(self):
        self.keep(1, keepalive={"sallyport": 1, "frp": 1})
        self.keep(2, keepalive={"sallyport": 2, "frp": 1}, release="0.2.0")
        self.keep(3, keepalive={"sallyport": 3, "frp": 1}, release="0.2.0", mtu=1500)
        self.assertEqual([("keepalive", "03", 3), ("keepalive", "02", 2), ("keepalive", "01", 1)], self.kept())

    def test_an_older_run_does_not_replace_a_newer_one(self):
        self.keep(2, keepalive={"sallyport": 2, "frp": 1})
        self.keep(1, keepalive={"sallyport": 1, "frp": 1})
        self.assertEqual([("keepalive", "02", 2)], self.kept())

    def test_each_figure_has_the_statement_of_its_run(self):
        failed = {"round": 2, "contender": "rathole", "row": "tcp plain", "failed": "it did not start"}
        self.keep(1, tcp_keepalive={"sallyport": 1, "frp": 1}, samples=[failed])
        self.keep(2, tcp_bodies_64k={"sallyport": 2, "frp": 1}, keepalive={"sallyport": 2, "frp": 1})
        (_, newer), (_, older) = kept.here(self.folder)
        self.assertEqual((1, {"tcp": {"frp": {"plain": ["frps 1"]}}}), (older["machine"]["cores"], older["commands"]))
        self.assertEqual((2, {"https": {}, "tcp": {"frp": {"plain": ["frps 2"]}}}), (newer["machine"]["cores"], newer["commands"]))
        self.assertEqual({"https": {"frp": "by HTTPS"}, "tcp": {"frp": "by TCP"}}, newer["contenders"])
        text = pathlib.Path(self.folder, "0.1.0", "tcp.json").read_text()
        content = json.loads(text)
        self.assertEqual([failed], content["runs"]["2026-11-24T010000Z"]["unstarted"])
        self.assertEqual({"round": 1, "contender": "frp", "figures": {"per_s": 1}, "foreign_percent": 0.0},
                         content["rows"]["tcp_keepalive"][0]["samples"][1])
        self.assertEqual(1, text.count("\n"))

    def test_points_of_growth_are_drawn_of_the_newest_results(self):
        def grown(contender, cost):
            points = [{"n": 1, "cpu_us": 1, "both_cpu_us": 1, "server_kib": 1}, {"n": 10, "cpu_us": cost, "both_cpu_us": cost, "server_kib": 2}]
            return {"round": 1, "contender": contender, "row": "growth_sockets", "figures": {}, "foreign_percent": 0.0, "points": points}
        self.keep(1, growth_sockets={"sallyport": 1, "nginx": 1}, samples=[grown("sallyport", 7.5), grown("nginx", 2.5)])
        drawing = pathlib.Path(self.keep(2, growth_sockets={"sallyport": 1}, samples=[grown("sallyport", 1.5)])[-1])
        self.assertEqual("growth.svg", drawing.name)
        self.assertIn("sallyport, 10: 1.5", drawing.read_text())
        self.assertIn("nginx, 10: 2.5", drawing.read_text())
        self.assertNotIn("7.5</title>", drawing.read_text())

    def test_all_that_is_kept_is_shown_with_what_its_run_stated(self):
        done = subprocess.run([*RUN, "--kept", "--rows", "udp_echo"], capture_output=True, text=True, check=True)
        self.assertRegex(done.stdout, r"^\d{4}-\d\d-\d\dT\d{6}Z: .* cores, .* MTU \d+\n.*sallyport .*\n  sallyport, udp plain: sallyport up ")
        self.assertIn("16 clients with 16 of 128 bytes under way, per second", done.stdout)
        self.assertNotIn("60 times a second", done.stdout)


class Floods(unittest.TestCase):
    def test_memory_is_read_before_while_it_lasts_and_after(self):
        said, moments = iter([2_048, 8_192, 3_072]), []

        @contextlib.contextmanager
        def flood():
            moments.append("begins")
            yield
            moments.append("ends")

        def memory():
            moments.append("read")
            return next(said)

        figures = floods.around(memory, flood(), after_s=0, settle_s=0)
        self.assertEqual({"before_mib": 2, "held_mib": 8, "left_mib": 3, "left_times": 1.5}, figures)
        self.assertEqual(["read", "begins", "read", "ends", "read"], moments)

    def test_slow_readers_hold_up_who_writes_to_them_and_leave(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        taken = []

        def serve():
            for _ in range(3):
                stream, _ = listener.accept()
                stream.recv(4_096)
                stream.setblocking(False)
                taken.append(stream)
                stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        with floods.reading_nothing(load.Target("127.0.0.1", listener.getsockname()[1], tls=False), "/endless", 3):
            server.join(20)
            self.assertEqual(3, len(taken))
            for stream in taken:
                with self.assertRaises(BlockingIOError):
                    for _ in range(10_000):
                        stream.send(bytes(65_536))
        for stream in taken:
            stream.setblocking(True)
            stream.settimeout(20)
            with self.assertRaises(ConnectionError):
                while True:
                    stream.send(bytes(65_536))
            stream.close()

    def test_guesses_are_made_and_their_answers_looked_at(self):
        asked = []
        with floods.guessing(lambda number: asked.append(number) or 401, 5):
            self.assertEqual([0, 1, 2, 3, 4], sorted(asked))
        for status in (200, 500, 429):
            with self.assertRaises(harness.Failed), floods.guessing(lambda _, status=status: status, 2):
                pass


class Packets(unittest.TestCase):
    def test_a_figure_is_the_difference_of_medians(self):
        figures = packet.figures_of([0.1, 0.11, 9.0], [0.2, 0.21, 0.22], 100.0)
        self.assertAlmostEqual((0.21 - 0.11) / packet.FRAMES * 1e9, figures["net_ns"])

    def alternated(self, shares):
        """The runs of a cell whose sink gets these shares of the frames, one after the other."""
        bed = unittest.mock.Mock(**{"peer.side_effect": ["to", "drop"], "send.side_effect": lambda device, *_: {"g0": 2.0, "b0": 1.0}[device]})
        counts = [count for share in shares for count in (0, int(packet.FRAMES * share))]
        with unittest.mock.patch.object(packet, "dropped", side_effect=counts[::2]), \
                unittest.mock.patch.object(packet, "settled", side_effect=counts[1::2]):
            return packet.alternate(bed, 0), [call.args[0] for call in bed.send.call_args_list]

    def test_runs_alternate_and_those_that_lost_frames_do_not_count(self):
        (baseline, through, arrived), devices = self.alternated([1, 0.5, *[1] * (packet.LEAST_RUNS - 1)])
        self.assertEqual(([1.0] * packet.LEAST_RUNS, [2.0] * packet.LEAST_RUNS, 100.0), (baseline, through, arrived))
        self.assertEqual(["b0", "g0"] * (packet.LEAST_RUNS + 1), devices)

    def test_frames_that_are_lost_time_and_again_are_no_measurement(self):
        with self.assertRaisesRegex(harness.Failed, "only 99.00 % of the frames came through, time and again"):
            self.alternated([0.99] * 20)


class Mrt(unittest.TestCase):
    """The reader of MRT files, by files that are made."""

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def path(self, name, content=None):
        path = os.path.join(self.folder, name)
        if content is not None:
            with open(path, "wb") as file:
                file.write(content)
        return path

    def written(self, prefixes):
        mrt.write(self.path("a.mrt"), prefixes)
        with open(self.path("a.mrt"), "rb") as file:
            return file.read()

    def test_what_is_written_is_read_however_it_is_packed(self):
        table = mrt.made(2_000)
        content = self.written(table)
        for name, pack in (("plain", bytes), ("b.gz", gzip.compress), ("c.bz2", bz2.compress)):
            self.assertEqual(table, mrt.read(self.path(name, pack(content))), name)

    def test_a_made_table_has_the_lengths_of_the_internet(self):
        table = mrt.made(20_000)
        share = sum(bits == 24 for _, bits in table) / len(table)
        self.assertAlmostEqual(0.613, share, delta=0.01)
        self.assertFalse([prefix for prefix in table if mrt.is_left_out(*prefix)])
        self.assertTrue(mrt.is_left_out(0, 0) and mrt.is_left_out(10 << 24, 16) and mrt.is_left_out(0, 4))

    def test_the_longest_prefix_counts(self):
        table = {(1 << 24, 8), (1 << 24 | 2 << 16, 16), (1 << 24 | 2 << 16 | 3 << 8, 24)}
        self.assertEqual([24, 16, 8, None], [mrt.longest(table, address) for address in (0x01020304, 0x01020404, 0x01030303, 0x02000000)])

    def test_files_that_are_none_have_a_sentence(self):
        content = self.written(mrt.made(1_000))
        for broken, words in ((content[:-1], "ends within a record"), (content[:5], "ends within a record"), (b"", "no RIB of IPv4"),
                              (b"x" * 4_096, "it is no MRT file"), (self.written([(0, 33)]), "a prefix of 33 bits")):
            with self.assertRaisesRegex(ValueError, words):
                mrt.read(self.path("broken", broken))

    def test_what_cannot_be_unpacked_has_a_sentence(self):
        packed = bytearray(gzip.compress(self.written(mrt.made(1_000))))
        packed[10:40] = b"\xff" * 30
        path = self.path("broken.gz", bytes(packed))
        with unittest.mock.patch.dict(os.environ, {"BENCH_MRT": path}), self.assertRaisesRegex(mrt.Unavailable, "decompressing"):
            mrt.table_of(None)


class Lookups(unittest.TestCase):
    """The cost of a lookup, net of what only makes the addresses."""

    def test_a_figure_is_the_difference_of_medians_and_each_address_has_a_route(self):
        programs = unittest.mock.Mock(**{"run.side_effect": lambda name, _: (0.3, lookup.LOOKUPS) if name == "look_up_fib" else (0.1, 0)})
        self.assertAlmostEqual(0.2 / (lookup.LOOKUPS * lookup.RUNS) * 1e9, lookup.cost(programs, "look_up_fib", 10, 0))
        programs.run.side_effect = lambda *_: (0.1, 7)
        with self.assertRaisesRegex(harness.Failed, "only 7 of 65536 addresses have a route"):
            lookup.cost(programs, "look_up_fib", 10, 0)


class OverHttp3(unittest.TestCase):
    """The load of HTTP/3 and HTTP/2, by a program that prints what it is told to."""

    def contender(self, script):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        stub(folder.name, "http3-load", script)
        bench = unittest.mock.Mock(idle_connections=10, settle_seconds=0, tool=lambda name: os.path.join(folder.name, name))
        return unittest.mock.Mock(bench=bench, version="3", pids=lambda *_: [], target=lambda name: load.Target(name, 443, tls=True))

    def test_requests_are_those_after_the_warm_up(self):
        said = {"count": 500, "seconds": 2.0, "p50_ms": 1.5, "p99_ms": 4.5, "failed": 1, "first_failure": "status 502"}
        argued = f'[ "$*" = "requests 3 127.0.0.1:443 {http3.PAGES} /100b 32 1 $8" ] || exit 1; [ $8 = 2 ] && echo '
        figures = http3.requests(32, 1, self.contender(f"{argued} '{json.dumps(said)}' || echo '{json.dumps(said | {'count': 1})}'"), 2)
        self.assertEqual((250.0, 1.5, 4.5, "1: status 502"), tuple(figures[figure] for figure in ("per_s", "p50_ms", "p99_ms", "errors")))

    def test_no_answers_and_a_load_that_fails_are_failures(self):
        said = json.dumps({"count": 0, "first_failure": "status 502"})
        for script, failure in ((f"echo '{said}'", "no answers: status 502"), ("echo no way >&2; exit 1", "no way")):
            with self.assertRaisesRegex(harness.Failed, failure):
                http3.connections(32, self.contender(script), 1)

    def test_a_download_is_what_came_in_its_time(self):
        said = json.dumps({"bytes": 2_000_000_000, "seconds": 4.0})
        self.assertEqual(4.0, http3.bulk("down", 8, self.contender(f"echo '{said}'"), 4)["gbit_s"])

    def test_connections_that_did_not_stay_are_a_failure(self):
        hold = 'shift 5; for count; do echo "$count"; read -r _; done; echo {}'
        self.assertEqual({"server_kib": 0.0, "client_kib": 0.0}, http3.idle_connection(self.contender(hold.format(20)), 1))
        with self.assertRaisesRegex(harness.Failed, "of 20 connections 19 were left"):
            http3.idle_connection(self.contender(hold.format(19)), 1)


RUN = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "run.py")]


class Listed(unittest.TestCase):
    def test_every_row_is_listed(self):
        done = subprocess.run([*RUN, "--list"], capture_output=True, text=True, check=True)
        words = set(done.stdout.split())
        self.assertEqual([], [row.name for table in rows.SETS.values() for row in table if row.name not in words])

    def test_a_row_that_is_not_there_gets_a_sentence(self):
        done = subprocess.run([*RUN, "--rows", "keepalives"], capture_output=True, text=True)
        self.assertEqual((2, "bench: no set and no row is named keepalives; `python3 bench/run.py --list` lists them all\n"),
                         (done.returncode, done.stderr))


class Missing(unittest.TestCase):
    def test_what_is_missing_is_named_before_anything_is_built(self):
        with tempfile.TemporaryDirectory() as programs:
            for name in run.PROGRAMS.values():
                stub(programs, name, "exit 1")
            os.remove(os.path.join(programs, "wrk"))
            # A build, or what asks for root, would fail by another sentence: neither is in this path.
            done = subprocess.run([*RUN, "--rows", "tcp_binary", "--only", "sallyport"], env={"PATH": programs}, capture_output=True, text=True)
        self.assertEqual((2, "", "bench: there is no wrk; `scripts/need wrk` installs what is missing\n"),
                         (done.returncode, done.stdout, done.stderr))

    def test_what_a_contender_needs_is_missing_where_it_is_measured(self):
        with unittest.mock.patch.object(run.shutil, "which", lambda *_, **__: None), \
                unittest.mock.patch.object(sys, "argv", ["run.py", "--rows", "keepalive"]), contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertRaises(SystemExit, run.need_programs, run.options())
        self.assertIn("no curl and no haproxy and no iproute and no nginx and no openssl and no wrk; `scripts/need curl haproxy ", said.getvalue())

    def test_a_list_needs_none_of_them(self):
        with tempfile.TemporaryDirectory() as nothing:
            done = subprocess.run([*RUN, "--list"], env={"PATH": nothing}, capture_output=True, text=True)
        self.assertEqual((0, ""), (done.returncode, done.stderr))


class Ended(unittest.TestCase):
    def test_sigterm_ends_a_build_and_leaves_no_folder(self):
        with tempfile.TemporaryDirectory() as programs, tempfile.TemporaryDirectory() as left:
            started = os.path.join(programs, "started")
            # It builds nothing, and does not end; nothing asks `sudo` before that.
            for name in ("cargo", "sudo", *run.PROGRAMS.values()):
                stub(programs, name, f"echo $$ > {started}.new && mv {started}.new {started}\nexec sleep 600")
            environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "TMPDIR": left}
            bench = subprocess.Popen([*RUN, "--rows", "tcp_binary", "--only", "sallyport"], env=environment, stdout=subprocess.DEVNULL)
            try:
                deadline = time.monotonic() + 60
                while not os.path.exists(started) and bench.poll() is None and time.monotonic() < deadline:
                    time.sleep(0.01)
                with open(started) as file:
                    builder = int(file.read())
                self.assertEqual(1, len(os.listdir(left)))
                bench.send_signal(signal.SIGTERM)
                self.assertEqual(128 + signal.SIGTERM, bench.wait(60))
            finally:
                bench.kill()
                bench.wait()
            self.assertEqual([], os.listdir(left))
            self.assertRaises(ProcessLookupError, os.kill, builder, 0)


class Rest(unittest.TestCase):
    def test_what_next_to_nothing_costs_is_seen(self):
        with subprocess.Popen(["sleep", "60"]) as process:
            try:
                while pathlib.Path(f"/proc/{process.pid}/comm").read_text() != "sleep\n":
                    time.sleep(0.01)
                took = harness.ran_seconds({}, harness.running_times([process.pid]))
            finally:
                process.kill()
        self.assertTrue(0 < took < 1, took)


class Relay(unittest.TestCase):
    """The relay that stands in for a long path."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="sallyport-bench-test.")
        cls.addClassCleanup(folder.cleanup)
        cls.program = f"{folder.name}/delay"
        subprocess.run(["rustc", "-O", "--edition", "2024", "-o", cls.program, f"{run.HERE}/delay.rs"], check=True)

    def relay(self, path):
        """A connection through it, and the other end of that; both end with the test."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        process = subprocess.Popen([self.program, path, f"127.0.0.1:{port}=127.0.0.1:{listener.getsockname()[1]}"])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        listener.settimeout(20)
        deadline = time.monotonic() + 20
        while True:
            try:
                near = socket.create_connection(("127.0.0.1", port), 20)
                break
            except ConnectionRefusedError:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)
        self.addCleanup(near.close)
        far = listener.accept()[0]
        far.settimeout(20)
        self.addCleanup(far.close)
        return near, far

    def test_bytes_and_ends_take_the_time_of_the_way_and_nothing_is_lost(self):
        near, far = self.relay("20")
        begin = time.monotonic()
        near.sendall(b"?")
        # It may have been said while the SYN-ACK was on its way.
        self.assertEqual(b"?", far.recv(9))
        self.assertGreaterEqual(time.monotonic() - begin, 0.02)
        begin = time.monotonic()
        far.sendall(b"!")
        self.assertEqual(b"!", near.recv(9))
        self.assertGreaterEqual(time.monotonic() - begin, 0.02)
        sent = os.urandom(1 << 20) * 80  # more than is held on the way
        sending = threading.Thread(target=lambda: (near.sendall(sent), near.shutdown(socket.SHUT_WR)))
        sending.start()
        time.sleep(0.5)  # until it waits for who reads
        with far.makefile("rb") as reader:
            self.assertTrue(reader.read() == sent, "something was lost or mixed up")
        sending.join()
        # One direction has ended; the other has not.
        far.sendall(b"after")
        self.assertEqual(b"after", near.recv(9))
        far.close()
        self.assertEqual(b"", near.recv(9))

    def test_who_is_gone_ends_the_other_side(self):
        near, far = self.relay("5")
        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        far.close()
        with contextlib.suppress(ConnectionError):
            self.assertEqual(b"", near.recv(9))

    def test_a_slow_way_takes_no_more_than_its_rate(self):
        near, far = self.relay("5:80")
        size, begin = 2_000_000, time.monotonic()
        sending = threading.Thread(target=lambda: (near.sendall(bytes(size)), near.close()))
        sending.start()
        with far.makefile("rb") as reader:
            self.assertEqual(size, len(reader.read()))
        took = time.monotonic() - begin
        sending.join()
        # 10 MB/s; a sleeper that woke up late may have had some milliseconds on credit.
        self.assertGreater(took, 0.19)
        self.assertLess(took, 2)


if __name__ == "__main__":
    unittest.main()
