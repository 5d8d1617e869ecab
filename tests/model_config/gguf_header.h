#ifndef SLUICE_TESTS_MODEL_CONFIG_GGUF_HEADER_H_
#define SLUICE_TESTS_MODEL_CONFIG_GGUF_HEADER_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/weights/model_file.h"
#include "tests/weights/model_files.h"

namespace sluice::testing {

// A header of an architecture: 12 layers, 2 heads of 8.
class GgufHeader {
 public:
  explicit GgufHeader(std::string architecture, uint32_t context = 4096)
      : architecture_(std::move(architecture)) {
    gguf_.Text("general.architecture", architecture_);
    for (const auto& [key, value] : {std::pair("embedding_length", 32),
                                     std::pair("attention.head_count", 2),
                                     std::pair("attention.key_length", 8),
                                     std::pair("feed_forward_length", 24)}) {
      U32(key, static_cast<uint32_t>(value));
    }
    U32("context_length", context);
    F32("attention.layer_norm_rms_epsilon", 1e-5f);
    if (architecture_.starts_with("granite")) F32("logit_scale", 8.0f);
  }
  GgufHeader& U32(std::string_view key, uint32_t value) {
    gguf_.U32(Cat(architecture_, ".", key), value);
    return *this;
  }
  GgufHeader& I64(std::string_view key, int64_t value) {
    gguf_.Key(Cat(architecture_, ".", key), 11, BytesOf(value));
    return *this;
  }
  GgufHeader& F32(std::string_view key, float value) {
    gguf_.F32(Cat(architecture_, ".", key), value);
    return *this;
  }
  GgufHeader& Text(std::string_view key, std::string_view value) {
    gguf_.Text(Cat(architecture_, ".", key), value);
    return *this;
  }
  GgufHeader& Bool(std::string_view key, bool value) {
    gguf_.Key(Cat(architecture_, ".", key), 7,
              value ? "\1" : std::string(1, 0));
    return *this;
  }
  GgufHeader& Bools(std::string_view key, const std::vector<bool>& values) {
    std::string bytes;
    for (const bool value : values) bytes += value ? '\1' : '\0';
    gguf_.Array(Cat(architecture_, ".", key), 7, bytes.size(), bytes);
    return *this;
  }
  GgufHeader& Ints(std::string_view key, const std::vector<int32_t>& values) {
    gguf_.Array(Cat(architecture_, ".", key), 5, values.size(),
                BytesOf(values));
    return *this;
  }
  GgufHeader& Tensor(std::string_view name, const std::vector<uint64_t>& dims,
                     uint32_t type, std::string_view data) {
    gguf_.Tensor(name, dims, type, data);
    return *this;
  }
  GgufHeader& Vector(std::string_view name,
                     const std::vector<float>& elements) {
    gguf_.Tensor(name, {elements.size()}, 0, BytesOf(elements));
    return *this;
  }
  GgufHeader& Layers(uint32_t count) {
    layers_ = count;
    return *this;
  }
  StatusOr<std::unique_ptr<weights::ModelFile>> OpenFile(const TempDir& dir) {
    U32("block_count", layers_);
    gguf_.Tensor("token_embd.weight", {2, 2}, 0,
                 BytesOf(std::vector<float>(4)));
    return OpenModel(dir.Write("m.gguf", gguf_.Build()));
  }
  StatusOr<Json> Open() {
    const TempDir dir;
    const auto model = OpenFile(dir);
    if (!model.ok()) return model.status();
    return (*model)->config();
  }
  ModelConfig Parsed() {
    const auto json = Open();
    EXPECT_TRUE(json.ok()) << json.status();
    if (!json.ok()) return {};
    auto config = ParseModelConfig(*json);
    EXPECT_TRUE(config.ok()) << config.status();
    return config.ok() ? *config : ModelConfig();
  }
  std::string Refusal() { return Message(Open().status()); }

 private:
  const std::string architecture_;
  uint32_t layers_ = 12;
  GgufBuilder gguf_;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_MODEL_CONFIG_GGUF_HEADER_H_
