#ifndef SLUICE_TESTS_WEIGHTS_MODEL_FILES_H_
#define SLUICE_TESTS_WEIGHTS_MODEL_FILES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace sluice::testing {

// A folder of its own, removed with what is in it.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  // Writes a file into it and gives its path.
  std::string Write(std::string_view name, std::string_view bytes) const;

 private:
  std::string path_;
};

// The bytes of `value` as they stand in memory (little-endian).
template <typename T>
requires std::is_trivially_copyable_v<T> std::string BytesOf(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}
template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()),
                     values.size() * sizeof(T));
}

// A safetensors file of this header text and data.
std::string Safetensors(std::string_view header, std::string_view data);

// Writes GGUF files byte by byte, wrong ones too. Keys and tensors come in
// the order of the calls.
class GgufBuilder {
 public:
  GgufBuilder& Key(std::string_view key, uint32_t type, std::string_view value);
  GgufBuilder& U32(std::string_view key, uint32_t value);
  GgufBuilder& F32(std::string_view key, float value);
  GgufBuilder& Text(std::string_view key, std::string_view value);
  // An array of `count` elements of `type`, given as bytes.
  GgufBuilder& Array(std::string_view key, uint32_t type, uint64_t count,
                     std::string_view elements);
  // Dimensions fastest first, as in the file. The data follows that of the
  // tensor before, aligned.
  GgufBuilder& Tensor(std::string_view name, std::vector<uint64_t> dims,
                      uint32_t type, std::string_view data);
  // As Tensor, with an offset of one's own and no data.
  GgufBuilder& TensorAt(std::string_view name, std::vector<uint64_t> dims,
                        uint32_t type, uint64_t offset);

  uint32_t version = 3;
  uint64_t extra_keys = 0;     // counted, not written
  uint64_t extra_tensors = 0;  // counted, not written
  std::string Build() const;

 private:
  uint64_t num_keys_ = 0;
  uint64_t num_tensors_ = 0;
  std::string keys_;
  std::string tensors_;
  std::string data_;
};

// GGUF's string: its length and its bytes.
std::string GgufString(std::string_view text);

// A whole tiny llama in GGUF: F32 tensors whose values are consecutive
// numbers, tensor by tensor in the order of ExpectedTensors' names. Two
// layers, hidden 8, 2 heads, 1 kv head, head_dim 4, intermediate 12, vocab 6.
GgufBuilder TinyLlama();

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_WEIGHTS_MODEL_FILES_H_
