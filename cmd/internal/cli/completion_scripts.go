package cli

// completionScripts are the scripts for the shells. Each passes the words up to the cursor to getwork, and does with
// the answer what differs between shells: it shows the help, escapes, or offers files.
func completionScripts() map[string]string {
	return map[string]string{
		"bash": `# Completion of getwork for bash.
_getwork() {
  local line cur=${COMP_WORDS[COMP_CWORD]}
  [[ $cur == "=" ]] && cur=
  COMPREPLY=()
  while IFS= read -r line; do
    COMPREPLY+=("$line")
  done < <("${COMP_WORDS[0]}" __complete bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  if [[ ${COMPREPLY[0]} == @file ]]; then
    compopt -o filenames 2>/dev/null
    COMPREPLY=()
    while IFS= read -r line; do
      COMPREPLY+=("$line")
    done < <(compgen -f -- "$cur")
  fi
}
complete -F _getwork getwork
`,
		"zsh": `#compdef getwork
# Completion of getwork for zsh.
_getwork() {
  local line text
  local -a answer found
  answer=("${(@f)$("${words[1]}" __complete zsh "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ $answer[1] == @file ]]; then
    [[ $PREFIX == --*=* ]] && compset -P '*='
    _files
    return
  fi
  for line in "${answer[@]}"; do
    [[ -n $line ]] || continue
    text=${line%%$'\t'*}
    if [[ $line == *$'\t'* ]]; then
      found+=("${text//:/\\:}:${line#*$'\t'}")
    else
      found+=("${text//:/\\:}")
    fi
  done
  _describe getwork found
}
if [[ $funcstack[1] == _getwork ]]; then
  _getwork "$@"
else
  compdef _getwork getwork
fi
`,
		"fish": `# Completion of getwork for fish.
function __getwork_complete
  set -l words (commandline -opc)
  set -l current (commandline -ct)
  set -l answer ($words[1] __complete fish $words[2..-1] "$current" 2>/dev/null)
  if test "$answer[1]" = @file
    if string match -q -- '--*=*' "$current"
      set -l parts (string split -m 1 = -- "$current")
      printf '%s\n' $parts[1]=(__fish_complete_path $parts[2])
    else
      __fish_complete_path "$current"
    end
  else
    printf '%s\n' $answer
  end
end
complete -c getwork -f -a '(__getwork_complete)'
`,
	}
}
