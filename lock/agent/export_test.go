package agent

// SetMostSessions sets how many sessions an agent may have. It must not serve yet.
func SetMostSessions(a *Agent, n int64) { a.mostSessions = n }
