#include "common/weights/checked_reader.h"

#include <algorithm>
#include <cstring>

#include "common/weights/weight_sums.h"
#include "common/weights/xxh64.h"

namespace sluice::weights {

// The whole piece that begins at `begin`.
Status CheckedReader::ReadPiece(uint64_t begin, size_t size,
                                uint8_t* out) const {
  SLUICE_RETURN_IF_ERROR(
      tensor_.file->ReadAt(tensor_.offset + begin, size, out));
  const uint64_t piece = begin / kSumPieceBytes;
  const uint64_t wanted = sums_->pieces[piece];
  const uint64_t found = Xxh64(out, size);
  if (found == wanted) {
    sums_->checked[piece].store(true, std::memory_order_relaxed);
    return OkStatus();
  }
  return DataLoss(tensor_.file->path(), ": bytes [", begin, ", ", begin + size,
                  ") of the tensor have the sum ", SumToHex(found), ", ",
                  sums_->path, " has ", SumToHex(wanted),
                  ": the file is damaged, or has changed since `sluice "
                  "inspect --sums`");
}

// Run i of the tensor has the beginning's bytes, turned by a number of elements
// that hangs on i.
Status CheckedReader::Repeat(uint64_t offset, size_t size, uint8_t* out) {
  const auto unit =
      static_cast<uint64_t>(BlockSizeOf(tensor_.info.dtype).bytes);
  const uint64_t units = tensor_.outlined_bytes / unit;
  const uint64_t period = units * unit;
  if (beginning_.empty()) {
    beginning_.resize(period);
    SLUICE_RETURN_IF_ERROR(
        tensor_.file->ReadAt(tensor_.offset, period, beginning_.data()));
  }
  while (size > 0) {
    const uint64_t run = offset / period;
    const uint64_t turn = Xxh64(&run, sizeof(run)) % units * unit;
    const uint64_t at = (offset % period + (run == 0 ? 0 : turn)) % period;
    const size_t part =
        std::min({uint64_t{size}, period - at, period - offset % period});
    std::memcpy(out, beginning_.data() + at, part);
    out += part;
    offset += part;
    size -= part;
  }
  return OkStatus();
}

Status CheckedReader::Read(uint64_t offset, size_t size, uint8_t* out) {
  if (tensor_.is_outline && outlines_ == OutlineReads::kRepeat) {
    return Repeat(offset, size, out);
  }
  if (tensor_.is_outline) {
    return FailedPrecondition(
        tensor_.file->path(), ": the tensor's shard was not pulled, its ",
        "outline alone is here; `sluice pull --layers` fetches the shards of a "
        "stage's layers");
  }
  if (sums_ == nullptr) {
    return tensor_.file->ReadAt(tensor_.offset + offset, size, out);
  }
  const auto bytes = static_cast<uint64_t>(tensor_.info.stored_bytes());
  const uint64_t end = offset + size;
  while (offset < end) {
    const uint64_t begin = offset / kSumPieceBytes * kSumPieceBytes;
    const uint64_t piece_end = std::min(begin + kSumPieceBytes, bytes);
    const uint64_t stop = std::min(end, piece_end);
    const size_t part = stop - offset;
    const size_t whole = piece_end - begin;
    if (sums_->checked[begin / kSumPieceBytes].load(
            std::memory_order_relaxed)) {
      SLUICE_RETURN_IF_ERROR(
          tensor_.file->ReadAt(tensor_.offset + offset, part, out));
    } else if (part == whole) {
      SLUICE_RETURN_IF_ERROR(ReadPiece(begin, whole, out));
    } else {
      // Not a vector: the bytes need no zeros.
      if (piece_ == nullptr) piece_.reset(new uint8_t[kSumPieceBytes]);
      SLUICE_RETURN_IF_ERROR(ReadPiece(begin, whole, piece_.get()));
      std::memcpy(out, piece_.get() + (offset - begin), part);
    }
    out += part;
    offset = stop;
  }
  return OkStatus();
}

}  // namespace sluice::weights
