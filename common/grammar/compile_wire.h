#ifndef SLUICE_COMMON_GRAMMAR_COMPILE_WIRE_H_
#define SLUICE_COMMON_GRAMMAR_COMPILE_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "common/core/ids.h"
#include "common/grammar/grammar_spec.h"

// What a process and its compile process (compile_process.h) tell each other.
// Both run one program on one machine: numbers travel as they lie in memory.
// Every message is a uint64 with its size and that many bytes.
namespace sluice {

// The argument of the program that makes it a compile process, and the
// descriptor by which such a process is told of its work.
inline constexpr char kCompileArgument[] = "compile-grammars";
inline constexpr int kCompileFd = 3;

// The first message on that descriptor. Behind it each byte brings, as
// SCM_RIGHTS, the descriptors of one trial: that of its messages and that of
// its end. The process answers the first message with an empty one.
struct CompileSetup {
  GrammarLimits limits;
  int32_t vocab_size = 0;
  std::vector<TokenId> eos_ids;
  std::vector<std::vector<TokenId>> answers;  // of which masks are tried
  std::string table;                          // of the vocabulary
};
std::string Encode(const CompileSetup& setup);
std::optional<CompileSetup> DecodeCompileSetup(std::string_view bytes);

// A question of a trial. Answers come in the order of the questions.
struct TrialQuestion {
  enum class What : uint32_t { kCheckSchema, kLarkOfGbnf, kCompile };
  What what = What::kCompile;
  GrammarSpec::Kind kind = GrammarSpec::Kind::kLark;  // of kCompile
  uint32_t compile_ms = 0;  // of CPU time that checking or compiling may take
  uint32_t masks_ms = 0;    // .. that masks may take besides
  std::string text;
};
std::string Encode(const TrialQuestion& question);
std::optional<TrialQuestion> DecodeTrialQuestion(std::string_view bytes);

struct TrialAnswer {
  int32_t code = 0;     // a StatusCode
  double cpu_ms = 0;    // of checking or compiling
  uint64_t memory = 0;  // that the process has grown by so far
  std::string text;     // what was made of it, or the message
};
std::string Encode(const TrialAnswer& answer);
std::optional<TrialAnswer> DecodeTrialAnswer(std::string_view bytes);

// Why a trial's process ended before an answer.
struct TrialEnd {
  enum class Why : uint32_t { kEnded, kCrashed, kTime, kMemory, kNotBegun };
  Why why = Why::kCrashed;
  int32_t signal = 0;
};

// Writes all of `bytes` as one message, or reads one; blocks. False at an error
// or an end.
bool WriteMessage(int fd, std::string_view bytes);
bool ReadMessage(int fd, size_t max_size, std::string& bytes);

}  // namespace sluice

#endif  // SLUICE_COMMON_GRAMMAR_COMPILE_WIRE_H_
