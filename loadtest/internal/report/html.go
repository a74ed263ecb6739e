package report

import (
	"embed"
	"encoding/json"
	"html/template"
	"io"
)

// assets are the page and uPlot, which draws its charts. All of it goes into one file, which can be sent and
// opened without a network.
//
//go:embed assets
var assets embed.FS

var page = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"css": func(name string) (template.CSS, error) {
		b, err := assets.ReadFile("assets/" + name)
		return template.CSS(b), err
	},
	"js": func(name string) (template.JS, error) {
		b, err := assets.ReadFile("assets/" + name)
		return template.JS(b), err
	},
	"text": func(name string) (string, error) { b, err := assets.ReadFile("assets/" + name); return string(b), err },
}).ParseFS(assets, "assets/page.html"))

// cells are a table of the page.
type cells struct {
	Title string
	Heads []string
	Rows  [][]string
}

// HTML writes it as one self-contained page.
func (rep *Report) HTML(out io.Writer) error {
	data, err := json.Marshal(rep) // escapes what could end a script
	if err != nil {
		return err
	}
	var tables []cells
	for _, b := range rep.blocks() {
		t := cells{Title: b.title, Heads: []string{"locks", "mode"}}
		for _, c := range b.columns {
			t.Heads = append(t.Heads, c.head)
		}
		for i := range rep.Rows {
			r := &rep.Rows[i]
			row := []string{Thousands(r.Locks), r.label()}
			for _, c := range b.columns {
				row = append(row, c.figure(r))
			}
			t.Rows = append(t.Rows, row)
		}
		tables = append(tables, t)
	}
	return page.Execute(out, map[string]any{
		"Report": rep, "Data": template.JS(data), "Tables": tables, "Title": rep.title(), "Tiles": rep.tiles(),
	})
}

func (rep *Report) title() string {
	return map[string]string{
		"compare": "What renewing locks costs Redis", "soak": "Holding very many locks", "wave": "A wave of trouble",
	}[rep.Kind]
}
