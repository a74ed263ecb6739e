package text

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// longCell is the maximum width of a first cell that shares a line with the rest of its row.
const longCell = 60

// Rows is a table. Widths are in columns of a terminal: wide characters, such as Chinese ones, take two.
type Rows struct{ rows [][]string }

// Add adds a row.
func (r *Rows) Add(cells ...string) { r.rows = append(r.rows, cells) }

// String returns the table with aligned columns. A first cell longer than longCell gets its own line, so that it
// doesn't widen the column of all rows.
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
