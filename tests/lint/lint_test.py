"""Tests of the lint itself: what it must catch, what it must let pass."""

import pathlib
import tempfile
import unittest

import include_lint
import rules
import shared_lint
import size_lint
import text_lint
import unity_lint


def includes(name, *headers):
    text = "".join(f"#include {header}\n" for header in headers)
    return include_lint.check_file(name, text)


class IncludeLintTest(unittest.TestCase):
    def test_downward_includes_pass(self):
        self.assertEqual(includes(
            "common/stage/stage.cc", '"common/stage/stage.h"', "<vector>",
            '"kernels/matmul.h"', '"common/core/step_plan.h"'), [])

    def test_engine_and_model_never_meet(self):
        self.assertEqual(
            includes("common/engine/a.cc", "<map>",
                     '"common/stage/stage.h"'),
            ["common/engine/a.cc:2: common/engine may not include "
             "common/stage (common/stage/stage.h)"])
        self.assertTrue(includes("common/model/a.h",
                                 '"common/engine/journal.h"'))

    def test_engine_includes_no_tensor(self):
        self.assertTrue(includes("common/engine/a.h",
                                 '"common/tensor/buffer.h"'))

    def test_model_includes_no_grpc_and_no_proto(self):
        self.assertTrue(includes("common/model/a.h", "<grpcpp/grpcpp.h>"))
        self.assertTrue(includes("common/model/a.h",
                                 '"sluice/v1/stage.pb.h"'))
        self.assertTrue(includes("common/model/a.h",
                                 "<google/protobuf/message.h>"))

    def test_kernels_include_check_alone(self):
        self.assertEqual(includes("kernels/cpu/a.cc", "<immintrin.h>",
                                  '"common/base/check.h"'), [])
        for header in ('"common/base/status.h"', '"absl/types/span.h"',
                       "<nlohmann/json.hpp>", '"common/core/ids.h"'):
            self.assertTrue(includes("kernels/a.h", header), header)

    def test_canonical_and_fast_device_code_never_meet(self):
        for one, other in (("canonical", "fast"), ("fast", "canonical")):
            self.assertTrue(includes(f"kernels/cuda/{one}/a.cc",
                                     f'"kernels/cuda/{other}/b.h"'))
            self.assertEqual(includes(
                f"kernels/cuda/{one}/a.cc", f'"kernels/cuda/{one}/b.h"',
                '"kernels/cuda/shared/b.h"', '"kernels/cuda/runtime/b.h"',
                '"kernels/matmul.h"', '"common/base/check.h"'), [])
            for low in ("shared", "runtime"):
                self.assertTrue(includes(f"kernels/cuda/{low}/a.cc",
                                         f'"kernels/cuda/{one}/b.h"'))
            # An operation that has a weight of either.
            self.assertEqual(includes("kernels/cuda/experts.cc",
                                      f'"kernels/cuda/{one}/b.h"'), [])
            self.assertTrue(includes(f"kernels/cuda/{one}/a.cc",
                                     '"kernels/cuda/experts.h"'))
        self.assertTrue(includes("kernels/cuda/runtime/a.cc",
                                 '"kernels/cuda/shared/b.h"'))

    def test_device_code_is_its_backends_alone(self):
        header = '"kernels/cuda/shared/gather.h"'
        self.assertEqual(includes("common/device/cuda/a.cc", header), [])
        for name in ("kernels/a.cc", "common/device/a.cc", "common/model/a.cc",
                     "services/stage/a.cc", "tests/cuda_machine/a.cc"):
            self.assertTrue(includes(name, header), name)

    def test_services_never_include_one_another(self):
        self.assertTrue(includes("services/gateway/a.cc",
                                 '"services/stage/stage_server.h"'))
        self.assertEqual(includes("services/gateway/a.cc",
                                  '"services/gateway/b.h"'), [])

    def test_sockets_stay_below_the_dialect(self):
        for header in ("<boost/asio.hpp>", "<grpcpp/grpcpp.h>",
                       '"common/rpc/transport.h"'):
            self.assertTrue(includes("common/dialects/openai/a.cc", header),
                            header)
        self.assertEqual(includes("common/dialects/openai/a.cc",
                                  '"common/http/message.h"'), [])
        self.assertTrue(includes("common/http/a.cc",
                                 '"common/serving/error.h"'))
        self.assertTrue(includes("services/gateway/a.cc",
                                 "<boost/asio.hpp>"))

    def test_http_knows_no_other_gateway(self):
        self.assertTrue(includes("common/http/a.cc",
                                 '"common/standby/forwarder.h"'))
        self.assertEqual(includes("common/standby/a.cc",
                                  '"common/http/message.h"'), [])
        for header in ('"common/serving/error.h"',
                       '"services/gateway/audience.h"',
                       '"common/pipeline/gateway/pipeline_status.h"'):
            self.assertTrue(includes("common/standby/a.cc", header), header)

    def test_the_ends_of_a_protocol_never_meet(self):
        for room, one, other in (("pipeline", "gateway", "stage"),
                                 ("experts", "client", "host")):
            for a, b in ((one, other), (other, one)):
                self.assertTrue(includes(f"common/{room}/{a}/x.cc",
                                         f'"common/{room}/{b}/y.h"'))

    def test_the_command_alone_includes_the_tools(self):
        tools = [room for room in rules.ROOMS if room.startswith(rules.WING)]
        self.assertTrue(tools)
        for tool in tools:
            for room in sorted(rules.ROOMS):
                told = includes(f"{room}/x.cc", f'"{tool}/y.h"')
                if room == "tests" or room == "services/cli":
                    self.assertEqual(told, [])
                elif not room.startswith((rules.WING, "tests/")):
                    self.assertEqual(told, [
                        f"{room}/x.cc:1: {tool}/y.h: services/cli and tests "
                        "alone include the tools"])

    def test_placement_measures_nothing_and_opens_no_files(self):
        for header in ("<chrono>", "<fstream>", "<sys/stat.h>",
                       "<thread>", "<cstdio>", '"common/base/clock.h"',
                       '"common/base/text_file.h"',
                       '"common/weights/gguf_file.h"',
                       '"common/model_config/open_model.h"',
                       '"common/tools/measure/measure_rates.h"'):
            self.assertTrue(includes("common/placement/a.cc", header), header)
        for header in ("<sstream>", '"common/base/byte_size.h"',
                       '"common/model_config/layer_range.h"'):
            self.assertEqual(includes("common/placement/a.cc", header), [])

    def test_a_servers_header_is_free_of_grpc(self):
        self.assertTrue(includes("services/stage/stage_server.h",
                                 "<grpcpp/server.h>"))
        self.assertEqual(includes("services/stage/stage_server.cc",
                                  "<grpcpp/server.h>"), [])

    def test_json_stays_behind_its_header(self):
        self.assertTrue(includes("common/weights/a.cc",
                                 "<nlohmann/json.hpp>"))

    def test_includes_are_relative_to_the_root(self):
        self.assertTrue(includes("common/engine/a.cc", '"journal.h"'))

    def test_an_unknown_room_is_told(self):
        self.assertTrue(includes("common/engine/a.cc",
                                 '"common/utils/all.h"'))

    def test_a_commented_include_with_spaces_is_still_parsed(self):
        self.assertTrue(include_lint.check_file(
            "kernels/a.h", '#  include   "common/core/ids.h"\n'))


class SizeLintTest(unittest.TestCase):
    BODY = "  x();\n"

    def test_functions_are_measured_from_signature_to_brace(self):
        text = ("namespace a {\nint F(int a,\n      int b) {\n"
                + self.BODY * 3 + "}\nclass C {\n  C() : v_{1} {}\n"
                "  int v_ = 0;\n};\n}  // namespace a\n")
        found = size_lint.functions("common/a.cc", text)
        self.assertEqual([(f.name, f.line, f.lines, f.parameters)
                          for f in found],
                         [("F", 2, 6, 2), ("C", 9, 1, 0)])

    def test_a_long_function_is_told_outside_tests(self):
        text = "void F() {\n" + self.BODY * 39 + "}\n"
        self.assertEqual(size_lint.check_file("common/a.cc", text),
                         ["common/a.cc:1: F: 41 lines; beyond 40 look for a "
                          "second subject"])
        self.assertEqual(size_lint.check_file("tests/a.cc", text), [])
        self.assertEqual(size_lint.check_file(
            "common/a.cc", text.replace(self.BODY, "", 1)), [])

    def test_braces_in_literals_do_not_count(self):
        text = ('void F() {\n  a("}");  // {\n  b(\'{\');\n'
                '  c(R"x(}})x");\n}\nvoid G() {}\n')
        self.assertEqual([f.name for f in size_lint.functions("a.cc", text)],
                         ["F", "G"])

    def test_a_table_is_no_function(self):
        text = "const int kTable[] = {\n" + "  1,\n" * 200 + "};\n"
        self.assertEqual(size_lint.check_file("common/a.cc", text), [])

    def test_long_files_are_told(self):
        for name in ("a.h", "tests/a.cc", "a.py"):
            self.assertEqual(size_lint.check_file(name, "\n" * 450), [])
            self.assertEqual(size_lint.check_file(name, "\n" * 451),
                             [f"{name}: 451 lines; 450 are a long file"])

    def test_many_parameters_are_told(self):
        def check(count):
            many = ", ".join(f"int p{i}" for i in range(count))
            return size_lint.check_file("a.cc", f"void F({many}) {{}}\n")
        self.assertEqual(check(6), [])
        self.assertTrue(check(7))

    def test_members_that_change_and_public_methods_are_counted(self):
        text = ("class A : public B {\n public:\n  A(int x);\n"
                "  ~A() override;\n  A(const A&) = delete;\n"
                "  virtual void Pure() = 0;\n  void One(\n      int x);\n"
                "  int x() const { return x_; }\n"
                "  template <typename T>\n  void Two() {\n    x_ = 1;\n  }\n"
                "  struct Inner {\n    void F();\n    int y = 0;\n  };\n"
                "  enum class Kind { kA, kB };\n"
                "  using Call = std::function<void(int)>;\n\n"
                " private:\n  void Own();\n"
                "  const std::string name_;\n  Engine& engine_;\n"
                "  const Engine* watched_ = nullptr;\n"
                "  std::function<void(int)> call_;\n"
                "  std::vector<int> list_{1, 2};\n"
                "  static constexpr int kMost = 3;\n"
                "  Clock* const clock_;\n"
                "  TimePoint at_ = Clock::now();\n"
                "  std::map<int, int> by_id_ = {{1, 2}};\n"
                "  int x_ SLUICE_GUARDED_BY(m_) = 0;\n};\n")
        self.assertEqual([(c.name, c.members, c.methods)
                          for c in size_lint.classes("common/a.h", text)],
                         [("A", 6, 4)])

    def test_a_class_of_many_members_or_methods_is_told(self):
        def check(members, methods):
            return size_lint.check_file("common/a.h", "class A {\n public:\n"
                + "".join(f"  void F{i}();\n" for i in range(methods))
                + " private:\n"
                + "".join(f"  int m{i}_;\n" for i in range(members)) + "};\n")
        self.assertEqual(check(15, 15), [])
        self.assertEqual(check(16, 15), ["common/a.h:1: class A: 16 members "
                                         "change; 15 are many"])
        self.assertEqual(check(15, 16), ["common/a.h:1: class A: 16 public "
                                         "methods; 15 are many"])

    def test_a_shell_grows_with_a_reason_alone(self):
        before = {"services/a/main.cc": 10, "services/a/x/y.h": 20,
                  "services/b/main.cc": 7, "common/a/b.cc": 9}
        after = before | {"services/a/x/y.h": 21, "services/a/page.js": 90,
                          "services/c/main.cc": 5, "common/a/b.cc": 99}
        told = ["services/a: 31 lines of C++, 30 in the commit before: a "
                "decision belongs in a room; else the commit says "
                "`Shell: a: why`"]
        self.assertEqual(size_lint.grown(before, after, "a: b\n"), told)
        self.assertEqual(size_lint.grown(
            before, after, "a: b\n\nShell: a:\nShell: b: x\n"), told)
        self.assertEqual(size_lint.grown(
            before, after, "a: b\n\nShell: a: wires the new room\n"), [])
        self.assertEqual(size_lint.grown(after, before, ""), [])


class TextLintTest(unittest.TestCase):
    def test_the_guard_is_the_path(self):
        good = ("#ifndef SLUICE_COMMON_BASE_A_H_\n"
                "#define SLUICE_COMMON_BASE_A_H_\n")
        self.assertEqual(text_lint.check_guard("common/base/a.h", good), [])
        self.assertTrue(text_lint.check_guard("common/base/b.h", good))

    def test_paths_of_one_machine_are_told(self):
        self.assertTrue(text_lint.check_words("a.md", "see /" + "root/x"))
        self.assertTrue(text_lint.check_words("a.md", "/" + "work/main/x"))
        self.assertEqual(text_lint.check_words("a.md", "~/.cache/x"), [])

    def test_unfinished_work_is_told(self):
        self.assertTrue(text_lint.check_words("a.cc", "// TO" + "DO: x"))

    def test_old_words_are_told_in_the_product_alone(self):
        for name, told in (("common/a/x.h", True), ("tests/a/x.h", False)):
            self.assertEqual(bool(text_lint.check_words(
                name, "// Whoever reads it, frees it.")), told)

    def test_a_room_without_readme_is_told(self):
        self.assertEqual(text_lint.folders_without_readme(
            {"common/README.md", "common/a/x.cc", "common/b/x.cc",
             "common/b/README.md"}), ["common/a"])

    def test_a_long_readme_of_a_room_is_told(self):
        self.assertTrue(text_lint.long_readme("common/a/README.md", "x\n" * 61))
        self.assertEqual(
            text_lint.long_readme("common/a/README.md", "x\n" * 60), [])
        self.assertEqual(text_lint.long_readme("README.md", "x\n" * 99), [])


class SharedLintTest(unittest.TestCase):
    def test_a_folder_beside_the_checkout_is_told(self):
        for text in ("SLUICE_SHA" "RED", "../sha" "red/x",
                     "SLUICE_REQUIRE_SHA" "RED("):
            self.assertEqual(
                len(shared_lint.check_file("a.cc", f"\n {text}\n")), 1, text)
        self.assertEqual(shared_lint.check_file(
            "a.cc", "std::shared_ptr<SharedDataset> ../sha" "red_lib"), [])


class UnityLintTest(unittest.TestCase):
    def test_a_targets_unnamed_namespaces_share_no_name(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, line in (("a", "constexpr int kSize = 1;"),
                               ("b", "const char* const kSize[] = {};"),
                               ("c", "struct Other {};\nint kSize(int);")):
                (root / f"{name}.cc").write_text(
                    f"namespace {{\n{line}\n}}  // namespace\n")
            for listed, told in (("a.cc b.cc", 1), ("a.cc c.cc", 0)):
                (root / "CMakeLists.txt").write_text(
                    f"sluice_library(x GRPC\n  SRCS {listed}\n  DEPS y)\n")
                self.assertEqual(len(unity_lint.check(root)), told, listed)


if __name__ == "__main__":
    unittest.main()
