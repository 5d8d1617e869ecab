# Makes the manual pages and completions of a program by the program itself, and
# installs them. Set by the caller: program (its file), name, section of the
# manual, folder (for what is made). Each call has a folder in it of its own, as
# two installations may run at once.
set(share ${CMAKE_INSTALL_PREFIX}/share)
string(RANDOM LENGTH 16 call)
string(APPEND folder /${call})
file(MAKE_DIRECTORY ${folder})

# sluice_page(OUT WORDS...): what the program writes with the words.
function(sluice_page out)
  execute_process(COMMAND ${program} ${ARGN} OUTPUT_FILE ${folder}/${out}
    RESULT_VARIABLE failed)
  if(failed)
    file(REMOVE_RECURSE ${folder})
    list(JOIN ARGN " " words)
    message(FATAL_ERROR "${program} ${words}: ${failed}")
  endif()
endfunction()

set(print --print)
if(name STREQUAL sluice)
  set(print completion)
  sluice_page(log man --out ${folder}/man)
else()
  file(MAKE_DIRECTORY ${folder}/man)
  sluice_page(man/${name}.${section} --print man)
endif()
foreach(shell bash zsh fish)
  sluice_page(${shell} ${print} ${shell})
endforeach()
file(GLOB pages ${folder}/man/*.${section})
file(INSTALL DESTINATION ${share}/man/man${section} TYPE FILE FILES ${pages})
file(INSTALL DESTINATION ${share}/bash-completion/completions TYPE FILE
  FILES ${folder}/bash RENAME ${name})
set(zsh zsh/site-functions)
if(CMAKE_INSTALL_PREFIX MATCHES "/usr$")
  set(zsh zsh/vendor-completions)  # Debian's packages
endif()
file(INSTALL DESTINATION ${share}/${zsh} TYPE FILE
  FILES ${folder}/zsh RENAME _${name})
file(INSTALL DESTINATION ${share}/fish/vendor_completions.d TYPE FILE
  FILES ${folder}/fish RENAME ${name}.fish)
file(REMOVE_RECURSE ${folder})
