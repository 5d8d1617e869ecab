// Against the `gguf` Python package, bit for bit. Needs a Python that has it:
// the tests' own environment, or the one that SLUICE_PYTHON names.
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>

#include "common/model_config/open_model.h"
#include "common/model_config/tensor_table.h"
#include "common/weights/model_contents.h"
#include "common/weights/model_file.h"
#include "tests/testing/default_model.h"
#include "tests/testing/test_data.h"
#include "tests/weights/model_files.h"

namespace sluice::weights {
namespace {

using sluice::testing::ReadFileOrDie;
using sluice::testing::TempDir;

std::string Python() {
  const char* named = std::getenv("SLUICE_PYTHON");
  return named != nullptr ? named : SLUICE_VENV_PYTHON;
}

// What `command` prints, or nullopt if it fails.
std::optional<std::string> Output(const std::string& command) {
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  std::string text;
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof(buffer), pipe)) {
    text.append(buffer, got);
  }
  return ::pclose(pipe) == 0 ? std::optional(text) : std::nullopt;
}

std::optional<std::string> Reference(std::string_view mode,
                                     std::string_view argument) {
  return Output(Cat("'", Python(), "' '", SLUICE_SOURCE_DIR,
                    "/tests/weights/gguf_reference.py' ", mode, " '", argument,
                    "'"));
}

// Defines nothing; skips where there is no Python with gguf and numpy.
#define REQUIRE_GGUF_PYTHON()                                          \
  if (!Output(Cat("'", Python(), "' -c 'import gguf, numpy' 2>&1"))) { \
    GTEST_SKIP() << "needs a Python with gguf and numpy: " << Python() \
                 << " (made by tests/run, or named by SLUICE_PYTHON)"; \
  }

std::string Sha256Hex(const std::vector<float>& values) {
  ModelDigest digest;
  unsigned int size = 0;
  EVP_Digest(values.data(), values.size() * sizeof(float), digest.bytes.data(),
             &size, EVP_sha256(), nullptr);
  return digest.Hex();
}

TEST(GgufReferenceTest, EveryBlockFormatGivesThePackagesBits) {
  REQUIRE_GGUF_PYTHON();
  const TempDir dir;
  ASSERT_TRUE(Reference("blocks", dir.path()).has_value());
  const auto model = sluice::OpenModel(dir.path() + "/all.gguf");
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ((*model)->tensors().size(), 21u);
  for (const TensorInfo& info : (*model)->tensors()) {
    EXPECT_EQ(ToString(info.dtype), info.name);
    std::vector<float> values(static_cast<size_t>(info.elements()));
    const Status status =
        (*model)->ReadF32(info.name, Slice::All(info), values.data());
    ASSERT_TRUE(status.ok()) << status;
    const std::string expected =
        ReadFileOrDie(Cat(dir.path(), "/", info.name, ".f32"));
    ASSERT_EQ(expected.size(), values.size() * sizeof(float)) << info.name;
    EXPECT_EQ(std::memcmp(expected.data(), values.data(), expected.size()), 0)
        << info.name;
  }
}

TEST(GgufReferenceTest, EveryTensorOfSmolLm2GivesThePackagesBits) {
  REQUIRE_GGUF_PYTHON();
  SLUICE_REQUIRE_SMOLLM2(path);
  const auto model = sluice::OpenModel(path);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto digests = Reference("digests", path);
  ASSERT_TRUE(digests.has_value());
  std::istringstream lines(*digests);
  size_t compared = 0;
  for (std::string gguf_name, digest; lines >> gguf_name >> digest;) {
    const GgufTensorPlace place = PlaceOfGguf(kLlamaTensors, gguf_name);
    ASSERT_NE(place.row, nullptr) << gguf_name;
    const std::string name = NameOf(*place.row, place.layer);
    const TensorInfo* info = (*model)->Find(name);
    ASSERT_NE(info, nullptr) << name;
    std::vector<float> values(static_cast<size_t>(info->elements()));
    const Status status =
        (*model)->ReadF32(name, Slice::All(*info), values.data());
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(Sha256Hex(values), digest) << name;
    ++compared;
  }
  EXPECT_EQ(compared, (*model)->tensors().size());
}

}  // namespace
}  // namespace sluice::weights
