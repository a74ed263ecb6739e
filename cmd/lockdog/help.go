package main

import (
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
)

// helpWidth is how wide a help text is: a terminal is rarely narrower, and would cut words in two.
const helpWidth = 80

// addWrapped adds to cobra's template functions, which all commands of the process share: tests run several at once.
var addWrapped = sync.OnceFunc(func() {
	cobra.AddTemplateFunc("wrapped", func(s string) string { return wrap(s, helpWidth) })
})

// narrowHelp has a command's help wrapped, and that of all below it.
func narrowHelp(root *cobra.Command) {
	addWrapped()
	root.SetHelpTemplate("{{with (or .Long .Short)}}{{. | wrapped}}\n\n{{end}}{{if or .Runnable .HasSubCommands}}{{.UsageString}}{{end}}")
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), "FlagUsages |", "FlagUsagesWrapped 80 |"))
}

// wrap breaks the lines of a text anew, so that none is wider than it may be, but for longer words. Items of a list, which begin with "  - ", are wrapped under
// their first word. Other lines that begin with a space, as those of a table do, stay as they are.
func wrap(s string, width int) string {
	const item = "  - "
	var out strings.Builder
	column, indent := 0, "" // column 0: nothing that the next word may follow
	end := func() {
		if column > 0 {
			out.WriteByte('\n')
		}
		column, indent = 0, ""
	}
	for line := range strings.Lines(strings.TrimSpace(s) + "\n") {
		rest, isItem := strings.CutPrefix(line, item)
		switch {
		case isItem:
			end()
			out.WriteString(item)
			column, indent = len(item)-1, strings.Repeat(" ", len(item)) // the space before a word is in item
			line = rest
		case indent != "" && strings.HasPrefix(line, indent): // an item goes on
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, " "):
			end()
			out.WriteString(line)
			continue
		case indent != "":
			end()
		}
		for i, word := range slices.Collect(strings.FieldsSeq(line)) {
			switch {
			case column == 0:
			case isItem && i == 0:
				column++
			case column+1+len(word) > width:
				out.WriteString("\n" + indent)
				column = len(indent)
			default:
				out.WriteByte(' ')
				column++
			}
			out.WriteString(word)
			column += len(word)
		}
	}
	return strings.TrimRight(out.String(), "\n")
}
