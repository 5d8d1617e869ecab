#include "services/cli/model_cluster.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace sluice::cli {
namespace {

TEST(FolderNameTest, AModelIsKnownByWhatItIsCalled) {
  EXPECT_EQ(FolderNameFor("/models/Llama 3/"), "Llama-3");
  EXPECT_EQ(FolderNameFor("a/b/Model.Q4_K_M.gguf"), "Model.Q4_K_M");
  EXPECT_EQ(FolderNameFor("org/Name@main:Q4_K_M"), "Name-main-Q4_K_M");
  EXPECT_EQ(FolderNameFor("default"), "default-model");
  EXPECT_EQ(FolderNameFor("..hidden"), "hidden");
  EXPECT_EQ(FolderNameFor("///"), "default-model");
  EXPECT_EQ(FolderNameFor(std::string(300, 'x')).size(), 40);
}

KnownCluster Cluster(const std::string& model, const std::string& given) {
  KnownCluster cluster;
  cluster.file.model = model;
  cluster.file.model_given = given;
  return cluster;
}

TEST(ServesTest, APathIsTheSameModelHoweverItIsWritten) {
  const std::string folder = ::testing::TempDir();
  EXPECT_TRUE(Serves(Cluster(folder, "x"), folder + "/."));
  EXPECT_FALSE(Serves(Cluster("/", "x"), folder));
  // A name that is a path here is no hub's name.
  EXPECT_FALSE(Serves(Cluster("/elsewhere", folder), folder));
}

TEST(ServesTest, AHubsModelAndTheDefaultOneAreKnownByTheirNames) {
  EXPECT_TRUE(Serves(Cluster("/cache/x", "org/name:Q8_0"), "org/name:Q8_0"));
  EXPECT_FALSE(Serves(Cluster("/cache/x", "org/name:Q8_0"), "org/name"));
  EXPECT_TRUE(
      Serves(Cluster("/cache/SmolLM2-135M-Instruct.Q4_1.gguf", ""), "default"));
  EXPECT_FALSE(Serves(Cluster("/cache/x", ""), "default"))
      << "a machine's part of another cluster";
  EXPECT_FALSE(Serves(Cluster("/cache/x", "org/name"), "default"));
  KnownCluster fleet = Cluster("/m", "");
  fleet.file.remote.emplace_back();
  EXPECT_FALSE(Serves(fleet, "default"));
}

}  // namespace
}  // namespace sluice::cli
