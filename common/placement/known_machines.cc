#include "common/placement/known_machines.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "common/base/cat.h"

namespace sluice::placement {
namespace {

constexpr char kAda[] = "NVIDIA, Ada GPU architecture, appendix A";
constexpr char kAmpere[] = "NVIDIA, Ampere GA102 architecture, appendix A";
constexpr char kBlackwell[] = "NVIDIA, RTX Blackwell GPU architecture";
constexpr char kHopper[] = "NVIDIA, H100 data sheet";
constexpr char kA100[] = "NVIDIA, A100 data sheet";
constexpr char kSheet[] = "NVIDIA, its data sheet";
constexpr char kApple[] = "Apple, technical specifications; NEON";
constexpr char kAmd[] = "AMD, product specifications";
constexpr char kIntel[] = "Intel, product specifications";
constexpr char kJedec[] = "JEDEC rate, two channels";

constexpr KnownMachine kKnown[] = {
    {"b200", "NVIDIA B200", 180, 7700, 2250, true, kSheet},
    {"h200", "NVIDIA H200", 141, 4800, 989, true, kSheet},
    {"h100", "NVIDIA H100 80GB HBM3", 80, 3350, 989, true, kHopper},
    {"h100-nvl", "NVIDIA H100 NVL", 94, 3900, 835, true, kHopper},
    {"h100-pcie", "NVIDIA H100 PCIe", 80, 2000, 756, true, kHopper},
    {"a100-80", "NVIDIA A100-SXM4-80GB", 80, 2039, 312, true, kA100},
    {"a100-80-pcie", "NVIDIA A100 80GB PCIe", 80, 1935, 312, true, kA100},
    {"a100-40", "NVIDIA A100-SXM4-40GB", 40, 1555, 312, true, kA100},
    {"a40", "NVIDIA A40", 48, 696, 149.7, true, kSheet},
    {"a30", "NVIDIA A30", 24, 933, 165, true, kSheet},
    {"a10", "NVIDIA A10", 24, 600, 125, true, kSheet},
    {"l40s", "NVIDIA L40S", 48, 864, 362, true, kSheet},
    {"l40", "NVIDIA L40", 48, 864, 181, true, kSheet},
    {"l4", "NVIDIA L4", 24, 300, 121, true, kSheet},
    {"rtx-pro-6000", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 96,
     1792, 503.8, true, kSheet},
    {"rtx-6000-ada", "NVIDIA RTX 6000 Ada Generation", 48, 960, 364, true,
     kSheet},
    {"rtx-a6000", "NVIDIA RTX A6000", 48, 768, 154.8, true, kAmpere},
    {"rtx-a5000", "NVIDIA RTX A5000", 24, 768, 111.1, true, kSheet},
    {"rtx5090", "NVIDIA GeForce RTX 5090", 32, 1792, 209.5, true, kBlackwell},
    {"rtx5080", "NVIDIA GeForce RTX 5080", 16, 960, 112.6, true, kBlackwell},
    {"rtx5070-ti", "NVIDIA GeForce RTX 5070 Ti", 16, 896, 87.9, true,
     kBlackwell},
    {"rtx5070", "NVIDIA GeForce RTX 5070", 12, 672, 61.7, true, kBlackwell},
    {"rtx4090", "NVIDIA GeForce RTX 4090", 24, 1008, 165.2, true, kAda},
    {"rtx4080", "NVIDIA GeForce RTX 4080", 16, 716.8, 97.5, true, kAda},
    {"rtx4070-ti-super", "NVIDIA GeForce RTX 4070 Ti SUPER", 16, 672, 88.2,
     true, kSheet},
    {"rtx4070", "NVIDIA GeForce RTX 4070", 12, 504, 58.3, true, kSheet},
    {"rtx4060-ti-16", "NVIDIA GeForce RTX 4060 Ti", 16, 288, 44.1, true,
     kSheet},
    {"rtx4060", "NVIDIA GeForce RTX 4060", 8, 272, 30.2, true, kSheet},
    {"rtx3090", "NVIDIA GeForce RTX 3090", 24, 936, 71.2, true, kAmpere},
    {"rtx3080", "NVIDIA GeForce RTX 3080", 10, 760, 59.5, true, kAmpere},
    {"rtx3060", "NVIDIA GeForce RTX 3060", 12, 360, 25.5, true, kSheet},
    {"dgx-spark", "NVIDIA GB10", 128, 273, 125, true, kSheet},
    {"m1", "Apple M1", 0, 68.25, 0.41, false, kApple},
    {"m1-pro", "Apple M1 Pro", 0, 200, 0.82, false, kApple},
    {"m1-max", "Apple M1 Max", 0, 400, 0.82, false, kApple},
    {"m1-ultra", "Apple M1 Ultra", 0, 800, 1.64, false, kApple},
    {"m2", "Apple M2", 0, 100, 0.45, false, kApple},
    {"m2-pro", "Apple M2 Pro", 0, 200, 0.9, false, kApple},
    {"m2-max", "Apple M2 Max", 0, 400, 0.95, false, kApple},
    {"m2-ultra", "Apple M2 Ultra", 0, 800, 1.89, false, kApple},
    {"m3", "Apple M3", 0, 100, 0.52, false, kApple},
    {"m3-pro", "Apple M3 Pro", 0, 150, 0.78, false, kApple},
    {"m3-max", "Apple M3 Max, 16 cores", 0, 400, 1.56, false, kApple},
    {"m3-ultra", "Apple M3 Ultra", 0, 819, 3.11, false, kApple},
    {"m4", "Apple M4", 0, 120, 0.56, false, kApple},
    {"m4-pro", "Apple M4 Pro", 0, 273, 1.44, false, kApple},
    {"m4-max", "Apple M4 Max, 16 cores", 0, 546, 1.73, false, kApple},
    {"ryzen-ai-max-395", "AMD Ryzen AI Max+ 395", 0, 256, 4.1, false, kAmd},
    {"epyc-9755", "AMD EPYC 9755, 12 channels", 0, 576, 22.1, false, kAmd},
    {"epyc-9654", "AMD EPYC 9654, 12 channels", 0, 460.8, 7.4, false, kAmd},
    {"epyc-7763", "AMD EPYC 7763, 8 channels", 0, 204.8, 5, false, kAmd},
    {"xeon-8480", "Intel Xeon Platinum 8480+, 8 channels", 0, 307.2, 7.2, false,
     kIntel},
    {"ddr5-desktop", "8 cores of 4.5 GHz, DDR5-5600", 0, 89.6, 1.15, false,
     kJedec},
    {"ddr4-desktop", "6 cores of 4 GHz, DDR4-3200", 0, 51.2, 0.77, false,
     kJedec},
};

// What processors reach of their memory's peak: sluice bench machine finds 80
// to 90 %. GPUs have shares of their own (step_cost.cc).
constexpr double kCpuShare = 0.85;

const KnownMachine* Find(std::string_view name) {
  const auto found = std::ranges::find_if(
      kKnown, [name](const KnownMachine& one) { return one.name == name; });
  return found == std::end(kKnown) ? nullptr : &*found;
}

Machine MachineOf(const KnownMachine& known, uint64_t gib) {
  Machine machine;
  machine.name = known.name;
  machine.memory = gib << 30;
  machine.rates.cpu = known.title;
  machine.rates.is_gpu = known.is_gpu;
  machine.rates.read_gb_per_s =
      known.read_gb_per_s * (known.is_gpu ? 1 : kCpuShare);
  machine.rates.f32_gop_per_s = known.tera_ops * 1e3;
  FillRates(machine.rates);
  return machine;
}

// Cuts "-64" off a name; 0: there is no such end.
uint64_t TakeGib(std::string_view& name) {
  const size_t dash = name.rfind('-');
  if (dash == std::string_view::npos || dash + 1 == name.size()) return 0;
  const std::string digits(name.substr(dash + 1));
  if (digits.size() > 6 ||
      digits.find_first_not_of("0123456789") != std::string::npos) {
    return 0;
  }
  name = name.substr(0, dash);
  return std::strtoull(digits.c_str(), nullptr, 10);
}

// A figure without zeros behind it.
std::string Rounded(double value) {
  const auto tenths = static_cast<int64_t>(value * 100 + 0.5);
  std::string text = Cat(tenths / 100);
  if (tenths % 100 == 0) return text;
  const int64_t rest = tenths % 100;
  text += Cat(".", rest / 10);
  return rest % 10 == 0 ? text : text + Cat(rest % 10);
}

}  // namespace

std::span<const KnownMachine> KnownMachines() { return kKnown; }

StatusOr<Machine> FindKnownMachine(const std::string& name) {
  const KnownMachine* known = Find(name);
  if (known != nullptr && known->memory_gib > 0) {
    return MachineOf(*known, static_cast<uint64_t>(known->memory_gib));
  }
  if (known != nullptr) {
    return InvalidArgument(name, " is sold with different memories: ", name,
                           "-GIB, ", name, "-64");
  }
  std::string_view rest = name;
  const uint64_t gib = TakeGib(rest);
  known = gib > 0 ? Find(rest) : nullptr;
  if (known != nullptr && known->memory_gib == 0) {
    Machine machine = MachineOf(*known, gib);
    machine.name = name;
    return machine;
  }
  std::string names;
  for (const KnownMachine& one : kKnown) {
    names += Cat(names.empty() ? "" : ", ", one.name,
                 one.memory_gib == 0 ? "-GIB" : "");
  }
  return NotFound("there is no machine '", name, "'; known are ", names);
}

const KnownMachine* KnownGpu(const std::string& title) {
  const auto found =
      std::ranges::find_if(kKnown, [&title](const KnownMachine& one) {
        return one.is_gpu && one.title == title;
      });
  return found == std::end(kKnown) ? nullptr : &*found;
}

std::string KnownMachinesPage() {
  std::string page =
      "# Machines that `sluice plan --machine` knows\n\n"
      "Figures of makers, none of them measured: plans with them are "
      "estimates. "
      "`GIB` is the\n"
      "memory that was bought (`m4-max-64`). Operations: of a GPU those of "
      "BF16 "
      "matrices\n"
      "without sparsity, of a CPU those of F32, its cores times clock times "
      "operations of a\n"
      "clock. Plans take 85 % of a CPU's bandwidth; of a GPU's what an H200 "
      "reaches\n"
      "(`step_cost.cc`, `tests/gpu/results`). Made from `known_machines.cc` "
      "by\n"
      "`tests/placement/known_machines_test.cc`.\n\n"
      "| name | machine | GiB | GB/s | 10^12 operations/s | source |\n"
      "| --- | --- | --- | --- | --- | --- |\n";
  for (const KnownMachine& one : kKnown) {
    page += Cat(
        "| `", one.name, one.memory_gib == 0 ? "-GIB" : "", "` | ", one.title,
        " | ",
        one.memory_gib == 0 ? std::string("as bought") : Cat(one.memory_gib),
        " | ", Rounded(one.read_gb_per_s), " | ", Rounded(one.tera_ops), " | ",
        one.source, " |\n");
  }
  return page;
}

}  // namespace sluice::placement
