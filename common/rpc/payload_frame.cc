#include "common/rpc/payload_frame.h"

#include <grpcpp/support/slice.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/tensor/buffer_pool.h"

namespace sluice::rpc {
namespace {

void AppendVarint(uint64_t value, std::string* out) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

// Reads a list of slices as one run of bytes.
class SliceCursor {
 public:
  explicit SliceCursor(const std::vector<grpc::Slice>& slices)
      : slices_(slices) {
    for (const grpc::Slice& slice : slices_) remaining_ += slice.size();
  }
  size_t remaining() const { return remaining_; }

  // Needs `bytes` of at most remaining().
  void Copy(void* out, size_t bytes) {
    auto* to = static_cast<char*>(out);
    remaining_ -= bytes;
    while (bytes > 0) {
      const grpc::Slice& slice = slices_[index_];
      const size_t n = std::min(bytes, slice.size() - offset_);
      std::memcpy(to, slice.begin() + offset_, n);
      to += n;
      bytes -= n;
      offset_ += n;
      if (offset_ == slice.size()) {
        ++index_;
        offset_ = 0;
      }
    }
  }
  StatusOr<uint64_t> ReadVarint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && remaining_ > 0; shift += 7) {
      uint8_t byte = 0;
      Copy(&byte, 1);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    return InvalidArgument("frame ends within a number");
  }

 private:
  const std::vector<grpc::Slice>& slices_;
  size_t index_ = 0;
  size_t offset_ = 0;
  size_t remaining_ = 0;
};

// Returns the bytes of a field's value after its tag; of a length-delimited
// field the length before it.
StatusOr<uint64_t> ReadLength(uint64_t tag, SliceCursor* cursor) {
  uint64_t length = 0;
  switch (tag & 7) {
    case 1:
      length = 8;
      break;
    case 5:
      length = 4;
      break;
    case 2: {
      SLUICE_ASSIGN_OR_RETURN(length, cursor->ReadVarint());
      break;
    }
    default:
      return InvalidArgument("frame has wire type ", tag & 7, " in field ",
                             tag >> 3);
  }
  if (length > cursor->remaining()) {
    return InvalidArgument("field ", tag >> 3, " has ", length,
                           " bytes, the frame has ", cursor->remaining(),
                           " left");
  }
  return length;
}

}  // namespace

grpc::ByteBuffer JoinPayload(const google::protobuf::MessageLite& head,
                             int field, Buffer payload) {
  std::string bytes = head.SerializeAsString();
  if (payload.empty()) {
    const grpc::Slice slice(bytes);
    return grpc::ByteBuffer(&slice, 1);
  }
  AppendVarint(static_cast<uint64_t>(field) << 3 | 2, &bytes);
  AppendVarint(payload.size(), &bytes);
  auto* owned = new Buffer(std::move(payload));
  const grpc::Slice slices[2] = {
      grpc::Slice(bytes),
      grpc::Slice(
          owned->data(), owned->size(),
          [](void* buffer) { delete static_cast<Buffer*>(buffer); }, owned)};
  return grpc::ByteBuffer(slices, 2);
}

void AppendMessage(const google::protobuf::MessageLite& tail,
                   grpc::ByteBuffer* frame) {
  std::vector<grpc::Slice> slices;
  SLUICE_CHECK(frame->Dump(&slices).ok());
  slices.emplace_back(tail.SerializeAsString());
  *frame = grpc::ByteBuffer(slices.data(), slices.size());
}

StatusOr<SplitFrame> SplitPayload(const grpc::ByteBuffer& frame, int field,
                                  size_t max_head) {
  std::vector<grpc::Slice> slices;
  if (!frame.Dump(&slices).ok()) {
    return InvalidArgument("frame cannot be read");
  }
  SliceCursor cursor(slices);
  SplitFrame split;
  while (cursor.remaining() > 0) {
    SLUICE_ASSIGN_OR_RETURN(const uint64_t tag, cursor.ReadVarint());
    if (tag >> 3 == 0) return InvalidArgument("frame has a field 0");
    // The bytes before the value: the tag, and a number or a length.
    std::string lead;
    AppendVarint(tag, &lead);
    uint64_t length = 0;
    if ((tag & 7) == 0) {
      SLUICE_ASSIGN_OR_RETURN(const uint64_t value, cursor.ReadVarint());
      AppendVarint(value, &lead);
    } else {
      SLUICE_ASSIGN_OR_RETURN(length, ReadLength(tag, &cursor));
      if (tag == (static_cast<uint64_t>(field) << 3 | 2)) {
        split.payload = MessageBuffer(length);
        cursor.Copy(split.payload.data(), length);
        continue;
      }
      if ((tag & 7) == 2) AppendVarint(length, &lead);
    }
    if (split.head.size() + lead.size() + length > max_head) {
      return InvalidArgument("frame has more than ", max_head,
                             " bytes beside field ", field);
    }
    split.head += lead;
    const size_t at = split.head.size();
    split.head.resize(at + length);
    cursor.Copy(split.head.data() + at, length);
  }
  return split;
}

}  // namespace sluice::rpc
