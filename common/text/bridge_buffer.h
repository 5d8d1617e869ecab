#ifndef SLUICE_COMMON_TEXT_BRIDGE_BUFFER_H_
#define SLUICE_COMMON_TEXT_BRIDGE_BUFFER_H_

#include <cstdint>
#include <string_view>

#include "common/base/status.h"
#include "common/text/bridge/bridge.h"

namespace sluice {

inline const uint8_t* BridgeData(std::string_view text) {
  return reinterpret_cast<const uint8_t*>(text.data());
}

// Owns one buffer that the bridge made.
class BridgeBuffer {
 public:
  BridgeBuffer() = default;
  ~BridgeBuffer() { sluice_buffer_free(buffer_); }
  BridgeBuffer(const BridgeBuffer&) = delete;
  BridgeBuffer& operator=(const BridgeBuffer&) = delete;

  // Where a bridge call writes; once per object.
  SluiceBuffer* out() { return &buffer_; }
  std::string_view bytes() const {
    return {reinterpret_cast<const char*>(buffer_.data), buffer_.size};
  }

  // The status of a call that returned `code`; the message is the buffer's.
  Status ToStatus(int code) const {
    switch (code) {
      case SLUICE_OK:
        return OkStatus();
      case SLUICE_INVALID_ARGUMENT:
        return InvalidArgument(bytes());
      case SLUICE_RESOURCE_EXHAUSTED:
        return ResourceExhausted(bytes());
      case SLUICE_UNIMPLEMENTED:
        return Unimplemented(bytes());
      default:
        return Internal("text bridge: ", bytes());
    }
  }

 private:
  SluiceBuffer buffer_ = {nullptr, 0, 0};
};

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_BRIDGE_BUFFER_H_
