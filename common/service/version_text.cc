#include "common/service/version_text.h"

#include "common/base/build_info.h"
#include "common/base/cat.h"
#include "common/wire/protocol_versions.h"

namespace sluice {

std::string VersionText(std::string_view program) {
  return Cat(program, " ", BuildVersion(), "\ncommit ", BuildCommit(),
             "\nprotocols: stages ", wire::kProtocolVersion, ", experts ",
             wire::kExpertProtocolVersion, ", ranks ",
             wire::kRanksProtocolVersion, "\n");
}

}  // namespace sluice
