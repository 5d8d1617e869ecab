#include "tests/model/golden_file.h"

#include <cstring>
#include <string_view>

#include "common/base/cat.h"
#include "common/base/check.h"
#include "common/base/json.h"
#include "tests/testing/test_data.h"

namespace sluice::testing {
namespace {

// Elements of tensor `name`, stored as Stored.
template <typename Stored, typename Value>
std::vector<Value> Elements(const Json& header, std::string_view data,
                            const std::string& name) {
  const Json& offsets = header.at(name).at("data_offsets");
  const auto begin = offsets[0].get<size_t>();
  const auto end = offsets[1].get<size_t>();
  std::vector<Value> values;
  for (size_t at = begin; at < end; at += sizeof(Stored)) {
    Stored value;
    std::memcpy(&value, data.data() + at, sizeof(value));
    values.push_back(static_cast<Value>(value));
  }
  return values;
}

}  // namespace

std::vector<GoldenPrompt> ReadGolden(const std::string& folder) {
  const std::string file = ReadFileOrDie(folder + "/expected.safetensors");
  uint64_t header_size = 0;
  std::memcpy(&header_size, file.data(), sizeof(header_size));
  const auto header = ParseJson(std::string_view(file).substr(8, header_size));
  SLUICE_CHECK(header.ok());
  const std::string_view data = std::string_view(file).substr(8 + header_size);
  std::vector<GoldenPrompt> prompts;
  for (int i = 0;; ++i) {
    const std::string prefix = Cat("prompt_", i);
    if (!header->contains(prefix + ".ids")) return prompts;
    GoldenPrompt& prompt = prompts.emplace_back();
    prompt.ids = Elements<int64_t, TokenId>(*header, data, prefix + ".ids");
    prompt.greedy_ids =
        Elements<int64_t, TokenId>(*header, data, prefix + ".greedy_ids");
    prompt.last_logits =
        Elements<float, float>(*header, data, prefix + ".last_logits");
    const Json& shape = header->at(prefix + ".last_logits").at("shape");
    prompt.first_position = std::ssize(prompt.ids) - shape.at(0).get<int64_t>();
    prompt.vocab_size = shape.at(1).get<int64_t>();
    SLUICE_CHECK(prompt.first_position >= 0);
  }
}

}  // namespace sluice::testing
