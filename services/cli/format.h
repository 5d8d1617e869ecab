#ifndef SLUICE_SERVICES_CLI_FORMAT_H_
#define SLUICE_SERVICES_CLI_FORMAT_H_

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <string>

namespace sluice::cli {

// Formats as printf, up to the length of a line.
__attribute__((format(printf, 1, 2))) inline std::string Format(
    const char* format, ...) {
  char text[512];
  va_list values;
  va_start(values, format);
  std::vsnprintf(text, sizeof(text), format, values);
  va_end(values);
  return text;
}

inline double InMegabytes(uint64_t bytes) {
  return static_cast<double>(bytes) * 1e-6;
}

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_FORMAT_H_
