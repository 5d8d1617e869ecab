#include "tests/gpu/checked_shapes.h"

#include <algorithm>
#include <utility>

#include "common/base/cat.h"

namespace sluice::testing {
namespace {

// Rows and columns of which blocks and warps of the largest GPU have several
// passes each.
Shapes ManyRows(int64_t tokens) {
  Shapes shapes = {"many rows", {}, {}};
  shapes.sizes.tokens = tokens;
  shapes.sizes.hidden = 4096;
  shapes.sizes.mlp = 6400;
  for (const char* type :
       {"bf16", "fp8", "MXFP4", "Q8_0", "Q4_0", "Q4_K", "Q6_K"}) {
    shapes.ops.push_back(Cat("linear ", type));
    shapes.ops.push_back(Cat("mlp ", type));
  }
  return shapes;
}

// Heads with kernels of their own, over several chunks of positions.
Shapes LongContext(int64_t tokens, int64_t head_dim) {
  Shapes shapes = {"long context", {}, {"attention "}};
  shapes.sizes.tokens = tokens;
  shapes.sizes.context = 600;
  shapes.sizes.heads = 8;
  shapes.sizes.kv_heads = 2;
  shapes.sizes.head_dim = head_dim;
  return shapes;
}

// The heads of a kv head, and the window, that a family has.
struct Heads {
  const char* name;
  int64_t of_kv_head;
  int64_t head_dim;
  int32_t window;
};
constexpr Heads kFamilies[] = {{"gpt-oss, window", 8, 64, 128},
                               {"gpt-oss", 8, 64, 0},
                               {"GLM-4.5-Air", 12, 128, 0}};

// Tokens behind a context that takes many chunks: of one sequence, or one each.
Shapes HeadsOfFamily(const Heads& heads, int64_t tokens, bool apart) {
  Shapes shapes = {heads.name, {}, {"attention "}};
  if (apart) shapes.name += ", sequences apart";
  shapes.sizes.tokens = tokens;
  shapes.sizes.context = 3000;
  shapes.sizes.apart = apart;
  shapes.sizes.window = heads.window;
  shapes.sizes.heads = 2 * heads.of_kv_head;
  shapes.sizes.kv_heads = 2;
  shapes.sizes.head_dim = heads.head_dim;
  return shapes;
}

// Inputs that a device may flush to zero, which canonical numerics do not.
Shapes Subnormal(int64_t tokens) {
  Shapes shapes = {"subnormal", {}, {"linear ", "row parallel ", "norm"}};
  shapes.sizes.tokens = tokens;
  shapes.sizes.largest = kSubnormal;
  return shapes;
}

// As many as GLM-4.5-Air has.
Shapes ManyExperts(int64_t tokens) {
  Shapes shapes = {"many experts", {}, {"experts "}};
  shapes.sizes.tokens = tokens;
  shapes.sizes.hidden = 1024;
  shapes.sizes.mlp = 256;
  shapes.sizes.experts = 128;
  shapes.sizes.per_token = 8;
  return shapes;
}

// Routers of one token, whose blocks hand their sums to the last one: of many
// experts, all multiprocessors at once. Such an order of memory shows only now
// and then.
constexpr int kRouterTimes = 300;
std::vector<Shapes> Routers() {
  std::vector<Shapes> all;
  for (const auto& [experts, cols] : {std::pair{32, 2880},
                                      {128, 2880},
                                      {128, 4096},
                                      {160, 5120},
                                      {256, 8192}}) {
    Shapes shapes = {Cat("router of ", experts, " by ", cols),
                     {},
                     {"norm, router"},
                     kRouterTimes};
    shapes.sizes.hidden = cols;
    shapes.sizes.experts = experts;
    shapes.sizes.per_token = experts == 32 ? 4 : 8;
    all.push_back(std::move(shapes));
  }
  return all;
}

}  // namespace

OpSizes Boundaries(int64_t tokens) {
  OpSizes sizes;
  sizes.tokens = tokens;
  sizes.context = tokens == 1 ? 270 : 10;
  sizes.head_dim = tokens == 1 ? 32 : 64;
  sizes.experts = 5;
  sizes.per_token = 3;
  return sizes;
}

OpSizes Large(int64_t tokens) {
  OpSizes sizes;
  sizes.tokens = tokens;
  sizes.context = 1024;
  sizes.hidden = 4096;
  sizes.mlp = 14336;
  sizes.heads = 32;
  sizes.kv_heads = 8;
  sizes.head_dim = 128;
  sizes.vocab = 32064;
  sizes.experts = 4;
  sizes.per_token = 2;
  sizes.rows_repeat = true;
  return sizes;
}

std::vector<Shapes> CheckedShapes(bool small, bool fast) {
  std::vector<Shapes> all;
  for (const int64_t tokens : {1, 2, 33}) {
    if (!fast) all.push_back(Subnormal(tokens));
  }
  for (const int64_t tokens : {1, 2, 11, 33}) {
    all.push_back({"boundaries", Boundaries(tokens), {}});
  }
  for (const int64_t tokens : {1, 2, 33}) {
    all.push_back(LongContext(tokens, 64));
    all.push_back(LongContext(tokens, 128));
    if (small) continue;
    all.push_back(ManyRows(tokens));
    all.push_back(ManyExperts(tokens));
  }
  if (small) return all;
  for (Shapes& shapes : Routers()) all.push_back(std::move(shapes));
  for (const Heads& heads : kFamilies) {
    for (const int64_t tokens : {1, 33}) {
      all.push_back(HeadsOfFamily(heads, tokens, /*apart=*/false));
    }
    all.push_back(HeadsOfFamily(heads, 33, /*apart=*/true));
  }
  return all;
}

std::vector<Shapes> ShapesInGroups() {
  std::vector<Shapes> all;
  for (const int64_t tokens : {65, 128, 129, 300}) {
    Shapes shapes = {
        "in groups", {}, {"linear bf16", "row parallel bf16", "experts bf16"}};
    shapes.sizes.tokens = tokens;
    shapes.sizes.hidden = 1024;
    shapes.sizes.mlp = 1280;
    shapes.sizes.experts = 2;
    all.push_back(std::move(shapes));
  }
  return all;
}

std::vector<DeviceOp> OpsOf(const Shapes& shapes) {
  std::vector<DeviceOp> ops = AllDeviceOps(shapes.sizes);
  std::erase_if(ops, [&](const DeviceOp& op) {
    return !shapes.ops.empty() &&
           std::ranges::none_of(shapes.ops, [&](const std::string& name) {
             return op.name.starts_with(name);
           });
  });
  return ops;
}

}  // namespace sluice::testing
