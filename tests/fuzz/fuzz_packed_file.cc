// A file of packed weights. The first byte says whether magic, sizes, sums and
// proof are set right, so that what lies behind them is reached: a file that
// opens has parts within its bytes, of at least the bytes that their type
// needs.
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include "common/base/check.h"
#include "common/tensor/weight_format.h"
#include "common/weights/file.h"
#include "common/weights/packed_file.h"
#include "common/weights/weight_sums.h"
#include "common/weights/xxh64.h"
#include "tests/fuzz/input_bound.h"
#include "tests/fuzz/model_bytes.h"

namespace sluice {
namespace {

constexpr char kMagic[] = "sluice packed 3\n";
constexpr char kKey[] = "key";
constexpr char kSecret[] = "secret";
// Places in the head, as packed_file.h tells.
constexpr size_t kHeadBytes = 16;
constexpr size_t kFileBytes = 24;
constexpr size_t kKeyBytes = 32;
constexpr size_t kNumParts = 40;
constexpr size_t kSum = 48;
constexpr size_t kProof = 56;
constexpr size_t kProofBytes = 32;
constexpr size_t kKeyAt = 88;
constexpr size_t kParts = 96;
constexpr size_t kPartBytes = 48;

uint64_t Get(const std::string& file, size_t at) {
  uint64_t value;
  std::memcpy(&value, file.data() + at, sizeof(value));
  return value;
}
void Put(uint64_t value, size_t at, std::string& file) {
  std::memcpy(file.data() + at, &value, sizeof(value));
}

// Sets what would be refused at once.
void SetRight(std::string& file) {
  if (file.size() < kParts) file.resize(kParts);
  std::memcpy(file.data(), kMagic, kHeadBytes);
  std::memcpy(file.data() + kKeyAt, kKey, sizeof(kKey));
  Put(sizeof(kKey) - 1, kKeyBytes, file);
  Put(file.size(), kFileBytes, file);
  const uint64_t num_parts =
      Get(file, kNumParts) % ((file.size() - kParts) / kPartBytes + 1);
  Put(num_parts, kNumParts, file);
  size_t end = kParts + num_parts * kPartBytes;
  for (uint64_t i = 0; i < num_parts; ++i) {
    const size_t part = kParts + i * kPartBytes;
    const uint64_t offset = Get(file, part + 32);
    const uint64_t bytes = Get(file, part + 40);
    if (offset > file.size() || bytes > file.size() - offset) continue;
    for (uint64_t at = 0; at < bytes; at += weights::kSumPieceBytes) {
      const uint64_t piece = std::min(weights::kSumPieceBytes, bytes - at);
      if (end + sizeof(uint64_t) > file.size()) return;
      Put(weights::Xxh64(file.data() + offset + at, piece), end, file);
      end += sizeof(uint64_t);
    }
  }
  Put(end, kHeadBytes, file);
  Put(0, kSum, file);
  std::memset(file.data() + kProof, 0, kProofBytes);
  SLUICE_CHECK(HMAC(EVP_sha256(), kSecret, sizeof(kSecret) - 1,
                    reinterpret_cast<const unsigned char*>(file.data()), end,
                    reinterpret_cast<unsigned char*>(file.data() + kProof),
                    nullptr) != nullptr);
  Put(weights::Xxh64(file.data(), end), kSum, file);
}

void Run(const std::string& file, weights::PackedMemory memory) {
  const fuzz::MemoryFile written(reinterpret_cast<const uint8_t*>(file.data()),
                                 file.size());
  const auto bytes = weights::RandomAccessFile::Open(written.path());
  SLUICE_CHECK(bytes.ok());
  const auto opened =
      weights::PackedFile::Read(**bytes, kKey, kSecret, memory, {});
  if (!opened.ok()) return;
  uint64_t sum = 0;
  for (const weights::PackedPart& part : (*opened)->parts()) {
    SLUICE_CHECK(part.rows >= 0 && part.cols >= 0);
    const WeightFormat& format = FormatOf(part.type);
    SLUICE_CHECK(static_cast<double>(part.bytes) >=
                 static_cast<double>(part.rows) *
                         static_cast<double>(part.cols) /
                         format.block_elements * format.block_bytes * 0.999 -
                     format.block_bytes);
    sum += weights::Xxh64(part.data, part.bytes);  // reads each byte
  }
  // Never true: the sums must be made.
  if (sum == 1) std::printf("%p", static_cast<const void*>(&sum));
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > (1u << 16)) return 0;
  std::string file(reinterpret_cast<const char*>(data + 1), size - 1);
  if ((data[0] & 1) != 0) sluice::SetRight(file);
  sluice::Run(file, (data[0] & 2) != 0 ? sluice::weights::PackedMemory::kMap
                                       : sluice::weights::PackedMemory::kCopy);
  return 0;
}
