package doccheck_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockdog/lockdog/internal/acl"
)

// TestACLRules: package acl is the source.
func TestACLRules(t *testing.T) {
	t.Parallel()
	const page = "docs/ACL.md"
	cell := func(rules string) string {
		if rules == "" {
			return "none"
		}
		return code(strings.ReplaceAll(rules, "|", `\|`))
	}
	rows := []string{"| | keys and channels | commands |", "|---|---|---|"}
	for _, r := range acl.Others {
		kind := r.Kind
		if r.ID != acl.OneOfSeveral && r.ID != acl.OnCluster {
			kind = code(kind)
		}
		rows = append(rows, fmt.Sprintf("| %s | %s | %s |", kind, cell(r.Places), cell(r.Commands)))
	}
	if got, want := block(t, page, "acl"), strings.Join(rows, "\n"); got != want {
		t.Errorf("%s, <!-- acl -->: want\n\n%s\n", page, want)
	}

	// Its blocks of code.
	prefixed := strings.NewReplacer("~", "~app:", "&lockdog", "&app:lockdog")
	of := func(id string) acl.Row {
		return acl.Others[slices.IndexFunc(acl.Others, func(r acl.Row) bool { return r.ID == id })]
	}
	several, graph := of(acl.OneOfSeveral), of(acl.WaitGraph)
	var blocks []string // each on one line
	for b := range strings.SplitSeq(readFile(t, page), "\n\n") {
		if strings.HasPrefix(b, "    ") {
			blocks = append(blocks, strings.Join(strings.Fields(b), " "))
		}
	}
	for _, want := range []string{
		strings.Join(acl.Mutex.Rules(), " "),
		strings.Join(several.Rules(), " "),
		strings.Join(graph.Rules(), " "),
		prefixed.Replace(acl.Mutex.Places + " " + graph.Places),
		strings.Join(acl.Operator.Rules(), " "),
	} {
		if !slices.Contains(blocks, want) {
			t.Errorf("%s has no block of code with\n\n%s\n", page, want)
		}
	}
}
