#ifndef SLUICE_COMMON_TEXT_BRIDGE_BUFFER_H_
#define SLUICE_COMMON_TEXT_BRIDGE_BUFFER_H_

#include <cstdint>
#include <new>
#include <string_view>

#include "common/base/status.h"
#include "common/text/bridge/bridge.h"

#ifdef SLUICE_TSAN
// A function of ThreadSanitizer without a public header.
extern "C" void AnnotateIgnoreReadsBegin(const char* file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char* file, int line);
extern "C" void AnnotateIgnoreWritesBegin(const char* file, int line);
extern "C" void AnnotateIgnoreWritesEnd(const char* file, int line);
#endif

namespace sluice {

// Surrounds a call into the bridge. ThreadSanitizer sees only the libc calls of
// uninstrumented code (malloc, free, memcpy), and none of its locks, so it must
// ignore the call. Empty in every other build.
class BridgeCall {
 public:
#ifdef SLUICE_TSAN
  BridgeCall() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~BridgeCall() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
#else
  BridgeCall() {}
  ~BridgeCall() {}
#endif
  BridgeCall(const BridgeCall&) = delete;
  BridgeCall& operator=(const BridgeCall&) = delete;
};

inline const uint8_t* BridgeData(std::string_view text) {
  return reinterpret_cast<const uint8_t*>(text.data());
}

// Owns one buffer of the bridge.
class BridgeBuffer {
 public:
  BridgeBuffer() = default;
  ~BridgeBuffer() {
    const BridgeCall call;
    sluice_buffer_free(buffer_);
  }
  BridgeBuffer(const BridgeBuffer&) = delete;
  BridgeBuffer& operator=(const BridgeBuffer&) = delete;

  // Returns the buffer for a bridge call; once per object.
  SluiceBuffer* out() { return &buffer_; }
  std::string_view bytes() const {
    return {reinterpret_cast<const char*>(buffer_.data), buffer_.size};
  }

  // Returns the status of a call with `code`; the buffer has the message.
  // Throws std::bad_alloc if the bridge found too little memory, as the code
  // around the call does where it finds too little.
  Status ToStatus(int code) const {
    switch (code) {
      case SLUICE_OK:
        return OkStatus();
      case SLUICE_INVALID_ARGUMENT:
        return InvalidArgument(bytes());
      case SLUICE_RESOURCE_EXHAUSTED:
      case SLUICE_OUT_OF_STEPS:
        return ResourceExhausted(bytes());
      case SLUICE_UNIMPLEMENTED:
        return Unimplemented(bytes());
      case SLUICE_OUT_OF_MEMORY:
        throw std::bad_alloc();
      default:
        return Internal("text bridge: ", bytes());
    }
  }

 private:
  SluiceBuffer buffer_ = {nullptr, 0, 0};
};

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_BRIDGE_BUFFER_H_
