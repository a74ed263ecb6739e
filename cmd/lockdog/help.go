package main

import (
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
)

// helpWidth is the width of help texts. Terminals are rarely narrower; without wrapping they would break lines within
// words.
const helpWidth = 80

// addWrapped adds a function to cobra's templates. These are global to the process, and tests run several commands at
// once.
var addWrapped = sync.OnceFunc(func() {
	cobra.AddTemplateFunc("wrapped", func(s string) string { return wrap(s, helpWidth) })
})

// narrowHelp makes the help of a command, and of all commands below it, wrapped.
func narrowHelp(root *cobra.Command) {
	addWrapped()
	root.SetHelpTemplate("{{with (or .Long .Short)}}{{. | wrapped}}\n\n{{end}}{{if or .Runnable .HasSubCommands}}{{.UsageString}}{{end}}")
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), "FlagUsages |", "FlagUsagesWrapped 80 |"))
}

// wrap reflows a text to lines of at most width bytes, unless a word is longer. Items of a list, which begin with " -
// ", are indented under their first word. Other lines that begin with a space, such as those of a table, stay
// unchanged.
func wrap(s string, width int) string {
	const item = "  - "
	var out strings.Builder
	column, indent := 0, "" // column 0: there is no line that the next word may continue
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
			// The last byte of item is the space before the first word.
			column, indent = len(item)-1, strings.Repeat(" ", len(item))
			line = rest
		case indent != "" && strings.HasPrefix(line, indent): // the item continues
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
