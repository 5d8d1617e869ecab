#include "common/model_config/gguf_view.h"

#include <array>
#include <charconv>

namespace sluice {
namespace {

using weights::LocatedTensor;
using weights::Quoted;

constexpr int64_t kMaxRopeDivisors = 4096;

template <typename T>
StatusOr<T> AsArgument(const StatusOr<T>& value) {
  if (value.ok()) return *value;
  return InvalidArgument(Message(value.status()));
}

}  // namespace

double ShortestDouble(double stored) {
  std::array<char, 64> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(),
                                 static_cast<float>(stored));
  double value = stored;
  std::from_chars(text.data(), end.ptr, value);
  return value;
}

StatusOr<std::vector<float>> ReadRopeVector(const LocatedTensor& tensor) {
  const weights::TensorInfo& info = tensor.info;
  if (info.dtype != weights::DType::kF32 || info.shape.size() != 1 ||
      info.cols() > kMaxRopeDivisors) {
    return InvalidArgument("tensor ", Quoted(info.name), " is ", info.dtype,
                           " ", weights::ShapeToString(info.shape),
                           ", expected a vector of F32, at most ",
                           kMaxRopeDivisors, " long");
  }
  std::vector<float> elements(static_cast<size_t>(info.cols()));
  SLUICE_RETURN_IF_ERROR(tensor.file->ReadAt(
      tensor.offset, elements.size() * sizeof(float), elements.data()));
  return elements;
}

std::string GgufView::Key(std::string_view key) const {
  asked_.emplace(key);
  return key.starts_with('.') ? Cat(architecture_, key) : std::string(key);
}

bool GgufView::Has(std::string_view key) const {
  return metadata().Has(Key(key));
}

StatusOr<int64_t> GgufView::Int(std::string_view key) const {
  return AsArgument(metadata().Int(Key(key)));
}

StatusOr<double> GgufView::Float(std::string_view key) const {
  auto value = metadata().Float(Key(key));
  if (value.ok()) *value = ShortestDouble(*value);
  return AsArgument(value);
}

StatusOr<bool> GgufView::Bool(std::string_view key) const {
  return AsArgument(metadata().Bool(Key(key)));
}

const LocatedTensor* GgufView::FindTensor(std::string_view name) const {
  for (const LocatedTensor& tensor : contents_.tensors) {
    if (tensor.info.name == name) return &tensor;
  }
  return nullptr;
}

}  // namespace sluice
