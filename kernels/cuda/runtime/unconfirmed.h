#ifndef SLUICE_KERNELS_CUDA_RUNTIME_UNCONFIRMED_H_
#define SLUICE_KERNELS_CUDA_RUNTIME_UNCONFIRMED_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::kernels::cuda {

// What no GPU has confirmed yet: tests have run it on the emulated device
// alone. It stays off until $SLUICE_UNCONFIRMED names it: names of the table
// below with commas between them, or "all". A row goes, and its switch with it,
// when a GPU has confirmed it, or when a GPU has shown that what runs instead
// is no slower. Code that has nothing in its place cannot stand here:
// tests/gpu/README.md lists that.
enum class Unconfirmed : uint8_t {
  kWgmma,
  kNcclGraphs,
  kTokenProduct,
  kHeadAttention,
  kRouterProduct,
  kNormRoute,
  kNormedProduct,
  kRopeAttention,
};

struct UnconfirmedRow {
  Unconfirmed what;
  const char* name;
  // A variable that asks for it where it is 1; null for rows that have none.
  const char* variable;
  const char* does;
  const char* instead;       // what runs where it is off
  const char* confirmed_by;  // parts of tests/gpu/run
};

// Rows in the order of Unconfirmed. All but kWgmma have the bits of what runs
// instead; with kWgmma numerics have an id of their own.
inline constexpr UnconfirmedRow kUnconfirmed[] = {
    {Unconfirmed::kWgmma, "wgmma", "SLUICE_WGMMA",
     "BF16 products of more than 64 tokens by wgmma "
     "(fast/products_many_tokens_wgmma.h)",
     "mma.sync", "check_wgmma: mma.sync's bits; llama8b_wgmma: faster prompts"},
    {Unconfirmed::kNcclGraphs, "nccl_graphs", "SLUICE_NCCL_GRAPHS",
     "NCCL's gathers within the CUDA graph of a decode step",
     "gathers between graphs",
     "ranks on two GPUs or more: the same tokens; faster decode"},
    {Unconfirmed::kTokenProduct, "token_product", nullptr,
     "norm, eight-bit activations, product and gate or residual of a token in "
     "one launch (canonical/fused_token_product.h)",
     "a launch each",
     "check_unconfirmed; canonical_q4_0_unconfirmed: faster decode"},
    {Unconfirmed::kHeadAttention, "head_attention", nullptr,
     "canonical attention of heads of 64 and 128 elements "
     "(canonical/attention_decode.h, attention_prompt.h)",
     "that of heads of any size",
     "check_unconfirmed; canonical_q4_0_unconfirmed: faster decode"},
    {Unconfirmed::kRouterProduct, "router_product", nullptr,
     "a router's logits of few tokens, whose columns are read at once "
     "(shared/router_product.h)",
     "the product of any F32 weight",
     "check_unconfirmed; gptoss20b_unconfirmed: faster decode"},
    {Unconfirmed::kNormRoute, "norm_route", nullptr,
     "a token's norm, router and routing in one launch, whose last block "
     "relies on the order of other blocks' stores (fast/norm_route.h)",
     "a launch each",
     "check_unconfirmed; gptoss20b_unconfirmed: faster decode"},
    {Unconfirmed::kNormedProduct, "normed_product", nullptr,
     "a token's norm by every block of the product behind it "
     "(fast/products_few_tokens_norm.h)",
     "a launch each", "check_unconfirmed; llama8b_unconfirmed: faster decode"},
    {Unconfirmed::kRopeAttention, "rope_attention", nullptr,
     "norms of heads, rotary positions and stored keys and values within "
     "attention's launch, which reads keys of earlier steps before its inputs "
     "are there (fast/attention_decode_rope.h)",
     "a launch each", "check_unconfirmed; llama8b_unconfirmed: faster decode"},
};

// Rows that are asked for. A value.
class UnconfirmedSet {
 public:
  static constexpr UnconfirmedSet All() {
    UnconfirmedSet all;
    for (const UnconfirmedRow& row : kUnconfirmed) all.Add(row.what);
    return all;
  }
  constexpr void Add(Unconfirmed what) { bits_ |= BitOf(what); }
  constexpr void Remove(Unconfirmed what) { bits_ &= ~BitOf(what); }
  constexpr bool Has(Unconfirmed what) const {
    return (bits_ & BitOf(what)) != 0;
  }
  constexpr bool operator==(const UnconfirmedSet&) const = default;

 private:
  static constexpr uint32_t BitOf(Unconfirmed what) {
    return uint32_t{1} << static_cast<int>(what);
  }
  uint32_t bits_ = 0;
};

// Adds the rows that `names` names to `set`: an empty string, or names with one
// comma between two. Returns what is wrong with `names`, or an empty string.
std::string AddUnconfirmed(std::string_view names, UnconfirmedSet* set);

// What the environment asks for.
struct UnconfirmedAsked {
  UnconfirmedSet set;
  std::string error;  // what is wrong with $SLUICE_UNCONFIRMED, or empty
};
UnconfirmedAsked ReadUnconfirmed();
// Returns what the environment asked for at the first call: all parts of a
// process go by the same. Any thread.
const UnconfirmedAsked& AskedUnconfirmed();

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_RUNTIME_UNCONFIRMED_H_
