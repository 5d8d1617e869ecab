# cmake -DOUT=FILE.cc -DFILES=a;b -P embed.cmake: C++ that holds the files
# byte for byte, as page_files.h declares it.
set(arrays "")
set(rows "")
set(index 0)
foreach(path IN LISTS FILES)
  get_filename_component(name "${path}" NAME)
  get_filename_component(ending "${path}" EXT)
  if(ending STREQUAL ".html")
    set(type "text/html; charset=utf-8")
    set(route "/")
  else()
    set(route "/page/${name}")
    if(ending STREQUAL ".css")
      set(type "text/css; charset=utf-8")
    elseif(ending STREQUAL ".js")
      set(type "text/javascript; charset=utf-8")
    elseif(ending STREQUAL ".svg")
      set(type "image/svg+xml")
    else()
      message(FATAL_ERROR "${path}: no content type for ${ending}")
    endif()
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
    "constexpr char kFile${index}[] =  // ${name}\n${bytes};\n\n")
  string(APPEND rows "    {\"${route}\", \"${type}\", \"\\\"${hash}\\\"\",\n"
    "     {kFile${index}, sizeof(kFile${index}) - 1}},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE "${OUT}" "// Made from services/gateway/page by embed.cmake.
#include \"services/gateway/page/page_files.h\"

namespace sluice::gateway {
namespace {

${arrays}constexpr PageFile kPageFiles[] = {
${rows}};

}  // namespace

std::span<const PageFile> PageFiles() { return kPageFiles; }

}  // namespace sluice::gateway
")
