#include "common/tools/plan/read_machines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace sluice::plan {
namespace {

namespace fs = std::filesystem;
using placement::Machine;
using placement::Machines;
using ::testing::HasSubstr;

class MachinesTest : public ::testing::Test {
 protected:
  MachinesTest() {
    folder_ =
        (fs::temp_directory_path() / Cat("machines-", ::getpid())).string();
    fs::create_directories(folder_);
  }
  ~MachinesTest() override { fs::remove_all(folder_); }

  StatusOr<Machines> Read(const std::string& text) const {
    std::ofstream(folder_ + "/machines.toml") << text;
    return ReadMachines(folder_ + "/machines.toml");
  }
  std::string folder_;
};

TEST_F(MachinesTest, AFileNamesMachinesAndTheirLink) {
  std::ofstream(folder_ + "/rates.json")
      << R"({"read_gb_per_s": 30, "byte_gop_per_s": 500, "join_us": 2})";
  const auto machines = Read(R"(
[link]
latency_ms = 0.5
gbit_per_s = 1
[[machine]]
name = "a"   # the first
count = 2
memory = "48G"
read_gb_per_s = 80
price_per_hour = 0.25
[[machine]]
name = "b"
address = "10.0.0.5"
device = "cuda:0,1"
memory = "16G"
role = "experts"
rates = "rates.json"
)");
  ASSERT_TRUE(machines.ok()) << machines.status();
  EXPECT_DOUBLE_EQ(machines->link.latency_seconds, 5e-4);
  EXPECT_DOUBLE_EQ(machines->link.bytes_per_second, 1.25e8);
  ASSERT_EQ(machines->machines.size(), 3u);
  const Machine& first = machines->machines[0];
  EXPECT_EQ(first.name, "a-0");
  EXPECT_EQ(first.memory, uint64_t{48} << 30);
  EXPECT_EQ(first.price_per_hour, 0.25);
  EXPECT_FALSE(first.serves_experts);
  EXPECT_EQ(machines->machines[1].name, "a-1");
  // What is missing follows from the bandwidth.
  EXPECT_EQ(first.rates.byte_gop_per_s, 3200);
  EXPECT_EQ(first.rates.f32_gop_per_s, 1600);
  const Machine& host = machines->machines[2];
  EXPECT_TRUE(host.serves_experts);
  EXPECT_EQ(host.address, "10.0.0.5");
  EXPECT_EQ(host.device, "cuda:0,1");
  EXPECT_EQ(first.device, "");
  EXPECT_EQ(host.rates.read_gb_per_s, 30);
  EXPECT_EQ(host.rates.byte_gop_per_s, 500);
  EXPECT_DOUBLE_EQ(host.rates.join_seconds, 2e-6);
}

TEST_F(MachinesTest, PairsHaveLinksOfTheirOwn) {
  const auto machines = Read(R"(
[[links]]
between = ["pc", "gpu"]
latency_ms = 3
gbit_per_s = 0.4
[[links]]
between = ["gpu-0", "gpu-1"]
latency_ms = 0.01
gbit_per_s = 400
[[machine]]
name = "pc"
memory = "16G"
read_gb_per_s = 50
role = "any"
[[machine]]
name = "gpu"
count = 2
memory = "24G"
read_gb_per_s = 900
)");
  ASSERT_TRUE(machines.ok()) << machines.status();
  EXPECT_FALSE(machines->is_link_named);
  EXPECT_TRUE(machines->machines[0].serves_any);
  EXPECT_FALSE(machines->machines[0].is_measured);
  for (const int32_t gpu : {1, 2}) {
    EXPECT_DOUBLE_EQ(machines->Between(gpu, 0).latency_seconds, 3e-3);
    EXPECT_DOUBLE_EQ(machines->Between(0, gpu).bytes_per_second, 5e7);
  }
  EXPECT_TRUE(machines->HasPair(2, 1));
  EXPECT_DOUBLE_EQ(machines->Between(1, 2).bytes_per_second, 5e10);
}

TEST_F(MachinesTest, AWrongFileIsToldWithItsKeyAndValue) {
  const std::string machine = "[[machine]]\nmemory = \"1G\"\n";
  for (const auto& [text, words] :
       {std::pair<std::string, std::string>{"", "has no [[machine]]"},
        {"[[machine]]\nread_gb_per_s = 1\n", "machine m0 has no memory"},
        {machine, "neither read_gb_per_s nor rates"},
        {machine + "read_gb_per_s = 0\n", "read_gb_per_s must be a positive"},
        {machine + "read_gb_per_s = \"fast\"\n", "got 'fast'"},
        {machine + "read_gb_per_s = 1\nspeed = 3\n", "no key 'speed'"},
        {machine + "read_gb_per_s = 1\nrole = \"db\"\n", "got 'db'"},
        {machine + "read_gb_per_s = 1\ncount = 1.5\n", "whole number"},
        {"[[machine]]\nmemory = \"1X\"\n", "memory"},
        {machine + "rates = \"none.json\"\n", "none.json"},
        {"[link]\nspeed = 1\n", "no key 'speed' of the link"},
        {machine + "read_gb_per_s = 1\n[[links]]\nbetween = [\"m0\"]\n",
         "links 1: between must be the names of two machines, got 1"},
        {machine + "read_gb_per_s = 1\n[[links]]\nbetween = [\"m0\", \"x\"]\n",
         "there is no machine 'x'"},
        {machine + "read_gb_per_s = 1\n[[links]]\nbetween = [\"m0\", \"m0\"]\n",
         "no link to itself"},
        {machine + "read_gb_per_s = 1\n[[links]]\nspeed = 1\n",
         "no key 'speed' of the link"},
        {machine + "read_gb_per_s = 1\nname = \"a$(id)\"\n", "got 'a$(id)'"},
        {machine + "read_gb_per_s = 1\nname = \"-a\"\n", "got '-a'"},
        {machine + "read_gb_per_s = 1\naddress = \"10.0.0.1;x\"\n",
         "address must have letters"},
        {machine + "read_gb_per_s = 1\nname = \"m1\"\n" + machine +
             "read_gb_per_s = 1\n",
         "two machines have the name m1"},
        {"x = 1\n", "there is no x"}}) {
    const auto machines = Read(text);
    ASSERT_FALSE(machines.ok()) << text;
    EXPECT_THAT(Message(machines.status()), HasSubstr(words));
    EXPECT_THAT(Message(machines.status()), HasSubstr("machines.toml"));
  }
  EXPECT_FALSE(ReadMachines(folder_ + "/none.toml").ok());
}

}  // namespace
}  // namespace sluice::plan
