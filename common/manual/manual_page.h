#ifndef SLUICE_COMMON_MANUAL_MANUAL_PAGE_H_
#define SLUICE_COMMON_MANUAL_MANUAL_PAGE_H_

#include <string>

#include "common/manual/program.h"

namespace sluice {

// Returns the manual page of a program, in the macros of man(7). Its date is
// that of the variable SOURCE_DATE_EPOCH; without it the page has no date.
std::string ManualPage(const Program& program);

// Returns the page of one of its commands: sluice-chat of "chat".
std::string ManualPage(const Program& program, const ProgramCommand& command);

}  // namespace sluice

#endif  // SLUICE_COMMON_MANUAL_MANUAL_PAGE_H_
