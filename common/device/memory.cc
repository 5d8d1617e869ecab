#include "common/device/memory.h"

#include "common/device/backend.h"

namespace sluice {

void DeviceMemory::Release() {
  if (owner_ != nullptr) owner_->Free(data_);
}

}  // namespace sluice
