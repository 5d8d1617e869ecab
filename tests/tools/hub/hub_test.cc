#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/tools/hub/choose_files.h"
#include "common/tools/hub/hub_client.h"
#include "common/tools/hub/hub_model.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(HubModelTest, ANameHasARevisionAndAQuant) {
  const auto model = ParseHubModel("org/Name-1.5B@refs/pr/3:UD-Q4_K_XL");
  ASSERT_TRUE(model.ok()) << Message(model.status());
  EXPECT_EQ(model->repository, "org/Name-1.5B");
  EXPECT_EQ(model->revision, "refs/pr/3");
  EXPECT_EQ(model->quant, "UD-Q4_K_XL");
  EXPECT_EQ(ParseHubModel("org/name")->revision, "main");
}

TEST(HubModelTest, NamesThatNoHubHasAreRefused) {
  for (const std::string text :
       {"", "name", "/name", "org/", "a/b/c", "../b", "a/..", "a/.b", "-a/b",
        "a--b/c", "a/b--c", "a/b@", "a/b@/x", "a/b@x/../y", "a/b@x y",
        "a/b:", "a/b:x/y", "a b/c", "a/b."}) {
    EXPECT_EQ(ParseHubModel(text).status().code(), StatusCode::kInvalidArgument)
        << text;
  }
  EXPECT_FALSE(ParseHubModel("a/" + std::string(97, 'b')).ok());
}

TEST(HubModelTest, AFilesPathStaysWithinItsFolder) {
  EXPECT_TRUE(CheckFilePath("a/b c/model.gguf").ok());
  for (const std::string path :
       {"", "/a", "a/", "a//b", "./a", "a/../b", "..", "a\\b", "a\nb"}) {
    EXPECT_FALSE(CheckFilePath(path).ok()) << path;
  }
}

TEST(HubModelTest, UrlsAreEncoded) {
  EXPECT_EQ(UrlEncoded("a/b c%", Slash::kKeep), "a/b%20c%25");
  EXPECT_EQ(UrlEncoded("a/b", Slash::kEncode), "a%2Fb");
}

HubListing Listing(const std::vector<std::string>& paths) {
  HubListing listing;
  for (const std::string& path : paths) {
    EXPECT_TRUE(listing.Add({path, 1, "0"}).ok());
  }
  return listing;
}

TEST(HubListingTest, APathIsListedOnce) {
  HubListing listing = Listing({"a", "b"});
  EXPECT_THAT(Message(listing.Add({"a", 2, "1"})), HasSubstr("'a' is listed"));
  EXPECT_EQ(listing.files().size(), 2u);
  EXPECT_EQ(listing.Find("a")->bytes, 1u);
  EXPECT_EQ(listing.Find("c"), nullptr);
}

TEST(HubClientTest, WhatIsEncryptedOrStaysHereIsPrivate) {
  for (const char* endpoint :
       {"https://huggingface.co", "HTTPS://hub", "http://127.0.0.1:8080",
        "http://127.9.9.9", "http://localhost:80/hub", "HTTP://LocalHost",
        "http://[::1]:80", "http://user:word@localhost"}) {
    EXPECT_TRUE(IsPrivateEndpoint(endpoint)) << endpoint;
  }
  for (const char* endpoint :
       {"http://huggingface.co", "http://10.0.0.1", "huggingface.co",
        "localhost:8080", "", "http://", "http://localhost.evil.com",
        "http://127.0.0.1.evil.com", "http://localhost@evil.com",
        "http://evil.com/@localhost", "http://evil.com?@localhost",
        "http://[::1].evil.com@other", "http://[::2]", "http://::1",
        "httpss://x", "http://127.1"}) {
    EXPECT_FALSE(IsPrivateEndpoint(endpoint)) << endpoint;
  }
}

TEST(ChooseFilesTest, OneFileOfSafetensorsGoesBeforeAnIndex) {
  const auto chosen = ChooseFiles(
      Listing({"config.json", "a.tiktoken", "sub/config.json",
               "model.safetensors", "model.safetensors.index.json"}),
      "");
  ASSERT_TRUE(chosen.ok());
  EXPECT_THAT(chosen->small, ElementsAre("config.json", "a.tiktoken"));
  EXPECT_THAT(chosen->weights, ElementsAre("model.safetensors"));
}

TEST(ChooseFilesTest, AQuantAsksForAGgufEvenBesideSafetensors) {
  const auto listing =
      Listing({"model.safetensors", "m.Q4_0.gguf", "m-IQ4_0.gguf"});
  EXPECT_EQ(ChooseFiles(listing, "q4_0")->model, "m.Q4_0.gguf");
  EXPECT_EQ(ChooseFiles(listing, "")->model, "");
}

TEST(ChooseFilesTest, ASplitSetMustBeWhole) {
  const auto listing =
      Listing({"m-Q8_0-00001-of-00003.gguf", "m-Q8_0-00002-of-00003.gguf"});
  EXPECT_THAT(Message(ChooseFiles(listing, "Q8_0").status()),
              HasSubstr("2 of the 3 parts"));
}

TEST(ChooseFilesTest, WhatIsNoModelIsTold) {
  EXPECT_THAT(Message(ChooseFiles(Listing({"README.md"}), "").status()),
              HasSubstr("has neither model.safetensors nor"));
}

TEST(ChooseFilesTest, ShardsAreThoseOfTheIndexThatTheRepositoryHas) {
  const auto listing = Listing({"a.safetensors", "b.safetensors"});
  EXPECT_THAT(*ShardsOf(R"({"weight_map": {"x": "b.safetensors",
                            "y": "a.safetensors", "z": "b.safetensors"}})",
                        listing),
              ElementsAre("a.safetensors", "b.safetensors"));
  for (const std::string index :
       {"", "[]", R"({"weight_map": 3})", R"({"weight_map": {}})",
        R"({"weight_map": {"x": 3}})",
        R"({"weight_map": {"x": "c.safetensors"}})"}) {
    EXPECT_EQ(ShardsOf(index, listing).status().code(),
              StatusCode::kInvalidArgument)
        << index;
  }
}

}  // namespace
}  // namespace sluice
