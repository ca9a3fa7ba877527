# Writes the man page and the bash completion of PROGRAM into OUTPUT_DIR, from PROGRAM's help texts.

function(ask text)  # ask(TEXT ARGUMENTS...): sets TEXT to what the program prints
  execute_process(COMMAND ${PROGRAM} ${ARGN} OUTPUT_VARIABLE out COMMAND_ERROR_IS_FATAL ANY)
  set(${text} "${out}" PARENT_SCOPE)
endfunction()

# verbatim(ROFF TEXT): sets ROFF to the text, with escapes so that troff prints it unchanged.
function(verbatim roff text)
  string(STRIP "${text}" text)
  string(REPLACE "\\" "\\e" text "${text}")
  string(REPLACE "-" "\\-" text "${text}")
  string(REGEX REPLACE "(^|\n)([.'])" "\\1\\\\&\\2" text "${text}")
  set(${roff} ".nf\n${text}\n.fi\n" PARENT_SCOPE)
endfunction()

# options_of(WORDS HELP): sets WORDS to the options in a help text, separated by spaces.
function(options_of words help)
  string(REGEX MATCHALL "--[a-z][a-z-]*" found "${help}")
  list(REMOVE_DUPLICATES found)
  list(JOIN found " " found)
  set(${words} "${found}" PARENT_SCOPE)
endfunction()

ask(help --help)
ask(keys --help-config)
# All help texts have the same end, which the man page contains once.
string(FIND "${help}" "\nExit codes:" common_at)
string(SUBSTRING "${help}" ${common_at} -1 common)
string(REGEX MATCH "^[^\n]*" purpose "${help}")
string(REGEX MATCH "\nSubcommands:\n.*\n\nExit codes:" listed "${help}")
string(REGEX MATCHALL "\n  [a-z]+ " commands "${listed}")
list(TRANSFORM commands STRIP)

verbatim(codes "${common}")
verbatim(configuration "${keys}")
string(REPLACE "${common}" "" help "${help}")
options_of(words "${help}")
list(JOIN commands " " command_words)
set(cases "    paceline) words='${words} ${command_words}' ;;\n")
set(sections "")
foreach(command IN LISTS commands)
  ask(text ${command} --help)
  string(REPLACE "${common}" "" text "${text}")
  options_of(words "${text}")
  string(APPEND cases "    ${command}) words='${words}' ;;\n")
  verbatim(roff "${text}")
  string(APPEND sections ".SS ${command}\n${roff}")
endforeach()

file(WRITE ${OUTPUT_DIR}/paceline.1 ".TH PACELINE 1 \"\" \"paceline ${VERSION}\" \"User commands\"
.SH NAME
paceline \\- ${purpose}
.SH SYNOPSIS
.B paceline
.I command
[\\fIoptions\\fR]
.SH COMMANDS
${sections}.SH CONFIGURATION
A YAML file; any key can be overridden by \\fB\\-\\-set \\fIsection.key\\fB=\\fIvalue\\fR. All keys with their defaults:
.P
${configuration}.SH EXIT STATUS AND SIGNALS
${codes}")

# Keys with their sections. CMake would split a list at a ';' in the text, so it becomes a ','.
string(REPLACE ";" "," keys "${keys}")
string(REPLACE "\n" ";" lines "${keys}")
set(path "")
set(settable "")
foreach(line IN LISTS lines)
  if(NOT line MATCHES "^( *)([a-z][a-z0-9_]*):(.*)$")
    continue()
  endif()
  string(LENGTH "${CMAKE_MATCH_1}" indent)
  math(EXPR depth "${indent} / 2")
  set(name "${CMAKE_MATCH_2}")
  set(value "${CMAKE_MATCH_3}")
  list(SUBLIST path 0 ${depth} path)
  list(APPEND path ${name})
  if(value)
    list(JOIN path "." key)
    string(APPEND settable " ${key}=")
  endif()
endforeach()
string(STRIP "${settable}" settable)

file(WRITE ${OUTPUT_DIR}/paceline.bash "# Completion of paceline's commands, options and configuration keys for bash.
_paceline() {
  local word=\${COMP_WORDS[COMP_CWORD]} before=\${COMP_WORDS[COMP_CWORD - 1]} command=paceline words
  [[ $COMP_CWORD -gt 1 ]] && command=\${COMP_WORDS[1]}
  if [[ $before == --set ]]; then
    compopt -o nospace
    mapfile -t COMPREPLY < <(compgen -W '${settable}' -- \"$word\")
    return
  fi
  case $command in
${cases}    *) words= ;;
  esac
  if [[ $command == paceline || $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")
  else
    compopt -o default
  fi
}
complete -F _paceline paceline
")
