package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"getwork/cmd/internal/command"
)

// CompletionCmd prints a script with which a shell completes getwork's commands. The script asks the program itself,
// with [CompleteCmd], so it never goes out of date.
type CompletionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help returns the text that --help adds.
func (CompletionCmd) Help() string {
	return `For the current shell:

  bash:  source <(getwork completion bash)
  zsh:   source <(getwork completion zsh)
  fish:  getwork completion fish | source

For each new shell, put that line into ~/.bashrc, into ~/.zshrc after compinit, or into ~/.config/fish/config.fish.`
}

// Run prints the script.
func (c CompletionCmd) Run(s *command.Streams) error {
	_, err := fmt.Fprint(s.Out, completionScripts()[c.Shell])
	return err
}

// CompleteCmd answers the scripts: one candidate per line, with its help after a tab. A line of fileMark alone means
// that the word is a file name.
type CompleteCmd struct {
	Words []string `arg:"" optional:""` // the shell, and the command line after the program, up to the cursor
}

const fileMark = "@file"

// Run prints candidates for the last word.
func (c CompleteCmd) Run(app *kong.Kong, s *command.Streams) error {
	if len(c.Words) < 2 {
		return nil
	}
	shell, words := c.Words[0], c.Words[1:]
	if shell == "bash" {
		words = joined(words)
	}
	last := words[len(words)-1]
	found := (&typed{node: app.Model.Node}).read(words[:len(words)-1]).candidates(last)
	for _, one := range found {
		text, help := one.text, "\t"+brief(one.help)
		if shell == "bash" { // bash splits the word at the sign, and shows no help
			if name, _, ok := strings.Cut(last, "="); ok && strings.HasPrefix(last, "-") {
				text = strings.TrimPrefix(text, name+"=")
			}
			help = ""
		}
		if help == "\t" || one.text == fileMark {
			help = ""
		}
		if _, err := fmt.Fprintln(s.Out, text+help); err != nil {
			return err
		}
	}
	return nil
}

// brief returns a help text up to its first full stop.
func brief(help string) string {
	help, _, _ = strings.Cut(plain(help), ";")
	help, _, _ = strings.Cut(help, ". ")
	return strings.TrimSuffix(help, ".")
}

// joined joins what bash splits: --outcome = return is one word.
func joined(words []string) []string {
	var whole []string
	for i, word := range words {
		after := i > 0 && words[i-1] == "=" && len(whole) > 0 && strings.HasPrefix(whole[len(whole)-1], "--")
		if len(whole) > 0 && (after || word == "=" && strings.HasPrefix(whole[len(whole)-1], "--")) {
			whole[len(whole)-1] += word
			continue
		}
		whole = append(whole, word)
	}
	return whole
}

// typed is what the words before the cursor mean.
type typed struct {
	node     *kong.Node
	awaits   *kong.Flag // the flag whose value comes next
	arg      int        // how many arguments there are
	noFlags  bool       // -- was typed
	finished bool       // what follows is not ours, such as a program's arguments
}

func (t *typed) read(words []string) *typed {
	for _, word := range words {
		switch {
		case t.awaits != nil:
			t.awaits = nil
		case word == "--" && !t.noFlags:
			t.noFlags = true
		case strings.HasPrefix(word, "-") && word != "-" && !t.noFlags:
			name, _, hasValue := strings.Cut(word, "=")
			if f := t.flag(name); f != nil && !hasValue && !f.IsBool() && !f.IsCounter() {
				t.awaits = f
			}
		case len(t.node.Children) > 0:
			child := slices.IndexFunc(t.node.Children, func(n *kong.Node) bool { return n.Name == word })
			if child < 0 {
				t.finished = true
				return t
			}
			t.node = t.node.Children[child]
		default:
			t.arg++
		}
	}
	return t
}

// flags returns the flags that may stand here.
func (t *typed) flags() []*kong.Flag { return slices.Concat(t.node.AllFlags(true)...) }

// flag returns the flag that is written as name, with its hyphens; nil means that no such flag takes a value.
func (t *typed) flag(name string) *kong.Flag {
	for _, f := range t.flags() {
		if name == "--"+f.Name || f.Short != 0 && name == "-"+string(f.Short) {
			return f
		}
	}
	return nil
}

// candidate is a possible completion of the last word.
type candidate struct{ text, help string }

func (t *typed) candidates(last string) []candidate {
	var all []candidate
	name, _, hasValue := strings.Cut(last, "=")
	switch f := t.flag(name); {
	case t.finished:
	case t.awaits != nil:
		all = values(t.awaits.Value, "")
	case !t.noFlags && hasValue && f != nil && strings.HasPrefix(last, "--"):
		all = values(f.Value, name+"=")
	case !t.noFlags && strings.HasPrefix(last, "-"):
		for _, f := range t.flags() {
			all = append(all, candidate{"--" + f.Name, f.Help})
		}
	case len(t.node.Children) > 0:
		for _, n := range t.node.Children {
			if !n.Hidden {
				all = append(all, candidate{n.Name, n.Help})
			}
		}
	case len(t.node.Positional) > 0:
		p := t.node.Positional[min(t.arg, len(t.node.Positional)-1)]
		if t.arg < len(t.node.Positional) || p.IsCumulative() {
			all = values(p, "")
		}
	}
	return slices.DeleteFunc(all, func(c candidate) bool { return c.text != fileMark && !strings.HasPrefix(c.text, last) })
}

// values returns the possible values of a flag or argument that has an enumeration, each after the prefix.
func values(v *kong.Value, prefix string) []candidate {
	if v.Tag.Get("complete") == "file" {
		return []candidate{{text: fileMark}}
	}
	var all []candidate
	if v.Enum == "" {
		return nil
	}
	for _, value := range v.EnumSlice() {
		if value != "" {
			all = append(all, candidate{text: prefix + value})
		}
	}
	return all
}

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
