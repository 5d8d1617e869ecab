#include "tests/weights/model_files.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "common/base/cat.h"
#include "common/base/check.h"

namespace sluice::testing {

TempDir::TempDir() {
  std::string pattern =
      (std::filesystem::temp_directory_path() / "sluice-weights-XXXXXX")
          .string();
  SLUICE_CHECK(::mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TempDir::Write(std::string_view name,
                           std::string_view bytes) const {
  const std::string path = Cat(path_, "/", name);
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  SLUICE_CHECK(out.good());
  return path;
}

std::string Safetensors(std::string_view header, std::string_view data) {
  return Cat(BytesOf<uint64_t>(header.size()), header, data);
}

std::string GgufString(std::string_view text) {
  return Cat(BytesOf<uint64_t>(text.size()), text);
}

GgufBuilder& GgufBuilder::Key(std::string_view key, uint32_t type,
                              std::string_view value) {
  keys_ += Cat(GgufString(key), BytesOf(type), value);
  ++num_keys_;
  return *this;
}

GgufBuilder& GgufBuilder::U32(std::string_view key, uint32_t value) {
  return Key(key, 4, BytesOf(value));
}

GgufBuilder& GgufBuilder::F32(std::string_view key, float value) {
  return Key(key, 6, BytesOf(value));
}

GgufBuilder& GgufBuilder::Text(std::string_view key, std::string_view value) {
  return Key(key, 8, GgufString(value));
}

GgufBuilder& GgufBuilder::Array(std::string_view key, uint32_t type,
                                uint64_t count, std::string_view elements) {
  return Key(key, 9, Cat(BytesOf(type), BytesOf(count), elements));
}

GgufBuilder& GgufBuilder::TensorAt(std::string_view name,
                                   std::vector<uint64_t> dims, uint32_t type,
                                   uint64_t offset) {
  tensors_ += Cat(GgufString(name), BytesOf(static_cast<uint32_t>(dims.size())),
                  BytesOf(dims), BytesOf(type), BytesOf(offset));
  ++num_tensors_;
  return *this;
}

GgufBuilder& GgufBuilder::Tensor(std::string_view name,
                                 std::vector<uint64_t> dims, uint32_t type,
                                 std::string_view data) {
  data_.resize((data_.size() + 31) / 32 * 32);
  TensorAt(name, std::move(dims), type, data_.size());
  data_ += data;
  return *this;
}

std::string GgufBuilder::Build() const {
  std::string bytes =
      Cat("GGUF", BytesOf(version), BytesOf(num_tensors_ + extra_tensors),
          BytesOf(num_keys_ + extra_keys), keys_, tensors_);
  bytes.resize((bytes.size() + 31) / 32 * 32);
  return bytes + data_;
}

GgufBuilder TinyLlama() {
  GgufBuilder gguf;
  gguf.Text("general.architecture", "llama")
      .U32("llama.embedding_length", 8)
      .U32("llama.block_count", 2)
      .U32("llama.attention.head_count", 2)
      .U32("llama.attention.head_count_kv", 1)
      .U32("llama.feed_forward_length", 12)
      .U32("llama.context_length", 64)
      .F32("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .U32("tokenizer.ggml.eos_token_id", 2);
  float next = 0;
  const auto add = [&](const std::string& name, std::vector<uint64_t> dims) {
    uint64_t count = 1;
    for (const uint64_t dim : dims) count *= dim;
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), next);
    next += static_cast<float>(count);
    gguf.Tensor(name, std::move(dims), 0, BytesOf(values));
  };
  add("token_embd.weight", {8, 6});
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = Cat("blk.", layer, ".");
    add(prefix + "attn_norm.weight", {8});
    add(prefix + "attn_q.weight", {8, 8});
    add(prefix + "attn_k.weight", {8, 4});
    add(prefix + "attn_v.weight", {8, 4});
    add(prefix + "attn_output.weight", {8, 8});
    add(prefix + "ffn_norm.weight", {8});
    add(prefix + "ffn_gate.weight", {8, 12});
    add(prefix + "ffn_up.weight", {8, 12});
    add(prefix + "ffn_down.weight", {12, 8});
  }
  add("output_norm.weight", {8});
  return gguf;
}

}  // namespace sluice::testing
