package text

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// longCell is the widest first cell that shares a line with the rest of its row.
const longCell = 60

// Rows are those of a table, in columns of a terminal: wide characters, as Chinese has them, take two.
type Rows struct{ rows [][]string }

// Add adds a row.
func (r *Rows) Add(cells ...string) { r.rows = append(r.rows, cells) }

// String aligns the columns. A first cell that is very long gets a line for itself: its column would be so wide in all lines.
func (r *Rows) String() string {
	var widths []int
	for _, row := range r.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			if w := ansi.StringWidth(cell); i > 0 || w <= longCell {
				widths[i] = max(widths[i], w)
			}
		}
	}
	var out strings.Builder
	for _, row := range r.rows {
		for i, cell := range row {
			width := ansi.StringWidth(cell)
			out.WriteString(cell)
			if i == 0 && width > longCell {
				out.WriteByte('\n')
				width = 0
			}
			if i < len(row)-1 {
				out.WriteString(strings.Repeat(" ", widths[i]+2-width))
			}
		}
		out.WriteByte('\n')
	}
	return out.String()
}
