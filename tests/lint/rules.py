"""Who may include whom: the layer table of common/README.md as data.

A room is the longest prefix in ROOMS that a file's path has. It may include
itself, the rooms named here, and the third-party families named here. What is
not named is forbidden.
"""

import re

# room -> (rooms it may include, third-party families it may include)
_BASE = {"common/base"}
_NOUNS = _BASE | {"common/core", "common/concurrency"}
_TENSOR = _BASE | {"common/tensor", "kernels"}
# What a model is, and how its weights lie on devices.
_MODEL = {"common/model_config", "common/device", "common/model"}
# Device code, without and with both numerics.
_KERNELS = {"kernels", "kernels/cuda/runtime", "kernels/cuda/shared"}
_CUDA = _KERNELS | {"kernels/cuda", "kernels/cuda/canonical",
                    "kernels/cuda/fast"}
# What a process that serves has, whatever it serves.
_PROCESS = _BASE | {"common/concurrency", "common/rpc", "common/metrics",
                    "common/http", "common/weights", "common/model_config",
                    "common/service"}
_PLAIN = {"absl"}
_EDGE = {"absl", "grpc", "protobuf", "generated"}
_STREAMS = {"absl", "grpc", "generated"}

ROOMS = {
    # 0 and 1: ground and math.
    "common/base": (set(), _PLAIN | {"nlohmann"}),
    "kernels": (set(), set()),  # and common/base/check.h, see below
    # Device code. The two numerics never meet below an operation that has a
    # weight of either.
    "kernels/cuda/runtime": (set(), set()),
    "kernels/cuda/shared": ({"kernels", "kernels/cuda/runtime"}, set()),
    "kernels/cuda/canonical": (_KERNELS, set()),
    "kernels/cuda/fast": (_KERNELS, set()),
    "kernels/cuda": (_CUDA, set()),
    # 2: nouns.
    "common/core": (_BASE, _PLAIN),
    "common/concurrency": (_BASE | {"kernels"}, _PLAIN),
    "common/nvml": (_BASE | {"common/concurrency"}, _PLAIN),
    "common/tensor": (_TENSOR, _PLAIN),
    "common/weights": (_TENSOR, _PLAIN | {"openssl"}),
    # 3: doers. engine and model never meet.
    "common/text": (_NOUNS | {"common/weights"}, _PLAIN),
    "common/grammar": (_NOUNS | {"common/text"}, _PLAIN),
    "common/engine": (_NOUNS, _PLAIN),
    "common/model_config": (_BASE | _TENSOR |
                            {"common/core", "common/weights"}, _PLAIN),
    # What decides a split. A rule of its own, PURE, is below.
    "common/placement": (_TENSOR | {"common/core", "common/weights",
                                    "common/model_config"}, _PLAIN),
    "common/sampling": (_BASE | {"common/core", "kernels"}, _PLAIN),
    # A device knows no family, no layer and no config.
    "common/device": (_NOUNS | _TENSOR | {"common/sampling",
                                          "common/device/cuda"}, _PLAIN),
    "common/device/cuda": (_NOUNS | _TENSOR | _CUDA | {
        "common/device", "common/sampling"}, _PLAIN),
    # Requests and sequences are the stage's.
    "common/model": (_NOUNS | _TENSOR | _MODEL |
                     {"common/weights", "common/placement"}, _PLAIN),
    "common/stage": (_NOUNS | _TENSOR | _MODEL |
                     {"common/weights", "common/placement",
                      "common/sampling"}, _PLAIN),
    # 4: edges.
    "common/wire": (_NOUNS | _TENSOR, {"absl", "protobuf", "generated"}),
    "common/rpc": (_BASE | {"common/concurrency", "common/tensor"},
                   _EDGE | {"openssl"}),
    "common/manual": (_BASE, _PLAIN),
    "common/service": (_BASE | {"common/manual", "common/http",
                                "common/metrics"}, _PLAIN | {"cli11"}),
    "common/metrics": (_BASE | {"common/concurrency", "common/nvml"},
                       _PLAIN | {"prometheus", "openssl"}),
    "common/http": (_NOUNS, _PLAIN | {"boost", "openssl"}),
    # Several gateways: who leads, and what the others pass on.
    "common/standby": (_NOUNS | {"common/http"},
                       _PLAIN | {"boost", "openssl"}),
    "common/trace": (_NOUNS | {"common/http"}, _PLAIN),
    # From a conversation to an answer; each dialect beside the others.
    "common/serving": (_NOUNS | {"common/weights", "common/model_config",
                                 "common/text", "common/grammar",
                                 "common/engine", "common/metrics",
                                 "common/http", "common/trace"}, _PLAIN),
    "common/dialects/llamacpp": (_BASE | {"common/core", "common/text",
                                          "common/grammar", "common/http",
                                          "common/serving"}, _PLAIN),
    "common/dialects/messages": (_BASE | {"common/core", "common/text",
                                          "common/grammar", "common/http",
                                          "common/serving"}, _PLAIN),
    "common/dialects/ollama": (_BASE | {"common/core", "common/text",
                                        "common/grammar", "common/http",
                                        "common/serving"}, _PLAIN),
    "common/dialects/openai": (_BASE | {"common/core", "common/text",
                                        "common/grammar", "common/http",
                                        "common/serving"}, _PLAIN),
    "common/dialects/responses": (_BASE | {"common/core", "common/text",
                                           "common/grammar", "common/http",
                                           "common/serving"}, _PLAIN),
    "common/otlp": (_NOUNS | {"common/trace", "common/rpc"}, _STREAMS),
    # Both ends of one protocol: they meet on the wire alone.
    "common/pipeline/gateway": (_NOUNS | {"common/engine",
                                          "common/placement", "common/wire",
                                          "common/rpc"}, _PLAIN),
    "common/pipeline/stage": (_BASE | {"common/core", "common/stage",
                                       "common/wire", "common/rpc",
                                       "common/metrics"},
                              _STREAMS),
    # Both ends: of the processes of one stage.
    "common/pipeline/ranks": (_BASE | _TENSOR | {
        "common/core", "common/concurrency", "common/device",
        "common/model_config", "common/stage", "common/wire", "common/rpc"},
        _STREAMS),
    "common/experts/client": (_BASE | _MODEL | {
        "common/concurrency", "kernels", "common/stage", "common/wire",
        "common/rpc", "common/metrics"}, _PLAIN | {"grpc"}),
    "common/experts/host": (_BASE | _MODEL | {
        "common/concurrency", "common/wire", "common/rpc",
        "common/metrics"}, _STREAMS),
    # The wing behind the command; see WING.
    "common/tools/convert": (_BASE | _TENSOR | {
        "common/concurrency", "common/weights", "common/text",
        "common/model_config"}, _PLAIN),
    # Which columns of a model's matrices matter to a text.
    "common/tools/importance": (_BASE | _TENSOR | {
        "common/core", "common/weights", "common/model_config",
        "common/device", "common/stage"}, _PLAIN),
    # The machine's limits, and where a stage's step spends its time.
    "common/tools/measure": (_NOUNS | _TENSOR | {
        "common/placement", "common/device", "common/stage"}, _PLAIN),
    # Plans of clusters: machines as files, tables, drawings, what starts them.
    "common/tools/plan": (_BASE | {
        "common/core", "common/model_config", "common/placement"},
        _PLAIN | {"cli11"}),
    # A machine's means and a cluster's state, from outside.
    "common/tools/doctor": (_BASE | {
        "kernels", "common/weights", "common/model_config",
        "common/placement", "common/tools/measure", "common/metrics"}, _PLAIN | {"openssl"}),
    "common/tools/hub": (_BASE | {"common/weights"},
                         _PLAIN | {"curl", "nlohmann", "openssl"}),
    # A conversation on the terminal, by any dialect.
    "common/tools/chat": (_BASE | {"common/text", "common/http"}, _PLAIN),
    # A server of the dialect, seen from outside: asked, loaded and checked.
    "common/tools/load": (_BASE | {"common/http"}, _PLAIN | {"boost"}),
    "common/tools/eval": (_BASE | {"common/http", "common/tools/load",
                                   "common/weights"}, _PLAIN),
    # 5: shells. Never one another.
    "services/gateway": (_PROCESS | {"common/core", "common/text",
                                     "common/grammar", "common/engine",
                                     "common/serving", "common/standby",
                                     "common/dialects/llamacpp",
                                     "common/dialects/messages",
                                     "common/dialects/ollama",
                                     "common/dialects/openai",
                                     "common/dialects/responses",
                                     "common/trace", "common/otlp",
                                     "common/pipeline/gateway"}, _PLAIN),
    "services/stage": (_PROCESS | {"common/placement",
                                   "common/pipeline/stage",
                                   "common/pipeline/ranks", "common/stage",
                                   "common/experts/client"},
                       _PLAIN | {"grpc"}),
    "services/expert": (_PROCESS | {"common/experts/host", "common/model"},
                        _PLAIN | {"grpc"}),
    "services/cli": (_NOUNS | _TENSOR | {
        "common/text", "common/engine", "common/weights", "common/http",
        "common/model_config", "common/placement", "common/metrics",
        "common/device", "common/stage", "common/manual", "common/rpc",
        "common/pipeline/gateway", "common/tools/chat",
        "common/tools/convert", "common/tools/doctor", "common/tools/eval",
        "common/tools/hub", "common/tools/importance", "common/tools/load",
        "common/tools/measure", "common/tools/plan"}, _PLAIN | {"cli11"}),
    "tests": (None, None),  # anything
    # Threads as fibres: where kernels run without a GPU.
    "tests/cuda_machine": ({"kernels/cuda/runtime"}, {"boost", "gtest"}),
}

# Single headers allowed over and above the table.
EXTRA = {("kernels", "common/base/check.h"),
         ("common/service", "common/wire/protocol_versions.h"),
         ("services/cli", "common/service/version_text.h"),
         ("services/stage", "common/model/compute_rows.h"),
         ("kernels/cuda", "common/base/check.h"),
         ("kernels/cuda/runtime", "common/base/check.h"),
         ("kernels/cuda/shared", "common/base/check.h"),
         ("kernels/cuda/canonical", "common/base/check.h"),
         ("kernels/cuda/fast", "common/base/check.h"),
         ("tests/cuda_machine", "common/base/check.h")}

# The wing's rooms have one reader, `sluice`: no row above opens them to another
# room, a service that serves least of all.
WING = "common/tools/"
WING_READERS = (WING, "services/cli/", "tests/")

# Headers that a room which decides has no use for: they measure, or open files.
PURE = {"common/placement": re.compile(
    r"(chrono|ctime|time\.h|cstdio|stdio\.h|fstream|iostream|filesystem|thread"
    r"|random|fcntl\.h|unistd\.h|sys/.*"
    r"|common/base/(?!(byte_size|cat|check|json|json_fwd|json_member|status)"
    r"\.h).*|common/weights/(?!model_file\.h).*"
    r"|common/model_config/open_model\.h)$")}

# Headers of a service's server class: whoever embeds one gets no gRPC.
GRPC_FREE = re.compile(r"services/\w+/\w+_server\.h$")

FAMILIES = [
    ("absl", re.compile(r"absl/")),
    ("grpc", re.compile(r"grpc(pp|\+\+)?/|grpc\w*\.h$")),
    ("generated", re.compile(r"(sluice/v1|opentelemetry)/.*\.pb\.h$")),
    ("generated", re.compile(r"proto/.*\.pb\.h$")),
    ("protobuf", re.compile(r"google/protobuf/")),
    ("nlohmann", re.compile(r"nlohmann/")),
    ("prometheus", re.compile(r"prometheus/")),
    ("boost", re.compile(r"boost/")),
    ("cli11", re.compile(r"CLI/")),
    ("openssl", re.compile(r"openssl/")),
    ("curl", re.compile(r"curl/")),
    ("gtest", re.compile(r"g(test|mock)/")),
]


def room_of(path):
    """The room a root-relative path is in, or None."""
    names = [room for room in ROOMS if path.startswith(room + "/")]
    return max(names, key=len) if names else None


def family_of(header):
    """The third-party family of an included header, or None (standard and
    system headers)."""
    for name, pattern in FAMILIES:
        if pattern.match(header):
            return name
    return None
