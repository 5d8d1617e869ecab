# cmake -DOUT=FILE.cc -DLIST=NAME -DFILES=a;b -P embed.cmake: C++ that holds the
# files byte for byte, as the function NAME of page_files.h.
set(arrays "")
set(rows "")
set(index 0)
foreach(path IN LISTS FILES)
  get_filename_component(name "${path}" NAME)
  get_filename_component(stem "${path}" NAME_WE)
  get_filename_component(ending "${path}" LAST_EXT)
  string(REGEX REPLACE ".*/page/" "/page/" route "${path}")
  if(ending STREQUAL ".html")
    set(type "text/html; charset=utf-8")
    set(route "/${stem}")
    if(name STREQUAL "index.html")
      set(route "/")
    endif()
  elseif(ending STREQUAL ".css")
    set(type "text/css; charset=utf-8")
  elseif(ending STREQUAL ".js")
    set(type "text/javascript; charset=utf-8")
  elseif(ending STREQUAL ".svg")
    set(type "image/svg+xml")
  elseif(ending STREQUAL ".json")
    set(type "application/json")
    set(route "/${name}")
  elseif(ending STREQUAL ".md")
    set(type "text/markdown; charset=utf-8")
    set(route "/${name}")
  else()
    message(FATAL_ERROR "${path}: no content type for ${ending}")
  endif()
  file(SHA256 "${path}" hash)
  string(SUBSTRING "${hash}" 0 32 hash)
  file(READ "${path}" bytes HEX)
  # Lines of 16 bytes keep the compiler's messages readable.
  string(REGEX REPLACE "(................................)" "\\1\n" bytes
    "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" bytes "${bytes}")
  string(REGEX REPLACE "([^\n]+)" "    \"\\1\"" bytes "${bytes}")
  string(APPEND arrays
    "constexpr char k${LIST}${index}[] =  // ${name}\n${bytes};\n\n")
  string(APPEND rows "    {\"${route}\", \"${type}\", \"\\\"${hash}\\\"\",\n"
    "     {k${LIST}${index}, sizeof(k${LIST}${index}) - 1}},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE "${OUT}" "// Made from services/gateway by embed.cmake.
#include \"services/gateway/page/page_files.h\"

namespace sluice::gateway {
namespace {

${arrays}constexpr PageFile k${LIST}[] = {
${rows}};

}  // namespace

std::span<const PageFile> ${LIST}() { return k${LIST}; }

}  // namespace sluice::gateway
")
