package main

import (
	"cmp"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpWidth is the width of help texts. Terminals are rarely narrower; without wrapping they would break lines within
// words.
const helpWidth = 80

// narrowHelp wraps the help of a command, and of all commands below it. It sets no template: text/template makes the
// linker keep every exported method, and the program would be 1.5 times as large.
func narrowHelp(root *cobra.Command) {
	root.SetHelpFunc(func(c *cobra.Command, _ []string) {
		c.Print(wrap(cmp.Or(c.Long, c.Short), helpWidth), "\n\n", c.UsageString())
	})
	usage := root.UsageFunc()
	root.SetUsageFunc(func(c *cobra.Command) error {
		var text strings.Builder
		out := c.OutOrStderr()
		c.SetOut(&text)
		err := usage(c)
		c.SetOut(out)
		narrow := text.String()
		for _, flags := range []*pflag.FlagSet{c.LocalFlags(), c.InheritedFlags()} {
			wide := strings.TrimRight(flags.FlagUsages(), " \n")
			narrow = strings.Replace(narrow, wide, strings.TrimRight(flags.FlagUsagesWrapped(helpWidth), " \n"), 1)
		}
		_, printErr := io.WriteString(out, narrow)
		return cmp.Or(err, printErr)
	})
}

// wrap reflows a text to lines of at most width bytes, unless a word is longer. An item of a list begins with a dash
// after two spaces. Its other lines, which begin with four spaces, are reflowed too, and indented under its first word.
// Other lines that begin with a space, such as those of a table, stay unchanged.
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
