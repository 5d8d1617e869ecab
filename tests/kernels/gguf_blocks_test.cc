// Elements of stored blocks against the `gguf` Python package, bit for bit.
// Needs a Python that has it: the tests' own environment, or the one that
// SLUICE_PYTHON names.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/block_pack.h"
#include "kernels/block_store.h"
#include "tests/kernels/block_reference.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels {
namespace {

std::string BlocksPython() {
  const char* named = std::getenv("SLUICE_PYTHON");
  return named != nullptr ? named : SLUICE_VENV_PYTHON;
}

std::vector<char> BytesOf(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(GgufBlocksTest, EveryFormatGivesThePackagesValues) {
  const std::string python = "'" + BlocksPython() + "'";
  if (std::system((python + " -c 'import gguf, numpy' 2>&1").c_str()) != 0) {
    GTEST_SKIP() << "needs a Python with gguf and numpy: " << python
                 << " (made by tests/run, or named by SLUICE_PYTHON)";
  }
  std::string folder = ::testing::TempDir() + "gguf_blocks_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string command =
      python + " '" SLUICE_SOURCE_DIR "/tests/kernels/gguf_blocks.py' '" +
      folder + "'";
  ASSERT_EQ(std::system(command.c_str()), 0);
  for (const BlockFormat format : AllBlockFormats()) {
    const std::string at = folder + "/" + NameOf(format);
    if (CanStore(format)) {
      const std::vector<char> x = BytesOf(at + ".x");
      const std::vector<char> made = BytesOf(at + ".made");
      std::vector<float> values(x.size() / sizeof(float));
      std::memcpy(values.data(), x.data(), x.size());
      std::vector<uint8_t> ours(made.size());
      ASSERT_EQ(values.size(), 97u * 32u);
      ASSERT_EQ(made.size(), 97u * static_cast<size_t>(BlockBytes(format)));
      StoreBlocks(format, values.data(), 97, ours.data());
      for (size_t i = 0; i < ours.size(); ++i) {
        ASSERT_EQ(ours[i], static_cast<uint8_t>(made[i]))
            << NameOf(format) << " byte " << i;
      }
    }
    const std::vector<char> raw = BytesOf(at + ".raw");
    const std::vector<char> want = BytesOf(at + ".f32");
    const auto blocks = static_cast<int64_t>(raw.size()) / BlockBytes(format);
    ASSERT_EQ(blocks, 97);
    const int64_t elements = blocks * BlockElements(format);
    std::vector<float> got(static_cast<size_t>(elements));
    const auto* stored = reinterpret_cast<const uint8_t*>(raw.data());
    WidenBlocks(format, stored, blocks, got.data());
    ASSERT_EQ(want.size(), got.size() * sizeof(float));
    const auto reference = BlockValues(format, stored, elements);
    for (size_t i = 0; i < got.size(); ++i) {
      float value = 0;
      std::memcpy(&value, want.data() + i * sizeof(float), sizeof(float));
      // Equal as numbers: the package gives MXFP4's code 8 as +0.
      ASSERT_EQ(got[i], value) << NameOf(format) << " element " << i;
      // What block_matmul_test compares products with: three roundings.
      const int64_t in = static_cast<int64_t>(i) % BlockElements(format);
      const BlockNumbers n = ReadBlock(
          format, stored + static_cast<int64_t>(i) / BlockElements(format) *
                               BlockBytes(format));
      const double size =
          std::abs(double{n.scale} * n.sub_scale[in / 16] * n.code[in]) +
          std::abs(double{n.minimum} * n.sub_minimum[in / 16]);
      ASSERT_NEAR(reference[i], double{value}, Gamma(3) * size + 0x1p-149)
          << NameOf(format) << " element " << i;
    }
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace sluice::kernels
