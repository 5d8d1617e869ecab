#include "common/service/version_text.h"

#include <gtest/gtest.h>

#include <string>

#include "common/base/build_info.h"
#include "common/base/cat.h"

namespace sluice {
namespace {

TEST(VersionTextTest, NamesProgramVersionCommitAndProtocols) {
  EXPECT_EQ(VersionText("sluice-stage"),
            Cat("sluice-stage ", BuildVersion(), "\ncommit ", BuildCommit(),
                "\nprotocols: stages 15, experts 3, ranks 3\n"));
}

}  // namespace
}  // namespace sluice
