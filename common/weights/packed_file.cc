#include "common/weights/packed_file.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/cat.h"
#include "common/base/check.h"
#include "common/base/random_bytes.h"
#include "common/tensor/weight_format.h"
#include "common/weights/draft_lock.h"
#include "common/weights/weight_sums.h"
#include "common/weights/xxh64.h"

namespace sluice::weights {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr char kPackedMagic[] = "sluice packed 3\n";
constexpr size_t kVersionAt = sizeof("sluice packed ") - 1;
constexpr size_t kProofBytes = 32;
constexpr uint64_t kAlignment = 4096;            // of parts
constexpr int64_t kMostSide = int64_t{1} << 31;  // rows or columns

// The head's beginning, as it is in the file.
struct Prologue {
  char magic[16];
  uint64_t head_bytes;
  uint64_t file_bytes;
  uint64_t key_bytes;
  uint64_t num_parts;
  uint64_t sum;  // of the head with zero here
  unsigned char proof[kProofBytes];
};

// A part as it is in the head.
struct PartRecord {
  uint64_t weight;
  uint64_t type;
  int64_t rows;
  int64_t cols;
  uint64_t offset;
  uint64_t bytes;
};

uint64_t RoundUp(uint64_t bytes, uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}
uint64_t NumPieces(uint64_t bytes) {
  return RoundUp(bytes, kSumPieceBytes) / kSumPieceBytes;
}

// One piece of a part's bytes.
struct Piece {
  const std::byte* data;
  uint64_t bytes;
  uint64_t sum() const { return Xxh64(data, bytes); }
};

std::vector<Piece> PiecesOf(const std::vector<PackedPart>& parts) {
  std::vector<Piece> pieces;
  for (const PackedPart& part : parts) {
    for (uint64_t at = 0; at < part.bytes; at += kSumPieceBytes) {
      pieces.push_back(
          {part.data + at, std::min(kSumPieceBytes, part.bytes - at)});
    }
  }
  return pieces;
}

void Append(const void* data, size_t bytes, std::string& to) {
  to.append(static_cast<const char*>(data), bytes);
}

// Returns the head's sum; `head` begins with a Prologue.
uint64_t SumOfHead(std::string head) {
  std::memset(head.data() + offsetof(Prologue, sum), 0, sizeof(Prologue::sum));
  return Xxh64(head.data(), head.size());
}

// Returns a head as it is proved: with zeros for sum and proof.
std::string Unproven(std::string head) {
  std::memset(head.data() + offsetof(Prologue, sum), 0,
              sizeof(Prologue::sum) + sizeof(Prologue::proof));
  return head;
}

// Returns what shows that the writer of such a head knew `secret`.
std::string ProofOf(std::string_view unproven, std::string_view secret) {
  std::string proof(kProofBytes, '\0');
  SLUICE_CHECK(
      HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
           reinterpret_cast<const unsigned char*>(unproven.data()),
           unproven.size(), reinterpret_cast<unsigned char*>(proof.data()),
           nullptr) != nullptr);
  return proof;
}

// The places of a file's parts.
struct Layout {
  Prologue prologue = {};  // without proof and sum
  std::vector<uint64_t> offsets;
};

Layout LayoutOf(std::string_view key, const std::vector<PackedPart>& parts) {
  Layout layout;
  uint64_t pieces = 0;
  for (const PackedPart& part : parts) pieces += NumPieces(part.bytes);
  Prologue& prologue = layout.prologue;
  std::memcpy(prologue.magic, kPackedMagic, sizeof(prologue.magic));
  prologue.key_bytes = key.size();
  prologue.num_parts = parts.size();
  prologue.head_bytes = sizeof(prologue) + RoundUp(key.size(), 8) +
                        parts.size() * sizeof(PartRecord) +
                        pieces * sizeof(uint64_t);
  uint64_t end = prologue.head_bytes;
  for (const PackedPart& part : parts) {
    layout.offsets.push_back(RoundUp(end, kAlignment));
    end = layout.offsets.back() + part.bytes;
  }
  prologue.file_bytes = end;
  return layout;
}

// Returns the head of a file of `parts`.
std::string HeadOf(Layout& layout, std::string_view key,
                   std::string_view secret,
                   const std::vector<PackedPart>& parts,
                   const kernels::Context& context) {
  const std::vector<Piece> pieces = PiecesOf(parts);
  std::vector<uint64_t> sums(pieces.size());
  kernels::ParallelFor(context, static_cast<int>(pieces.size()),
                       [&](int i) { sums[i] = pieces[i].sum(); });
  Prologue& prologue = layout.prologue;
  std::string head;
  Append(&prologue, sizeof(prologue), head);
  head.append(key);
  head.resize(RoundUp(head.size(), 8), '\0');
  for (size_t i = 0; i < parts.size(); ++i) {
    const PartRecord record = {
        parts[i].weight,   static_cast<uint64_t>(parts[i].type),
        parts[i].rows,     parts[i].cols,
        layout.offsets[i], parts[i].bytes};
    Append(&record, sizeof(record), head);
  }
  Append(sums.data(), sums.size() * sizeof(uint64_t), head);
  std::memcpy(head.data(), &prologue, sizeof(prologue));
  ProofOf(head, secret)
      .copy(reinterpret_cast<char*>(prologue.proof), kProofBytes);
  std::memcpy(head.data(), &prologue, sizeof(prologue));
  prologue.sum = SumOfHead(head);
  std::memcpy(head.data(), &prologue, sizeof(prologue));
  return head;
}

// True if a part that the head names can be one of a file of `file_bytes`.
bool IsSound(const PartRecord& part, uint64_t num_weights,
             uint64_t file_bytes) {
  const bool next = part.weight == num_weights ||
                    (num_weights > 0 && part.weight == num_weights - 1);
  const bool sized = part.rows >= 0 && part.rows < kMostSide &&
                     part.cols >= 0 && part.cols < kMostSide;
  if (!next || !sized || part.type >= kernels::kNumWeightTypes) return false;
  const WeightFormat& format =
      FormatOf(static_cast<kernels::WeightType>(part.type));
  // In blocks: the bytes of a lie may be beyond 64 bits.
  const auto blocks =
      static_cast<uint64_t>(part.rows * part.cols / format.block_elements);
  return part.offset % kAlignment == 0 && part.offset <= file_bytes &&
         part.bytes <= file_bytes - part.offset &&
         part.bytes / static_cast<uint64_t>(format.block_bytes) >= blocks;
}

// A head as it is in a file, checked.
struct Head {
  std::vector<PartRecord> parts;
  std::vector<uint64_t> sums;  // of their pieces
};

// Returns the bytes that the file's beginning calls its head.
StatusOr<std::string> ReadHead(const RandomAccessFile& file) {
  Prologue prologue;
  SLUICE_RETURN_IF_ERROR(file.ReadAt(0, sizeof(prologue.magic), &prologue));
  if (std::memcmp(prologue.magic, kPackedMagic, kVersionAt) == 0 &&
      (prologue.magic[kVersionAt] == '1' ||
       prologue.magic[kVersionAt] == '2')) {
    return FailedPrecondition(file.path(), ": is of an older version");
  }
  SLUICE_RETURN_IF_ERROR(file.ReadAt(0, sizeof(prologue), &prologue));
  if (std::memcmp(prologue.magic, kPackedMagic, sizeof(prologue.magic)) != 0) {
    return DataLoss(file.path(),
                    ": is no file of packed weights, or of another version");
  }
  if (prologue.file_bytes != file.size() ||
      prologue.head_bytes > prologue.file_bytes ||
      prologue.head_bytes < sizeof(prologue)) {
    return DataLoss(file.path(), ": has ", file.size(),
                    " bytes, its head says ", prologue.file_bytes);
  }
  std::string head(prologue.head_bytes, '\0');
  SLUICE_RETURN_IF_ERROR(file.ReadAt(0, head.size(), head.data()));
  return head;
}

StatusOr<Head> ParseHead(const std::string& text, std::string_view key,
                         std::string_view secret, uint64_t file_bytes) {
  Prologue prologue;
  if (text.size() < sizeof(prologue)) return DataLoss("its head is cut off");
  text.copy(reinterpret_cast<char*>(&prologue), sizeof(prologue));
  if (SumOfHead(text) != prologue.sum || prologue.key_bytes > text.size() ||
      prologue.num_parts > text.size() / sizeof(PartRecord)) {
    return DataLoss("its head is damaged");
  }
  const uint64_t at = sizeof(prologue) + RoundUp(prologue.key_bytes, 8);
  const uint64_t end = at + prologue.num_parts * sizeof(PartRecord);
  if (end > text.size()) return DataLoss("its head is damaged");
  if (text.compare(sizeof(prologue), prologue.key_bytes, key) != 0) {
    return FailedPrecondition("is of another model, cut or layout");
  }
  if (!EqualSecrets(
          {reinterpret_cast<const char*>(prologue.proof), kProofBytes},
          ProofOf(Unproven(text), secret))) {
    return MakeStatus(StatusCode::kPermissionDenied,
                      "lacks the proof of its folder's secret");
  }
  Head head;
  head.parts.resize(prologue.num_parts);
  text.copy(reinterpret_cast<char*>(head.parts.data()), end - at, at);
  uint64_t num_weights = 0;
  uint64_t num_pieces = 0;
  for (const PartRecord& part : head.parts) {
    if (!IsSound(part, num_weights, file_bytes)) {
      return DataLoss("a part does not fit the file");
    }
    num_weights = part.weight + 1;
    num_pieces += NumPieces(part.bytes);
  }
  if (end + num_pieces * sizeof(uint64_t) != text.size()) {
    return DataLoss("its head is of another size than its parts");
  }
  head.sums.resize(num_pieces);
  text.copy(reinterpret_cast<char*>(head.sums.data()), text.size() - end, end);
  return head;
}

// Returns the whole file as memory that cannot be written.
StatusOr<const std::byte*> Map(const RandomAccessFile& file) {
  void* const data =
      ::mmap(nullptr, file.size(), PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (data == MAP_FAILED) {
    return Unavailable(file.path(),
                       ": cannot be mapped: ", std::strerror(errno));
  }
  // Hints: file systems with large pages take the first.
  ::madvise(data, file.size(), MADV_HUGEPAGE);
  ::madvise(data, file.size(), MADV_WILLNEED);
  return static_cast<const std::byte*>(data);
}

std::string DraftOf(const std::string& name) { return name + ".tmp"; }

Status CannotWrite(const std::string& path) {
  return Unavailable(path, ": cannot be written: ", std::strerror(errno));
}

}  // namespace

StatusOr<std::shared_ptr<const PackedFile>> PackedFile::Read(
    const RandomAccessFile& file, std::string_view key, std::string_view secret,
    PackedMemory memory, const kernels::Context& context, int node) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadHead(file));
  auto head = ParseHead(text, key, secret, file.size());
  if (!head.ok()) return Annotate(head.status(), file.path());
  const bool copies = memory == PackedMemory::kCopy;
  const std::byte* map = nullptr;
  Buffer copy(copies ? file.size() : 0);
  PreferNode(copy.data(), copy.size(), node);
  if (!copies) {
    SLUICE_ASSIGN_OR_RETURN(map, Map(file));
  }
  const std::byte* const begin = copies ? copy.data() : map;
  std::byte* const to = copy.data();
  std::shared_ptr<PackedFile> packed(
      new PackedFile(map, std::move(copy), file.size()));
  for (const PartRecord& part : head->parts) {
    packed->parts_.push_back(
        {part.weight, static_cast<kernels::WeightType>(part.type), part.rows,
         part.cols, begin + part.offset, part.bytes});
  }
  const std::vector<Piece> pieces = PiecesOf(packed->parts_);
  std::atomic<int> damaged = -1;
  kernels::ParallelFor(context, static_cast<int>(pieces.size()), [&](int i) {
    const Piece& piece = pieces[i];
    const auto at = static_cast<uint64_t>(piece.data - begin);
    const bool read = !copies || file.ReadAt(at, piece.bytes, to + at).ok();
    if (!read || piece.sum() != head->sums[i]) damaged = i;
  });
  if (damaged < 0) return std::shared_ptr<const PackedFile>(std::move(packed));
  const Piece& piece = pieces[damaged];
  return DataLoss(file.path(), ": bytes [", piece.data - begin, ", ",
                  piece.data - begin + piece.bytes, ") are damaged");
}

PackedFile::~PackedFile() {
  if (map_ != nullptr) ::munmap(const_cast<std::byte*>(map_), bytes_);
}

StatusOr<std::unique_ptr<PackedDraft>> PackedDraft::Lock(
    std::shared_ptr<const OwnFolder> folder, const std::string& name,
    Duration patience) {
  SLUICE_ASSIGN_OR_RETURN(const int fd,
                          LockDraft(*folder, DraftOf(name), patience));
  return std::unique_ptr<PackedDraft>(
      new PackedDraft(std::move(folder), name, fd));
}

PackedDraft::~PackedDraft() {
  if (!committed_) {
    ::unlinkat(folder_->descriptor(), DraftOf(name_).c_str(), 0);
  }
  ::close(fd_);
}

uint64_t PackedBytes(std::string_view key,
                     const std::vector<PackedPart>& parts) {
  return LayoutOf(key, parts).prologue.file_bytes;
}

Status PackedDraft::Resize(uint64_t bytes) {
  if (::ftruncate(fd_, static_cast<off_t>(bytes)) == 0) return OkStatus();
  return CannotWrite(folder_->PathOf(name_));
}

Status PackedDraft::Write(const void* data, uint64_t bytes) const {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t wrote = ::write(fd_, at, bytes);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote == 0) errno = ENOSPC;
    if (wrote <= 0) return CannotWrite(folder_->PathOf(name_));
    at += wrote;
    bytes -= static_cast<uint64_t>(wrote);
  }
  return OkStatus();
}

Status PackedDraft::Commit(std::string_view key,
                           const std::vector<PackedPart>& parts,
                           const kernels::Context& context) {
  Layout layout = LayoutOf(key, parts);
  const std::string head =
      HeadOf(layout, key, folder_->secret(), parts, context);
  // A process that died may have left a longer draft.
  SLUICE_RETURN_IF_ERROR(Resize(layout.prologue.file_bytes));
  SLUICE_RETURN_IF_ERROR(Write(head.data(), head.size()));
  uint64_t end = head.size();
  for (size_t i = 0; i < parts.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(
        Write(std::string(layout.offsets[i] - end, '\0').data(),
              layout.offsets[i] - end));
    SLUICE_RETURN_IF_ERROR(Write(parts[i].data, parts[i].bytes));
    end = layout.offsets[i] + parts[i].bytes;
  }
  // Mapped pages of a write that fails later would lose their bytes.
  if (::fdatasync(fd_) != 0 ||
      ::renameat(folder_->descriptor(), DraftOf(name_).c_str(),
                 folder_->descriptor(), name_.c_str()) != 0) {
    return CannotWrite(folder_->PathOf(name_));
  }
  committed_ = true;
  // Only now: a draft that its user may not open would be replaced.
  static_cast<void>(::fchmod(fd_, 0400));
  return OkStatus();
}

}  // namespace sluice::weights
