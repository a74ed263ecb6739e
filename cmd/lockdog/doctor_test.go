package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/doctor"
	"github.com/lockdog/lockdog/internal/acl"
	"github.com/lockdog/lockdog/internal/redistest"
)

// long keeps a busy machine from being a finding.
const long = "--timeout=30s"

// appRules are those for a Mutex whose names start with job, with what no program has to ask for.
var appRules = strings.Join(slices.Concat(acl.Mutex.Rules(), rulesOf(acl.OneOfSeveral), rulesOf(acl.WaitGraph)), " ")

// rulesOf are those of a row.
func rulesOf(id string) []string {
	return acl.Others[slices.IndexFunc(acl.Others, func(r acl.Row) bool { return r.ID == id })].Rules()
}

// startWithUsers starts a server whose users have these rules.
func startWithUsers(t *testing.T, rules map[string]string, opts ...redistest.Option) *redistest.Server {
	t.Helper()
	for user, r := range rules {
		opts = append(opts, redistest.WithUser(user, append([]string{"on", ">secret"}, strings.Fields(r)...)...))
	}
	return redistest.Start(t, opts...)
}

// examine runs doctor as a user of a program that takes a Mutex whose name starts with job.
func examine(t *testing.T, s *redistest.Server, user string, flags ...string) result {
	t.Helper()
	args := append([]string{"doctor", "--user", user, "--name", "job", "--kind", "mutex"}, flags...)
	return lockdog(t, "redis://"+s.Addr(), []string{"REDISCLI_AUTH=secret"}, args...)
}

// findings are those that --json prints.
func findings(t *testing.T, printed string) (all []doctor.Finding) {
	t.Helper()
	for line := range strings.Lines(printed) {
		var f doctor.Finding
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		if f.ID == "" || f.Level == "" || f.Found == "" {
			t.Errorf("%+v", f)
		}
		all = append(all, f)
	}
	return all
}

// wantHealthy wants n findings, of which some are unknown and the others ok. The latency goes by what else the machine does.
func wantHealthy(t *testing.T, printed string, n, unknown int) {
	t.Helper()
	all := findings(t, printed)
	for _, f := range all {
		switch {
		case f.ID == "latency":
		case f.Level == doctor.Unknown:
			unknown--
		case f.Level != doctor.OK:
			t.Errorf("%+v", f)
		}
	}
	if len(all) != n || unknown != 0 {
		t.Errorf("%d findings, want %d; %d are missing that can't be checked:\n%s", len(all), n, unknown, printed)
	}
}

func TestDoctorHealthy(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithConfig("appendonly", "yes"))
	r := lockdog(t, "redis://"+s.Addr(), nil, "doctor", long, "--json")
	r.want(t, exitOK, "", "")
	wantHealthy(t, r.stdout, 30, 0)
	for _, key := range s.Client(t).Keys(t.Context(), "*").Val() {
		if !strings.HasPrefix(key, "lockdog:fence:") && s.Client(t).PTTL(t.Context(), key).Val() <= 0 {
			t.Errorf("left behind: %s", key)
		}
	}
}

// A server that grants locks may still refuse what renews them.
func TestDoctorNoticesLostRenewals(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	lockdog(t, "redis://"+redistest.DeclaredOnly(t, s.Addr()), nil, "doctor", long).want(t, exitOK, "ok    lock_renewal: locks were held until they had been renewed", "")

	p := redistest.NewProxy(t, s.Addr())
	p.SetRule(redistest.When(redistest.Up, redistest.Cut, redistest.Contains("run('hexists', key, owner)"))) // in renew.lua
	lockdog(t, "redis://"+p.Addr(), nil, "doctor").want(t, exitNo, "FAIL  lock_renewal: renewal: ", "")
}

// Warnings come last, and are findings with --strict only. It works where only what FIPS 140 approves may be used, too.
func TestDoctorStrict(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := lockdog(t, "redis://"+s.Addr(), []string{"GODEBUG=fips140=only"}, "doctor", long)
	r.want(t, exitOK, "WARN  persistence", "")
	r.want(t, exitOK, "scripts run", "")
	if strings.LastIndex(r.stdout, "\nok ") > strings.Index(r.stdout, "\nWARN ") {
		t.Errorf("the worst isn't last:\n%s", r.stdout)
	}
	lockdog(t, "redis://"+s.Addr(), nil, "doctor", "--strict").want(t, exitNo, "WARN  persistence", "")
}

// A user with the documented rules passes; INFO and CONFIG, which it may not ask, are unknown. What COMMAND.md wants of it for --strict is enough.
func TestDoctorDocumentedRules(t *testing.T) {
	t.Parallel()
	s := startWithUsers(t, map[string]string{"app": appRules, "strict": "+info +config|get +client|id " + appRules},
		redistest.WithConfig("appendonly", "yes"))
	r := examine(t, s, "app", long, "--json")
	for _, want := range []string{
		`{"id":"eviction","level":"unknown"`, `{"id":"lock_mutex","level":"ok"`, `{"id":"acl_mutex","level":"ok"`, `{"id":"acl_wait_graph","level":"ok"`,
	} {
		r.want(t, exitOK, want, "")
	}
	wantHealthy(t, r.stdout, 19, 9)
	examine(t, s, "app", "--strict").want(t, exitNo, "?     eviction: can't be checked", "")
	r = examine(t, s, "strict", long, "--json")
	r.want(t, exitOK, "", "")
	wantHealthy(t, r.stdout, 18, 0)
}

func TestDoctorNamesMissingRights(t *testing.T) {
	t.Parallel()
	wants := map[string]string{
		"+hset":                     "FAIL  acl_mutex: Mutex: missing +hset",
		"+pexpireat":                "FAIL  lock_renewal: renewal: ", // locks are granted, and lost
		"+evalsha":                  "FAIL  acl_mutex: Mutex: missing +evalsha",
		"~lockdog:fence:*":          "FAIL  acl_mutex: Mutex: missing ~lockdog:fence:*",
		"~job*":                     "FAIL  acl_mutex: Mutex: missing ~job*",
		"+publish":                  "WARN  acl_mutex: Mutex: missing +publish",
		"&redisson_lock__channel:*": "WARN  acl_mutex: Mutex: missing &redisson_lock__channel:*",
		"~lockdog_wait:{job*":       "WARN  acl_one_of_several: one of several: missing ~lockdog_wait:{job*",
		"~lockdog:waits:*":          "WARN  acl_wait_graph: WithWaitGraph: missing ~lockdog:waits:*",
		"~lockdog:waiting":          "WARN  acl_wait_graph: WithWaitGraph: missing ~lockdog:waiting",
		"+hkeys":                    "WARN  acl_wait_graph: WithWaitGraph: missing +hkeys",
	}
	rules := map[string]string{} // a user is named as what it may not
	for without := range wants {
		rules[without] = strings.Replace(appRules+" ", without+" ", "", 1)
	}
	s := startWithUsers(t, rules)
	for without, want := range wants {
		t.Run(without, func(t *testing.T) {
			t.Parallel()
			code := exitOK
			if strings.HasPrefix(want, "FAIL") {
				code = exitNo
			}
			examine(t, s, without, long).want(t, code, want, "")
		})
	}
}

// Whoever gives the rights that one run names has no need of a second: also those that can't be tried without the others are named.
func TestDoctorNamesAllMissingRights(t *testing.T) {
	t.Parallel()
	s := startWithUsers(t, map[string]string{"app": "~job* +@read +@write +ping"})
	give := []any{"acl", "setuser", "app"}
	for line := range strings.Lines(examine(t, s, "app", long).stdout) {
		if _, rest, ok := strings.Cut(line, ": missing "); ok {
			rights, _, _ := strings.Cut(rest, " (")
			for right := range strings.FieldsSeq(rights) {
				give = append(give, right)
			}
		}
	}
	if err := s.Client(t).Do(t.Context(), give...).Err(); err != nil {
		t.Fatalf("%v: %v", give, err)
	}
	if got := examine(t, s, "app", long).stdout; strings.Contains(got, "FAIL") || strings.Contains(got, "acl_mutex: Mutex: missing") || strings.Contains(got, "WARN  pubsub") {
		t.Errorf("after %v:\n%s", give, got)
	}
}

func TestDoctorReplica(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t, 1)
	lockdog(t, "redis://"+r.Replicas[0].Addr(), nil, "doctor", "--timeout", "10s").want(t, exitNo, "FAIL  role: a replica", "")
	lockdog(t, "redis://"+r.Primary.Addr(), nil, "doctor", long).want(t, exitOK, "WARN  replicas: 1 replica, and min-replicas-to-write is 0", "")
}

func TestDoctorCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0)
	first := "redis://" + c.Nodes[0].Addr()
	r := lockdog(t, first, nil, "doctor", long)
	r.want(t, exitOK, "ok    cluster: all slots are served", "")
	r.want(t, exitOK, "WARN  cluster_replicas", "")
	c.Nodes[2].Kill(t)
	lockdog(t, first, nil, "doctor", "--timeout", "3s").want(t, exitNo, c.Nodes[2].Addr(), "")
}
