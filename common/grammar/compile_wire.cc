#include "common/grammar/compile_wire.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

namespace sluice {
namespace {

template <typename T>
void Put(std::string& out, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void PutText(std::string& out, std::string_view text) {
  Put(out, static_cast<uint64_t>(text.size()));
  out += text;
}

template <typename T>
void PutList(std::string& out, const std::vector<T>& list) {
  PutText(out, {reinterpret_cast<const char*>(list.data()),
                list.size() * sizeof(T)});
}

// Takes values from the front of a message; `ok` turns false at its end.
struct Taker {
  std::string_view left;
  bool ok = true;

  template <typename T>
  void Take(T& value) {
    ok = ok && left.size() >= sizeof(value);
    if (!ok) return;
    std::memcpy(&value, left.data(), sizeof(value));
    left.remove_prefix(sizeof(value));
  }
  std::string_view TakeText() {
    uint64_t size = 0;
    Take(size);
    ok = ok && left.size() >= size;
    if (!ok) return {};
    const std::string_view text = left.substr(0, size);
    left.remove_prefix(size);
    return text;
  }
  template <typename T>
  void TakeList(std::vector<T>& list) {
    const std::string_view bytes = TakeText();
    list.resize(bytes.size() / sizeof(T));
    if (!list.empty()) {
      std::memcpy(list.data(), bytes.data(), list.size() * sizeof(T));
    }
  }
};

template <typename T>
std::optional<T> WholeOr(const Taker& from, T value) {
  if (!from.ok || !from.left.empty()) return std::nullopt;
  return value;
}

bool ReadAll(int fd, char* data, size_t size) {
  while (size > 0) {
    const ssize_t got = read(fd, data, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    data += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

bool SendAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

}  // namespace

std::string Encode(const CompileSetup& setup) {
  std::string out;
  Put(out, setup.limits);
  Put(out, setup.vocab_size);
  PutList(out, setup.eos_ids);
  Put(out, static_cast<uint64_t>(setup.answers.size()));
  for (const std::vector<TokenId>& answer : setup.answers) PutList(out, answer);
  PutText(out, setup.table);
  return out;
}

std::optional<CompileSetup> DecodeCompileSetup(std::string_view bytes) {
  CompileSetup setup;
  Taker in{bytes};
  in.Take(setup.limits);
  in.Take(setup.vocab_size);
  in.TakeList(setup.eos_ids);
  uint64_t num_answers = 0;
  in.Take(num_answers);
  for (uint64_t i = 0; in.ok && i < num_answers; ++i) {
    in.TakeList(setup.answers.emplace_back());
  }
  setup.table = in.TakeText();
  return WholeOr(in, std::move(setup));
}

std::string Encode(const TrialQuestion& question) {
  std::string out;
  Put(out, question.what);
  Put(out, question.kind);
  Put(out, question.compile_ms);
  Put(out, question.masks_ms);
  PutText(out, question.text);
  return out;
}

std::optional<TrialQuestion> DecodeTrialQuestion(std::string_view bytes) {
  TrialQuestion question;
  Taker in{bytes};
  in.Take(question.what);
  in.Take(question.kind);
  in.Take(question.compile_ms);
  in.Take(question.masks_ms);
  question.text = in.TakeText();
  return WholeOr(in, std::move(question));
}

std::string Encode(const TrialAnswer& answer) {
  std::string out;
  Put(out, answer.code);
  Put(out, answer.cpu_ms);
  Put(out, answer.memory);
  PutText(out, answer.text);
  return out;
}

std::optional<TrialAnswer> DecodeTrialAnswer(std::string_view bytes) {
  TrialAnswer answer;
  Taker in{bytes};
  in.Take(answer.code);
  in.Take(answer.cpu_ms);
  in.Take(answer.memory);
  answer.text = in.TakeText();
  return WholeOr(in, std::move(answer));
}

bool WriteMessage(int fd, std::string_view bytes) {
  const uint64_t size = bytes.size();
  return SendAll(fd, {reinterpret_cast<const char*>(&size), sizeof(size)}) &&
         SendAll(fd, bytes);
}

bool ReadMessage(int fd, size_t max_size, std::string& bytes) {
  uint64_t size = 0;
  if (!ReadAll(fd, reinterpret_cast<char*>(&size), sizeof(size))) return false;
  if (size > max_size) return false;
  bytes.resize(size);
  return ReadAll(fd, bytes.data(), bytes.size());
}

}  // namespace sluice
