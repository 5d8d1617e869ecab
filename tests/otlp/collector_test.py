"""The gateway's traces at a collector: a gRPC server made from OpenTelemetry's
own messages (package opentelemetry-proto, Apache 2.0). The spans are a tree with the
client's span above it, their times lie within the request's; a collector that
is slow or gone changes no answer."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from opentelemetry.proto.collector.trace.v1 import (trace_service_pb2,
                                                    trace_service_pb2_grpc)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]
                       / "integration"))
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]
                    / "deploy/local/cluster"))
import api  # noqa: E402
import harness  # noqa: E402
import ports  # noqa: E402
import trace_test  # noqa: E402

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
STREAMS = 8
TOKENS = 40
RESULTS = "sluice_gateway_otlp_traces_total"


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps (resource, span) of all calls; a context manager."""

    def __init__(self, port=0):
        self.spans = []
        self.metadata = {}
        self.answers = threading.Event()
        self.answers.set()
        self._server = grpc.server(
            concurrent.futures.ThreadPoolExecutor(max_workers=4))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(
            self, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self._server.start()

    def Export(self, request, context):  # the protocol's name
        self.metadata.update(context.invocation_metadata())
        self.answers.wait(60)
        for resource in request.resource_spans:
            about = attributes(resource.resource)
            for scope in resource.scope_spans:
                self.spans += [(about, span) for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()

    def roots(self):
        return [span for _, span in list(self.spans)
                if span.name.startswith(("chat", "text_completion"))]

    def close(self):
        self.answers.set()
        self._server.stop(0).wait(10)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def attributes(part):
    def plain(value):
        kind = value.WhichOneof("value")
        if kind == "array_value":
            return [plain(one) for one in value.array_value.values]
        return getattr(value, kind)
    return {one.key: plain(one.value) for one in part.attributes}


@contextlib.contextmanager
def cluster_of(model, stages, port, **variables):
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_SERVICE_NAME": "tested",
        "OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b",
        "OTEL_BSP_SCHEDULE_DELAY": "100", **variables}
    with mock.patch.dict(os.environ, environment):
        cluster = trace_test.HandCluster(model, stages)
    with cluster:
        yield cluster


def exported(url, result):
    _, text = api.get(url, "/metrics")
    label = f'{RESULTS}{{result="{result}"}} '
    return sum(float(line[len(label):]) for line in text.splitlines()
               if line.startswith(label))


class CollectorTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = harness.golden("stories")

    def check_tree(self, spans, begin, end):
        by_id = {span.span_id: span for span in spans}
        self.assertEqual(len(by_id), len(spans))
        for span in spans:
            self.assertEqual(span.trace_id.hex(), TRACE)
            self.assertGreaterEqual(span.start_time_unix_nano, begin)
            self.assertLessEqual(span.end_time_unix_nano, end)
            self.assertLessEqual(span.start_time_unix_nano,
                                 span.end_time_unix_nano)
            above = by_id.get(span.parent_span_id)
            if above is None:
                self.assertEqual(span.parent_span_id.hex(), PARENT, span.name)
                continue
            self.assertGreaterEqual(span.start_time_unix_nano,
                                    above.start_time_unix_nano, span.name)
            self.assertLessEqual(span.end_time_unix_nano,
                                 above.end_time_unix_nano, span.name)

    def check_root(self, root, usage):
        about = attributes(root)
        self.assertEqual(root.parent_span_id.hex(), PARENT)
        self.assertEqual(root.kind, root.SPAN_KIND_SERVER)
        self.assertEqual(about["gen_ai.operation.name"], "text_completion")
        self.assertEqual(root.name,
                         "text_completion " + about["gen_ai.request.model"])
        self.assertEqual(about["gen_ai.usage.input_tokens"],
                         usage["prompt_tokens"])
        self.assertEqual(about["gen_ai.usage.output_tokens"],
                         usage["completion_tokens"])
        self.assertEqual(about["gen_ai.response.finish_reasons"], ["length"])
        self.assertEqual(about["gen_ai.request.max_tokens"], TOKENS)
        self.assertEqual(about["http.response.status_code"], 200)
        self.assertEqual(about["sluice.request.id"], "seen")

    def test_a_request_is_a_tree_below_the_clients_span(self):
        with Collector() as collector, \
                cluster_of(self.model, 2, collector.port) as cluster:
            begin = time.time_ns()
            status, _, body = api.request(
                cluster.url, "POST", "/v1/completions",
                {"prompt": trace_test.PROMPT, "max_tokens": TOKENS,
                 "ignore_eos": True, "seed": 1},
                {"traceparent": f"00-{TRACE}-{PARENT}-01",
                 "X-Request-Id": "seen"})
            self.assertEqual(status, 200, body)
            # Not sampled by the client: not exported.
            api.request(cluster.url, "POST", "/v1/completions",
                        {"prompt": "a", "max_tokens": 1},
                        {"traceparent": f"00-{TRACE}-{PARENT}-00"})
            harness.wait_for(lambda: exported(cluster.url, "sent") >= 1, 20,
                             "an export: " + cluster.logs())
            end = time.time_ns()
            answer = json.loads(body)
        spans = [span for _, span in collector.spans]
        self.assertEqual(len(collector.roots()), 1)
        # The stages' clocks are estimates: spans within a request may stand
        # some microseconds off, never outside of it.
        self.check_tree(spans, begin, end)
        self.check_root(collector.roots()[0], answer["usage"])
        self.assertEqual(collector.spans[0][0]["service.name"], "tested")
        self.assertEqual(collector.metadata["api-key"], "a b")
        names = [span.name for span in spans]
        for name in ("prepare", "queue", "prefill", "decode",
                     "compute stage 0", "compute stage 1", "wire hop 0",
                     "wire hop 1", "wire hop 2", "sample stage 1"):
            self.assertIn(name, names)
        decode = attributes(spans[names.index("decode")])
        self.assertEqual(decode["sluice.tokens"], TOKENS - 1)
        stage = attributes(spans[names.index("compute stage 1")])
        self.assertEqual(stage["sluice.stage.index"], 1)
        self.assertGreater(stage["sluice.stage.last_layer"],
                           stage["sluice.stage.first_layer"])

    def run_streams(self, cluster):
        """Their texts, and the seconds that all took together."""
        def one(number):
            events = []
            status, events = api.stream(
                cluster.url, "/v1/completions",
                {"prompt": trace_test.PROMPT, "max_tokens": TOKENS,
                 "stream": True, "ignore_eos": True, "seed": number})
            self.assertEqual(status, 200)
            return "".join(json.loads(event)["choices"][0]["text"]
                           for event in events if event != "[DONE]")
        begin = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
            texts = list(pool.map(one, range(STREAMS)))
        return texts, time.monotonic() - begin

    def test_a_slow_or_dead_collector_changes_no_stream(self):
        with Collector() as collector, \
                cluster_of(self.model, 2, collector.port,
                           OTEL_EXPORTER_OTLP_TIMEOUT="1000") as cluster:
            self.run_streams(cluster)
            want, calm = self.run_streams(cluster)
            collector.answers.clear()
            slow, slowly = self.run_streams(cluster)
            collector.close()
            dead, without = self.run_streams(cluster)
            print(f"{STREAMS} streams: {calm:.2f} s; collector slow: "
                  f"{slowly:.2f} s, gone: {without:.2f} s", flush=True)
            self.assertEqual(slow, want)
            self.assertEqual(dead, want)
            harness.wait_for(lambda: exported(cluster.url, "failed") > 0, 60,
                             "dropped traces are counted")
            begin = time.monotonic()
        self.assertLess(time.monotonic() - begin, 15, "the gateway's end")

    def test_a_stop_sends_what_waits(self):
        with Collector() as collector:
            with cluster_of(self.model, 1, collector.port,
                            OTEL_BSP_SCHEDULE_DELAY="60000") as cluster:
                for number in range(3):
                    trace_test.generate(cluster.url, 4, f"r{number}",
                                        traced=False)
                self.assertEqual(collector.roots(), [])
            ids = {attributes(root)["sluice.request.id"]
                   for root in collector.roots()}
            self.assertEqual(ids, {"r0", "r1", "r2"})


RECEIVER = """
receivers:
  otlp:
    protocols:
      grpc:
        endpoint: 127.0.0.1:{port}
exporters:
  debug:
    verbosity: detailed
service:
  telemetry:
    metrics:
      level: none
  pipelines:
    traces:
      receivers: [otlp]
      exporters: [debug]
"""


class RealCollectorTest(unittest.TestCase):
    """OpenTelemetry's own collector, which prints what it received."""

    def test_it_reads_the_spans(self):
        program = harness.ROOT / "build/deploy-tools/bin/otelcol"
        if not program.exists():
            self.skipTest("no OpenTelemetry collector (tests/deploy/containers/"
                          "install_tools --long)")
        model = harness.golden("stories")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        port, = ports.choose(1)
        recipe = pathlib.Path(folder.name, "recipe.yaml")
        recipe.write_text(RECEIVER.format(port=port))
        log = pathlib.Path(folder.name, "log")
        with open(log, "wb") as out:
            child = subprocess.Popen([program, "--config", recipe],
                                     stdin=subprocess.DEVNULL, stdout=out,
                                     stderr=out)
        self.addCleanup(child.wait, 30)
        self.addCleanup(child.terminate)
        harness.wait_for(lambda: b"Everything is ready" in log.read_bytes(),
                         60, "the collector is ready")
        with cluster_of(model, 2, port) as cluster:
            status, _, body = api.request(
                cluster.url, "POST", "/v1/completions",
                {"prompt": trace_test.PROMPT, "max_tokens": TOKENS,
                 "ignore_eos": True},
                {"traceparent": f"00-{TRACE}-{PARENT}-01"})
            self.assertEqual(status, 200, body)
            harness.wait_for(lambda: exported(cluster.url, "sent") >= 1, 20,
                             "an export: " + cluster.logs())
            self.assertEqual(exported(cluster.url, "failed"), 0)
        harness.wait_for(lambda: "compute stage 1" in log.read_text(), 20,
                         "the spans are printed")
        text = log.read_text()
        for told in ("service.name: Str(tested)", f"Trace ID       : {TRACE}",
                     f"Parent ID      : {PARENT}", "Kind           : Server",
                     "gen_ai.operation.name: Str(text_completion)",
                     f"gen_ai.usage.output_tokens: Int({TOKENS})",
                     "Name           : prefill", "Name           : wire hop 1"):
            self.assertIn(told, text)


class MessagesTest(unittest.TestCase):
    """proto/opentelemetry/traces.proto against the protocol's own files."""

    def check_same(self, ours, theirs, seen):
        if ours.full_name in seen:
            return
        seen.add(ours.full_name)
        for field in ours.fields:
            other = theirs.fields_by_number.get(field.number)
            what = f"{ours.name}.{field.name}"
            self.assertIsNotNone(other, what)
            self.assertEqual((field.name, field.type, field.is_repeated),
                             (other.name, other.type, other.is_repeated), what)
            if field.message_type:
                self.check_same(field.message_type, other.message_type, seen)
            if field.enum_type:
                for value in field.enum_type.values:
                    self.assertEqual(
                        other.enum_type.values_by_number[value.number].name,
                        value.name)

    def test_the_bytes_are_the_protocols(self):
        with tempfile.NamedTemporaryFile() as made:
            subprocess.run(
                ["protoc", "-I", harness.ROOT / "proto",
                 "--descriptor_set_out", made.name,
                 "opentelemetry/traces.proto"], check=True)
            files = descriptor_pb2.FileDescriptorSet.FromString(made.read())
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
        package = "opentelemetry.proto.collector.trace.v1."
        seen = set()
        for name in ("ExportTraceServiceRequest",
                     "ExportTraceServiceResponse"):
            self.check_same(pool.FindMessageTypeByName(package + name),
                            getattr(trace_service_pb2, name).DESCRIPTOR, seen)
        self.assertGreater(len(seen), 10)
        ours = pool.FindServiceByName(package + "TraceService")
        theirs = trace_service_pb2.DESCRIPTOR.services_by_name["TraceService"]
        self.assertEqual(ours.full_name, theirs.full_name)
        self.assertEqual([method.name for method in ours.methods],
                         [method.name for method in theirs.methods])


if __name__ == "__main__":
    harness.main()
